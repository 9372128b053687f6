"""What tuning gains: settings that are searched on validation rows, compared with the defaults.

    python -m benchmarks.tune --data DATA --tables churn abalone --trials 30

The best settings and the defaults are fitted again with another seed, because the best of many is
partly luck. Writes benchmarks/results/tune-TABLE.json.
"""

import argparse
import dataclasses
import logging
import time

from benchmarks.datasets import CLEAN_TABLES, add_data_option, load
from benchmarks.machine import run_info, save_result
from tabmt import tune


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=["churn", "abalone"], choices=CLEAN_TABLES)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=1.0, help="training time of each fit")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--storage", help="where trials are stored; use it again to resume")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    for name in arguments.tables:
        info = CLEAN_TABLES[name]
        split = load(arguments.data, info)
        started = time.perf_counter()
        tuned = tune(
            split.train,
            info.target,
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
            "seconds": time.perf_counter() - started,
            **run_info("benchmarks.tune", arguments.data, 1),
        }
        save_result(f"tune-{name}", result)


if __name__ == "__main__":
    main()
