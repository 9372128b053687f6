"""The cost of conditions: the time of a row, relative to sampling without conditions.

    python -m benchmarks.prompts --data DATA

One Adult model per network; all conditions are measured in turns, so that other load on the machine
slows them all. Writes benchmarks/results/prompts.json.
"""

import argparse
import statistics
import time
from typing import Any

from benchmarks.datasets import CLEAN_TABLES, add_data_option, load
from benchmarks.machine import run_info, save_result
from tabmt import TabMT, between, known, one_of

ROWS = {"any-order": 16_384, "masked": 2048}
NO_CONDITION = "no condition"
CONDITIONS: dict[str, dict[str, Any]] = {
    NO_CONDITION: {},
    "one value": {"sex": "Female"},
    "three values": {"sex": "Female", "race": "White", "education": "Bachelors"},
    "one set": {"occupation": one_of("Sales", "Adm-clerical", "Tech-support")},
    "one range": {"age": between(30, 40)},
    "two ranges": {"age": between(30, 40), "hours_per_week": between(35, 45)},
    "three ranges": {
        "age": between(30, 40),
        "hours_per_week": between(35, 45),
        "education_num": between(9, 13),
    },
    "range, set and known value": {
        "age": between(30, 40),
        "workclass": known(),
        "occupation": one_of("Sales", "Adm-clerical", "Tech-support"),
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--minutes", type=float, default=1.0, help="training time of each model")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    split = load(arguments.data, CLEAN_TABLES["adult"])
    column_names = {name.replace("-", "_").replace(".", "_"): name for name in split.train}
    runs = []
    for network, rows in ROWS.items():
        model = TabMT(network=network, minutes=arguments.minutes, seed=0, threads=1)
        model.fit(split.train)
        seconds: dict[str, list[float]] = {name: [] for name in CONDITIONS}
        for seed in range(arguments.repeats):
            for name, conditions in CONDITIONS.items():
                where = {column_names[column]: value for column, value in conditions.items()}
                started = time.perf_counter()
                model.sample(rows, seed=seed, where=where)
                seconds[name].append(time.perf_counter() - started)
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        for name, median in medians.items():
            run = {
                "network": network,
                "prompt": name,
                "rows": rows,
                "rows_per_second": rows / median,
                "cost": median / medians[NO_CONDITION],
            }
            runs.append(run)
            print(f"{network:10} {name:27} {rows / median:8.0f} rows/s  cost {run['cost']:.2f}")
    info = run_info("benchmarks.prompts", arguments.data, 1)
    save_result("prompts", {"table": "adult", "seed": 0, "runs": runs, **info})


if __name__ == "__main__":
    main()
