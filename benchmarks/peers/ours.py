"""Fit and sample TabMT in a separate process, so that its peak memory is its own.

    python -m benchmarks.peers.ours TRAIN.parquet ROWS OUTPUT.parquet --threads N --seed S \
        --network NAME --minutes M [--target COLUMN]

Prints one line of JSON and takes requests with --serve, for `benchmarks.speed` and
`benchmarks.sampling_peer`. As a peer, it has the defaults of `tabmt fit` with a target.
"""

import argparse
import importlib.metadata
import json
import resource
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
    parser.add_argument("rows", type=int, help="rows of each sample")
    parser.add_argument("output", help="Parquet file to write")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--samples", type=int, default=1, help="samples to write, concatenated")
    parser.add_argument("--network", required=True, help="any-order or masked")
    parser.add_argument("--minutes", type=float, help="training time")
    parser.add_argument("--cpu-seconds", type=float, help="training time, however busy the machine")
    parser.add_argument("--target", help="column that will be predicted; it is generated last")
    parser.add_argument("--serve", action="store_true", help="draw rows on request")
    arguments = parser.parse_args()
    table = pd.read_parquet(arguments.train)
    settings: dict[str, Any] = {"threads": arguments.threads, "target": arguments.target}
    settings |= {"network": arguments.network, "seed": arguments.seed}
    if arguments.cpu_seconds is None:
        settings["minutes"] = arguments.minutes
    else:
        settings["steps"] = steps_for(arguments.cpu_seconds, table, settings)
    model = TabMT(**settings)
    started, cpu_started = time.perf_counter(), time.process_time()
    model.fit(table)
    fitted = time.perf_counter()
    if arguments.serve:
        serve(model, time.process_time() - cpu_started)
        return
    samples = [
        model.sample(arguments.rows, seed=arguments.seed + 1000 * number)
        for number in range(arguments.samples)
    ]
    sampled = time.perf_counter()
    pd.concat(samples).to_parquet(arguments.output, index=False)
    card = model.card_.to_json()
    report = {
        "fit_seconds": fitted - started,
        "sample_seconds": sampled - fitted,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "settings": card["settings"],
        "summary": card["summary"],
        "versions": {name: importlib.metadata.version(name) for name in ("tabmt", "torch")},
    }
    print(json.dumps(report))


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
