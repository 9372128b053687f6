"""Default settings on tables of many kinds: utility, detector and closeness beside fresh real rows.

    python -m benchmarks.defaults --data DATA --tables king adult --minutes 5 --seeds 3

Each table is fitted with its target named and nothing else set, for about --minutes of CPU time of
one thread (as many steps as take this long, so that a busy machine does not matter) or until it
stops early, and then as many rows are sampled as it has training rows. The detector's score is
compared with those of fresh real rows and of real rows that are redrawn from the model's codes.
Writes benchmarks/results/defaults-TABLE.json.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import add_data_option
from benchmarks.machine import run_info, save_result
from benchmarks.training import LEFT_OUT, step_seconds
from tabmt import TabMT, evaluate

TARGETS = {
    "adult": "income",
    "bank_marketing": "y",
    "beijing_pm25": "pm2.5",
    "california": "MedHouseVal",
    "churn": "Exited",
    "facebook_variant1": "target_comments",
    "king": "price",
    "loans_full_schema": "interest_rate",
    "nycflights13": "arr_delay",
}
SCORES = ("ml_efficiency", "detector_auc", "share_closer_to_train", "copies")


def split(folder: Path, name: str, most: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test rows; of a large table, some at random."""
    table = pd.read_parquet(folder / f"{name}.parquet")
    table = table.drop(columns=LEFT_OUT.get(name, []), errors="ignore")
    indices = np.load(folder / f"{name}.split.npz")
    rng = np.random.default_rng(0)
    parts = []
    for part, rows in (("train", most), ("test", most // 3)):
        chosen = rng.permutation(indices[part])[:rows]
        parts.append(table.iloc[np.sort(chosen)].reset_index(drop=True))
    return parts[0], parts[1]


def run(name: str, train: pd.DataFrame, test: pd.DataFrame, seconds: float, seed: int) -> Any:
    settings: dict[str, Any] = {"target": TARGETS[name], "seed": seed, "threads": 1}
    steps = max(1, round(seconds / step_seconds(train, {"target": TARGETS[name]}, seed)))
    started = time.process_time()
    model = TabMT(steps=steps, **settings).fit(train)
    fitted = time.process_time() - started
    scores = evaluate(model.sample(len(train), seed=seed), train, test, target=TARGETS[name])
    summary = model.card_.summary
    assert summary is not None
    found = {name: scores.find(name) for name in SCORES}
    return {
        "seed": seed,
        "cpu_seconds": fitted,
        "steps": summary.steps,
        "stopped": summary.stopped,
        "codes_detector_auc": model.card_.codes_detector_auc,
        **{name: score.value for name, score in found.items() if score is not None},
        "fresh": {name: score.reference for name, score in found.items() if score is not None},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=5.0, help="of CPU time of one thread")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=30_000, help="of training, at most")
    arguments = parser.parse_args()
    for name in arguments.tables:
        train, test = split(arguments.data, name, arguments.rows)
        runs = []
        for seed in range(arguments.seeds):
            runs.append(run(name, train, test, 60 * arguments.minutes, seed))
            print(name, runs[-1], flush=True)
        result = {"table": name, "rows": len(train), "minutes": arguments.minutes, "runs": runs}
        save_result(
            f"defaults-{name}", {**result, **run_info("benchmarks.defaults", arguments.data, 1)}
        )


if __name__ == "__main__":
    main()
