"""Learned missing values: their rates and the correlations between them, synthetic against real.

    python -m benchmarks.gaps --data DATA --minutes 5

The model learns the training rows with their missing values. Compared are the rate of missing
values of each column, and the correlation between the missing values of each pair of columns that
are correlated in the real rows (|r| above 0.3). Real rows that were not learned (validation and
test rows) are compared with the training rows in the same way, as a reference. If no value, or
every value, of a generated column is missing, its correlations count as 0.
Writes benchmarks/results/gaps-TABLE.json.
"""

import argparse
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import add_data_option
from benchmarks.machine import run_info, save_result
from tabmt import TabMT

LEFT_OUT: dict[str, tuple[str, ...]] = {
    "king_with_missing": ("id", "date"),  # as for King in all other benchmarks
    "titanic": (),
    "loans_full_schema": (),
    "nycflights13": (),
    "cirrhosis": (),
}
MOST_TRAINING_ROWS = 30_000
LEAST_SAMPLED_ROWS, MOST_SAMPLED_ROWS = 5_000, 30_000
STRONG = 0.3


def load_rows(folder: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """The rows to learn, the other real rows, and the number of training rows in the split."""
    table = pd.read_parquet(folder / f"{name}.parquet").drop(columns=list(LEFT_OUT[name]))
    rows = np.load(folder / f"{name}.split.npz")
    train, others = rows["train"], np.concatenate([rows["val"], rows["test"]])
    count = len(train)
    if count > MOST_TRAINING_ROWS:
        train = np.random.default_rng(0).choice(train, MOST_TRAINING_ROWS, replace=False)
    return *(table.iloc[chosen].reset_index(drop=True) for chosen in (train, others)), count


def correlation(is_missing: pd.DataFrame, first: str, second: str) -> float:
    if is_missing[first].nunique() < 2 or is_missing[second].nunique() < 2:
        return 0.0
    return float(np.corrcoef(is_missing[first], is_missing[second])[0, 1])


def strong_pairs(is_missing: pd.DataFrame) -> list[tuple[str, str, float]]:
    pairs = [
        (first, second, correlation(is_missing, first, second))
        for first, second in combinations(is_missing, 2)
    ]
    return [pair for pair in pairs if abs(pair[2]) > STRONG]


def compare(train: pd.DataFrame, rows: pd.DataFrame) -> dict[str, Any]:
    """Missing values of some rows and of the training rows; rates and differences in percent."""
    real, other = (table.isna().astype(float) for table in (train, rows))
    columns = [name for name in real if real[name].any() or other[name].any()]
    rates = {
        name: {"real": 100 * float(real[name].mean()), "rows": 100 * float(other[name].mean())}
        for name in columns
    }
    pairs: list[dict[str, Any]] = [
        {"columns": [first, second], "real": r, "rows": correlation(other, first, second)}
        for first, second, r in strong_pairs(real[columns])
    ]
    return {
        "rate_difference": max(abs(rate["rows"] - rate["real"]) for rate in rates.values()),
        "correlation_difference": max(
            (abs(pair["rows"] - pair["real"]) for pair in pairs), default=None
        ),
        "rates": rates,
        "pairs": pairs,
    }


def run(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    train, others, count_in_split = load_rows(arguments.data, name)
    count = min(MOST_SAMPLED_ROWS, max(LEAST_SAMPLED_ROWS, len(train)))
    runs = []
    for seed in range(arguments.seeds):
        model = TabMT(minutes=arguments.minutes, seed=seed, threads=arguments.threads).fit(train)
        comparison = compare(train, model.sample(count, seed=seed))
        runs.append({"seed": seed, **comparison})
        largest = comparison["correlation_difference"]
        print(
            f"{name} seed {seed}: largest difference of a rate "
            f"{comparison['rate_difference']:.2f} percentage points, largest difference of "
            f"{len(comparison['pairs'])} correlations "
            f"{'-' if largest is None else format(largest, '.3f')}",
            flush=True,
        )
    reference = compare(train, others)
    largest_differences = {
        key: max((run[key] for run in runs if run[key] is not None), default=None)
        for key in ("rate_difference", "correlation_difference")
    }
    return {
        "table": name,
        "left_out": LEFT_OUT[name],
        "training_rows": len(train),
        "training_rows_before_subsampling": count_in_split,
        "sampled_rows": count,
        "pairs": len(reference["pairs"]),
        "largest_rate_difference_points": largest_differences["rate_difference"],
        "largest_correlation_difference": largest_differences["correlation_difference"],
        "held_out": {key: reference[key] for key in largest_differences},
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=list(LEFT_OUT), choices=LEFT_OUT)
    parser.add_argument("--minutes", type=float, default=5.0, help="training time of each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    for name in arguments.tables:
        result = run(name, arguments)
        result |= run_info("benchmarks.gaps", arguments.data, arguments.threads)
        save_result(f"gaps-{name}", result)


if __name__ == "__main__":
    main()
