"""What does tuning bring? Settings searched on validation rows, beside the defaults.

    python -m benchmarks.tune --data DATA --tables churn abalone --trials 30

Both are then fitted once more with another seed: the best of many is partly luck. Writes
benchmarks/results/tune-TABLE.json.
"""

import argparse
import dataclasses
import logging
import time
from pathlib import Path

from benchmarks.datasets import DATASETS, load
from benchmarks.machine import save, told
from tabmt import tune


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--tables", nargs="+", default=["churn", "abalone"], choices=DATASETS)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=1.0, help="of each fit")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--storage", help="where trials are kept, so that the same goes on")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    for name in arguments.tables:
        dataset = DATASETS[name]
        split = load(arguments.data, dataset)
        began = time.perf_counter()
        tuned = tune(
            split.train,
            dataset.target,
            valid=split.valid,
            trials=arguments.trials,
            minutes=arguments.minutes,
            catboost_settings=split.catboost,
            workers=arguments.workers,
            storage=None if arguments.storage is None else f"{arguments.storage}-{name}",
            seed=arguments.seed,
        )
        print(name, tuned.to_toml(), flush=True)
        result = {
            "table": name,
            "tuned": dataclasses.asdict(tuned),
            "seconds": time.perf_counter() - began,
            **told("benchmarks.tune", arguments.data, 1),
        }
        save(f"tune-{name}", result)


if __name__ == "__main__":
    main()
