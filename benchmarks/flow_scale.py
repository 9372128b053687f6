"""What flows by the million cost: simulated traffic read, coded, and learned for some steps.

    python -m benchmarks.flow_scale --millions 1 3 10 30 --steps 200

Each size in a process of its own, so that its peak memory is its own: the paper's model S (width
64, depth 12, batch 2,048) on all sixteen fields as categories without quantisation. Writes
benchmarks/results/flow-scale.json.
"""

import argparse
import json
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
    from tabmt.netflow import schema

    torch.set_num_threads(1)
    settings = PRESETS["S"] | {"steps": steps, "batch_size": batch, "warmup": 10, "threads": 1}
    ticks: list[float] = []
    began = time.perf_counter()
    model = TabMT(**settings, eval_every=10**9).fit(
        path, schema=schema(), on_step=lambda _: ticks.append(time.perf_counter())
    )
    per_step = float(np.median(np.diff(ticks))) if len(ticks) > 1 else None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "rows": model.card_.rows,
        "codes": sum(coded.size for coded in model.learned_.codec.token_columns),
        "read_and_code_seconds": ticks[0] - began - (per_step or 0.0),
        "seconds_per_step": per_step,
        "peak_mb": before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 3, 10, 30])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--file", type=Path, help="fit this file and say what it cost")
    arguments = parser.parse_args()
    if arguments.file is not None:
        print(json.dumps(one(arguments.file, arguments.steps, arguments.batch)))
        return
    sizes = []
    for millions in arguments.millions:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "flows.parquet"
            rows = str(round(millions * 1_000_000))
            python = [sys.executable, "-m"]
            subprocess.run([*python, "benchmarks.flows", rows, str(path)], check=True)
            command = [*python, "benchmarks.flow_scale", "--file", str(path)]
            command += ["--steps", str(arguments.steps), "--batch", str(arguments.batch)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
        sizes.append(json.loads(done.stdout.splitlines()[-1]))
        print(sizes[-1], flush=True)
    result = {"sizes": sizes, "steps": arguments.steps, "batch": arguments.batch}
    save("flow-scale", {**result, **told("benchmarks.flow_scale", Path(), 1)})


if __name__ == "__main__":
    main()
