"""Does a loss that compares with some codes reach the same held-out loss sooner than the exact one?

    python -m benchmarks.sampled_loss --minutes 4

A million simulated flows, every field a category: the same network, learned for as long by either
loss; held-out rows are always scored exactly. Writes benchmarks/results/sampled-loss.json.
"""

import argparse
import logging
import re
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from benchmarks.flows import flows
from benchmarks.machine import save, told
from tabmt import TabMT
from tabmt.netflow import schema


class Looks(logging.Handler):
    """Every look at held-out rows that training tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.found = time.perf_counter(), list[dict[str, float]]()

    def emit(self, record: logging.LogRecord) -> None:
        if look := re.match(r"step (\d+)  held out ([\d.]+)", record.getMessage()):
            seconds = time.perf_counter() - self.began
            step, loss = int(look[1]), float(look[2])
            self.found.append({"step": step, "seconds": seconds, "held_out": loss})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=4.0, help="of each fit")
    parser.add_argument("--codes", type=int, default=4096, help="that the sampled loss looks at")
    parser.add_argument("--batch", type=int, default=512)
    arguments = parser.parse_args()
    train = logging.getLogger("tabmt.method.train")
    train.setLevel(logging.INFO)
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flows.parquet"
        pyarrow.parquet.write_table(pa.concat_tables(flows(arguments.rows)), path)
        for name, codes in {"exact": 0, "sampled": arguments.codes}.items():
            looks = Looks()
            train.addHandler(looks)
            settings = {"minutes": arguments.minutes, "batch_size": arguments.batch, "threads": 1}
            TabMT(**settings, sampled_codes=codes, eval_every=20, patience=99).fit(
                path, schema=schema()
            )
            train.removeHandler(looks)
            runs[name] = looks.found
            print(name, looks.found[-1], flush=True)
    result = {"rows": arguments.rows, "codes": arguments.codes, "runs": runs}
    save("sampled-loss", {**result, **told("benchmarks.sampled_loss", Path(), 1)})


if __name__ == "__main__":
    main()
