"""TabMT with the defaults of `tabmt fit` and a target, as a generator to compare with others.

    python -m benchmarks.peers.ours TRAIN.parquet --cpu-seconds S [--target COLUMN]

As a command, for `benchmarks.sampling_peer`: fits a table, then draws the rows that each line of
its input asks for, and prints the CPU seconds of each as a line of JSON.
"""

import argparse
import importlib.metadata
import json
import sys
import time
from typing import Any

import pandas as pd

from tabmt import TabMT
from tabmt.model import generate

PACKAGES = ("tabmt", "torch")


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> TabMT:
    return TabMT(target=target, minutes=seconds / 60, threads=1, seed=seed).fit(train)


def sample(model: TabMT, rows: int, seed: int) -> pd.DataFrame:
    return model.sample(rows, seed=seed)


def about(model: TabMT) -> dict[str, Any]:
    card = model.card_.to_json()
    return {"settings": card["settings"], "summary": card["summary"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", help="Parquet file to learn")
    parser.add_argument("--cpu-seconds", type=float, required=True, help="training time")
    parser.add_argument("--target", help="column that will be predicted; it is generated last")
    arguments = parser.parse_args()
    table = pd.read_parquet(arguments.train)
    settings: dict[str, Any] = {"threads": 1, "target": arguments.target, "seed": 0}
    steps = steps_for(arguments.cpu_seconds, table, settings)
    started = time.process_time()
    model = TabMT(**settings, steps=steps).fit(table)
    serve(model, time.process_time() - started)


def steps_for(cpu_seconds: float, table: pd.DataFrame, settings: dict[str, Any]) -> int:
    """About as many steps as training takes this CPU time, by the time of the first few."""
    seconds = {}
    for steps in (20, 120):
        started = time.process_time()
        TabMT(**settings, steps=steps).fit(table)
        seconds[steps] = time.process_time() - started
    return int(cpu_seconds * 100 / max(1e-3, seconds[120] - seconds[20]))


def serve(model: TabMT, fit_seconds: float) -> None:
    """Draw rows as requested, with compiled kernels or without, and print the CPU seconds."""
    versions = {name: importlib.metadata.version(name) for name in ("tabmt", "torch", "numba")}
    print(json.dumps({"cpu_seconds": fit_seconds, "versions": versions}), flush=True)
    least = generate.LEAST_COMPILED
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        generate.LEAST_COMPILED = least if request.get("kernels", True) else sys.maxsize
        started = time.process_time()
        model.sample(request["rows"], seed=number)
        print(json.dumps({"cpu_seconds": time.process_time() - started}), flush=True)


if __name__ == "__main__":
    main()
