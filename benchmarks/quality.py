"""ML efficiency of synthetic tables: fit, sample as many rows as the training table has, score.

    python -m benchmarks.quality --data DATA --tables adult california --minutes 10

How far training gets in a given time depends on the machine, so a result has the number of cores
and the speed of a matrix product. Writes benchmarks/results/quality-NETWORK-TABLE.json.
"""

import argparse
import time

import numpy as np

from benchmarks.datasets import CLEAN_TABLES, add_data_option, load
from benchmarks.machine import run_info, save_result
from tabmt import TabMT


def run(name: str, arguments: argparse.Namespace) -> dict[str, object]:
    info = CLEAN_TABLES[name]
    split = load(arguments.data, info)
    settings = {"network": arguments.network, "threads": arguments.threads}
    model = TabMT(minutes=arguments.minutes, seed=arguments.seed, **settings).fit(split.train)
    scores, rates = [], []
    for sample in range(arguments.samples):
        started = time.perf_counter()
        rows = model.sample(len(split.train), seed=sample)
        rates.append(len(rows) / (time.perf_counter() - started))
        scores += [split.efficiency(rows, info, seed) for seed in range(arguments.models)]
    real = [split.efficiency(split.train, info, seed) for seed in range(arguments.models)]
    return {
        "table": name,
        "metric": info.metric,
        "protocol": f"quick: {arguments.models} CatBoost models on each of {arguments.samples} "
        "samples of training size",
        "score": float(np.mean(scores)),
        "scores": scores,
        "real": float(np.mean(real)),
        "rows_per_second": float(np.median(rates)),
        "card": model.card_.to_json(),
        **run_info("benchmarks.quality", arguments.data, arguments.threads),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument(
        "--tables", nargs="+", default=["adult", "california"], choices=CLEAN_TABLES
    )
    parser.add_argument("--network", default="masked", help="masked or any-order")
    parser.add_argument("--minutes", type=float, default=10.0, help="training time of each model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=int, default=3, help="synthetic tables of each model")
    parser.add_argument(
        "--judges", dest="models", type=int, default=1, help="CatBoost models for each table"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in arguments.tables:
        result = run(name, arguments)
        print(
            f"{name}: {result['metric']} {result['score']:.4f} (real rows {result['real']:.4f}), "
            f"{result['rows_per_second']:.0f} rows/s"
        )
        save_result(f"quality-{arguments.network}-{name}", result)


if __name__ == "__main__":
    main()
