"""How good are the rows? Fit, sample a table of training size, score it by ML efficiency.

    python -m benchmarks.quality --data DATA --tables adult california --minutes 10

Writes one JSON file per table into benchmarks/results. Wall-clock training time depends on the
machine, so a result names its cores and what a matrix product reaches on them.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from benchmarks.datasets import DATASETS, load
from benchmarks.machine import RESULTS, told
from tabmt import TabMT


def run(name: str, arguments: argparse.Namespace) -> dict[str, object]:
    dataset = DATASETS[name]
    split = load(arguments.data, dataset)
    settings = {"network": arguments.network, "threads": arguments.threads}
    model = TabMT(minutes=arguments.minutes, seed=arguments.seed, **settings).fit(split.train)
    scores, rates = [], []
    for sample in range(arguments.samples):
        started = time.perf_counter()
        rows = model.sample(len(split.train), seed=sample)
        rates.append(len(rows) / (time.perf_counter() - started))
        scores += [split.efficiency(rows, dataset, seed) for seed in range(arguments.judges)]
    real = [split.efficiency(split.train, dataset, seed) for seed in range(arguments.judges)]
    return {
        "table": name,
        "metric": "macro F1" if dataset.task == "classification" else "R2",
        "protocol": f"quick: {arguments.judges} CatBoost models on each of {arguments.samples} "
        "samples of training size",
        "score": float(np.mean(scores)),
        "scores": scores,
        "real": float(np.mean(real)),
        "rows_per_second": float(np.median(rates)),
        "card": model.card_.to_json(),
        **told("benchmarks.quality", arguments.data, arguments.threads),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--tables", nargs="+", default=["adult", "california"], choices=DATASETS)
    parser.add_argument("--network", default="masked")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--judges", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"there is no folder {arguments.data} with the tables")
    RESULTS.mkdir(exist_ok=True)
    for name in arguments.tables:
        result = run(name, arguments)
        path = RESULTS / f"quality-{arguments.network}-{name}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(
            f"{name}: {result['metric']} {result['score']:.4f} (real rows {result['real']:.4f}), "
            f"{result['rows_per_second']:.0f} rows/s, into {path}"
        )


if __name__ == "__main__":
    main()
