"""What conditions cost: rows per second under prompts, as a ratio to unprompted sampling.

    python -m benchmarks.prompts --data DATA

One Adult model per network; all prompts take turns, so that a busy moment slows them all. Writes
benchmarks/results/prompts.json.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.datasets import DATASETS, load
from benchmarks.machine import RESULTS, told
from tabmt import TabMT, between, known, one_of

ROWS = {"any-order": 16_384, "masked": 2048}
PROMPTS: dict[str, dict[str, Any]] = {
    "nothing": {},
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
    "range, set and no gap": {
        "age": between(30, 40),
        "workclass": known(),
        "occupation": one_of("Sales", "Adm-clerical", "Tech-support"),
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    split = load(arguments.data, DATASETS["adult"])
    names = {name.replace("-", "_").replace(".", "_"): name for name in split.train}
    runs = []
    for network, rows in ROWS.items():
        model = TabMT(network=network, minutes=arguments.minutes, seed=0, threads=1)
        model.fit(split.train)
        seconds: dict[str, list[float]] = {prompt: [] for prompt in PROMPTS}
        for seed in range(arguments.repeats):
            for prompt, asked in PROMPTS.items():
                where = {names.get(column, column): given for column, given in asked.items()}
                started = time.perf_counter()
                model.sample(rows, seed=seed, where=where)
                seconds[prompt].append(time.perf_counter() - started)
        free = statistics.median(seconds["nothing"])
        for prompt, spent in seconds.items():
            middle = statistics.median(spent)
            run = {
                "network": network,
                "prompt": prompt,
                "rows": rows,
                "rows_per_second": rows / middle,
                "cost": middle / free,
            }
            runs.append(run)
            print(f"{network:10} {prompt:22} {rows / middle:8.0f} rows/s  cost {run['cost']:.2f}")
    result = {
        "table": "adult",
        "seed": 0,
        "runs": runs,
        **told("benchmarks.prompts", arguments.data, 1),
    }
    (RESULTS / "prompts.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
