"""What flows by the million cost: simulated traffic read, coded, and learned for some steps.

    python -m benchmarks.flow_scale --millions 1 3 10 30 --steps 10 10 10 200

Each size in a process of its own, so that its peak memory is its own: the paper's model S (width
64, depth 12, batch 2,048) on all sixteen fields as categories without quantisation. Writes
benchmarks/results/flow-scale.json.
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

from benchmarks.machine import save, told


def one(path: Path, steps: int, batch: int) -> dict[str, Any]:
    """Fit one file; called in a process of its own."""
    import torch

    from tabmt import TabMT
    from tabmt.config import PRESETS
    from tabmt.data import dataset as many_files
    from tabmt.netflow import schema

    torch.set_num_threads(1)
    marks: dict[str, float] = {}

    class Marks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            marks[record.getMessage().split()[0]] = time.perf_counter()

    logging.getLogger("tabmt.codec.token_files").addHandler(Marks())
    logging.getLogger("tabmt.codec.token_files").setLevel(logging.INFO)
    many_files.MANY_CELLS = 0  # small sizes too go the way of large ones
    settings = PRESETS["S"] | {"steps": steps, "batch_size": batch, "warmup": 10, "threads": 1}
    ticks: list[float] = []
    began = time.perf_counter()
    model = TabMT(**settings, eval_every=10**9).fit(
        path, schema=schema(), on_step=lambda _: ticks.append(time.perf_counter())
    )
    ended = time.perf_counter()
    steps_seconds = np.diff(ticks)
    rows = model.card_.rows
    looked, coded = marks["looked"] - began, marks["coded"] - marks["looked"]
    per_step = float(np.median(steps_seconds))
    return {
        "rows": rows,
        "codes": sum(one.size for one in model.learned_.codec.token_columns),
        "look_seconds": looked,
        "code_seconds": coded,
        "rows_coded_per_second": rows / coded,
        "prepare_seconds": ticks[0] - marks["coded"] - per_step,
        "steps": len(ticks),
        "seconds_per_step": per_step,
        "finish_seconds": ended - ticks[-1],
        "seconds": ended - began,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 3, 10, 30])
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 10, 10, 200], help="of each")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--file", type=Path, help="fit this file and say what it cost")
    arguments = parser.parse_args()
    if arguments.file is not None:
        print(json.dumps(one(arguments.file, arguments.steps[0], arguments.batch)))
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
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
        sizes.append(json.loads(done.stdout.splitlines()[-1]))
        print(sizes[-1], flush=True)
    result = {"sizes": sizes, "batch": arguments.batch}
    save("flow-scale", {**result, **told("benchmarks.flow_scale", Path(), 1)})


if __name__ == "__main__":
    main()
