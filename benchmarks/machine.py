"""How a result was measured (the command, the machine and the versions), and where it is saved."""

import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("tabmt", "torch", "numpy", "pyarrow", "scikit-learn", "catboost", "optuna")


def run_info(module: str, data: Path, threads: int) -> dict[str, object]:
    """What every result file has: the command that repeats it, the machine and the versions."""
    # Users have the tables, and the parts of a run, in other folders.
    words = ["DATA" if word == str(data) else word for word in sys.argv[1:]]
    if "--folder" in words:
        del words[words.index("--folder") : words.index("--folder") + 2]
    return {
        "command": " ".join(["python", "-m", module, *words]),
        "cores": os.cpu_count(),
        "threads": threads,
        "matrix_product_gflops": round(peak_gflops(threads), 1),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
    }


def result_path(name: str) -> Path:
    return RESULTS / f"{name}.json"


def save_result(name: str, result: dict[str, Any]) -> None:
    """Write a result into benchmarks/results and print its path."""
    RESULTS.mkdir(exist_ok=True)
    path = result_path(name)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"saved {path}", flush=True)


def peak_gflops(threads: int, size: int = 1024, repeats: int = 10) -> float:
    """The speed of this machine in float32 matrix products."""
    torch.set_num_threads(threads)
    matrix = torch.ones(size, size)
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best / 1e9
