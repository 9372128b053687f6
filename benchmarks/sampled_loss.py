"""A loss with some of the codes: does it reach a validation loss sooner than the exact loss?

    python -m benchmarks.sampled_loss --minutes 4

A million simulated flows, every field a category. The same network is trained for the same time
with each loss; the validation loss is always exact. Writes benchmarks/results/sampled-loss.json.
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
from benchmarks.machine import run_info, save_result
from tabmt import TabMT
from tabmt.netflow import schema


class ValidationChecks(logging.Handler):
    """Collects the validation checks from the log."""

    def __init__(self) -> None:
        super().__init__()
        self.started = time.perf_counter()
        self.checks: list[dict[str, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if match := re.match(r"step (\d+)  validation loss ([\d.]+)", record.getMessage()):
            seconds = time.perf_counter() - self.started
            step, loss = int(match[1]), float(match[2])
            self.checks.append({"step": step, "seconds": seconds, "valid_loss": loss})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="number of flows")
    parser.add_argument("--minutes", type=float, default=4.0, help="training time of each model")
    parser.add_argument("--codes", type=int, default=4096, help="codes of the sampled loss")
    parser.add_argument("--batch", type=int, default=512, help="rows per step")
    arguments = parser.parse_args()
    log = logging.getLogger("tabmt.method.train")
    log.setLevel(logging.INFO)
    settings = {"minutes": arguments.minutes, "batch_size": arguments.batch, "threads": 1}
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flows.parquet"
        pyarrow.parquet.write_table(pa.concat_tables(flows(arguments.rows)), path)
        for name, codes in {"exact": 0, "sampled": arguments.codes}.items():
            handler = ValidationChecks()
            log.addHandler(handler)
            model = TabMT(**settings, sampled_codes=codes, eval_every=20, patience=99)
            model.fit(path, schema=schema())
            log.removeHandler(handler)
            runs[name] = handler.checks
            print(name, handler.checks[-1], flush=True)
    result = {"rows": arguments.rows, "codes": arguments.codes, "runs": runs}
    save_result("sampled-loss", {**result, **run_info("benchmarks.sampled_loss", Path(), 1)})


if __name__ == "__main__":
    main()
