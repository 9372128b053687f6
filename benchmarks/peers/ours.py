"""Fit and sample TabMT, in a process of its own so that its memory is its own.

    python -m benchmarks.peers.ours TRAIN.parquet ROWS OUT.parquet --threads N --seed S \
        --network NAME --minutes M [--target COLUMN]

Prints one line of JSON, like the other generators in this folder.
"""

import argparse
import importlib.metadata
import json
import resource
import time

import pandas as pd

from tabmt import TabMT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("rows", type=int)
    parser.add_argument("out")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--samples", type=int, default=1, help="tables, one below the other")
    parser.add_argument("--network", required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--target")
    arguments = parser.parse_args()
    table = pd.read_parquet(arguments.train)
    settings = {"threads": arguments.threads, "target": arguments.target}
    model = TabMT(
        network=arguments.network, minutes=arguments.minutes, seed=arguments.seed, **settings
    )
    started = time.perf_counter()
    model.fit(table)
    fitted = time.perf_counter()
    samples = [
        model.sample(arguments.rows, seed=arguments.seed + 1000 * number)
        for number in range(arguments.samples)
    ]
    sampled = time.perf_counter()
    pd.concat(samples).to_parquet(arguments.out, index=False)
    card = model.card_.to_json()
    told = {
        "fit_seconds": fitted - started,
        "sample_seconds": sampled - fitted,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "settings": card["settings"],
        "summary": card["summary"],
        "versions": {name: importlib.metadata.version(name) for name in ("tabmt", "torch")},
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
