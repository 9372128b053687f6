"""The cost of millions of flows: simulated traffic is read, encoded, and learned for some steps.

    python -m benchmarks.flow_scale --millions 1 3 10 30 --steps 10 10 10 200

Each size runs in a separate process, so that its peak memory is its own: the paper's model S (width
64, depth 12, batches of 2,048 rows) on all sixteen fields, as categories without quantisation.
Writes benchmarks/results/flow-scale.json.
"""

import argparse
import json
import logging
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import run_info, save_result


def fit_file(path: Path, steps: int, batch: int) -> dict[str, Any]:
    """Fit a file and measure the cost; called in a separate process."""
    import torch

    from tabmt import TabMT
    from tabmt.config import PRESETS
    from tabmt.data import dataset
    from tabmt.netflow import schema

    torch.set_num_threads(1)
    times: dict[str, float] = {}  # first word of a log message -> when it came

    class Times(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            times[record.getMessage().split()[0]] = time.perf_counter()

    log = logging.getLogger("tabmt.codec.large_tables")
    log.addHandler(Times())
    log.setLevel(logging.INFO)
    dataset.MOST_CELLS = 0  # small files are treated like large ones
    settings = PRESETS["S"] | {"steps": steps, "batch_size": batch, "threads": 1}
    settings["warmup"] = min(10, steps)
    step_times: list[float] = []
    started = time.perf_counter()
    model = TabMT(**settings, eval_every=10**9).fit(
        path, schema=schema(), on_step=lambda _: step_times.append(time.perf_counter())
    )
    ended = time.perf_counter()
    rows = model.card_.rows
    read, encoded = times["read"] - started, times["encoded"] - times["read"]
    per_step = float(np.median(np.diff(step_times)))
    return {
        "rows": rows,
        "codes": sum(column.size for column in model.model_.codec.token_columns),
        "read_seconds": read,
        "encode_seconds": encoded,
        "rows_encoded_per_second": rows / encoded,
        "prepare_seconds": step_times[0] - times["encoded"] - per_step,
        "steps": len(step_times),
        "seconds_per_step": per_step,
        "finish_seconds": ended - step_times[-1],
        "seconds": ended - started,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--millions", type=float, nargs="+", default=[1, 3, 10, 30], help="numbers of flows"
    )
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[10, 10, 10, 200], help="steps for each number"
    )
    parser.add_argument("--batch", type=int, default=2048, help="rows per step")
    parser.add_argument("--file", type=Path, help="only fit this file and print the cost as JSON")
    arguments = parser.parse_args()
    if arguments.file is not None:
        print(json.dumps(fit_file(arguments.file, arguments.steps[0], arguments.batch)))
        return
    sizes = []
    for millions, steps in zip(arguments.millions, arguments.steps, strict=True):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "flows.parquet"
            rows = str(round(millions * 1_000_000))
            python = [sys.executable, "-m"]
            subprocess.run([*python, "benchmarks.flows", rows, str(path)], check=True)
            command = [*python, "benchmarks.flow_scale", "--file", str(path)]
            command += ["--steps", str(steps), "--batch", str(arguments.batch)]
            process = subprocess.run(command, capture_output=True, text=True)
            if process.returncode:
                raise SystemExit(process.stderr[-3000:])
        sizes.append(json.loads(process.stdout.splitlines()[-1]))
        print(sizes[-1], flush=True)
    result = {"sizes": sizes, "batch": arguments.batch}
    save_result("flow-scale", {**result, **run_info("benchmarks.flow_scale", Path(), 1)})


if __name__ == "__main__":
    main()
