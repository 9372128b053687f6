"""Are gaps generated as in life? Their rates, and how they go together, real against synthetic.

    python -m benchmarks.gaps --data DATA --minutes 5

The model learns the training rows with their gaps. Of each column with gaps the share of them is
compared, and the correlation of each pair of columns whose real gaps go together (|r| above 0.3).
Real rows that were held out (val and test) are measured by the same rule, as a reference. A column
that came out with no gap, or nothing else, has no correlation: it counts as 0.
Writes benchmarks/results/gaps-TABLE.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.machine import RESULTS, told
from tabmt import TabMT

LEFT_OUT: dict[str, tuple[str, ...]] = {
    "king_with_missing": ("id", "date"),  # as of King in all other benchmarks
    "titanic": (),
    "loans_full_schema": (),
    "nycflights13": (),
    "cirrhosis": (),
}
MOST_TRAINING_ROWS = 30_000
LEAST_SAMPLED_ROWS, MOST_SAMPLED_ROWS = 5_000, 30_000
STRONG = 0.3


def parts(folder: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """The rows to learn, the rows held out, and how many there were to learn."""
    table = pd.read_parquet(folder / f"{name}.parquet").drop(columns=list(LEFT_OUT[name]))
    rows = np.load(folder / f"{name}.split.npz")
    train, held_out = rows["train"], np.concatenate([rows["val"], rows["test"]])
    given = len(train)
    if given > MOST_TRAINING_ROWS:
        train = np.random.default_rng(0).choice(train, MOST_TRAINING_ROWS, replace=False)
    return *(table.iloc[part].reset_index(drop=True) for part in (train, held_out)), given


def correlation(gaps: pd.DataFrame, one: str, other: str) -> float:
    if gaps[one].nunique() < 2 or gaps[other].nunique() < 2:
        return 0.0
    return float(np.corrcoef(gaps[one], gaps[other])[0, 1])


def strong_pairs(gaps: pd.DataFrame) -> list[tuple[str, str, float]]:
    names = list(gaps)
    found = [
        (one, other, correlation(gaps, one, other))
        for place, one in enumerate(names)
        for other in names[place + 1 :]
    ]
    return [pair for pair in found if abs(pair[2]) > STRONG]


def compare(train: pd.DataFrame, rows: pd.DataFrame) -> dict[str, Any]:
    """Gaps of some rows beside those of the training rows; rates and differences in percent."""
    real, other = (table.isna().astype(float) for table in (train, rows))
    with_gaps = [name for name in real if real[name].any() or other[name].any()]
    rates = {
        name: {"real": 100 * float(real[name].mean()), "rows": 100 * float(other[name].mean())}
        for name in with_gaps
    }
    pairs: list[dict[str, Any]] = [
        {"columns": [one, two], "real": r, "rows": correlation(other, one, two)}
        for one, two, r in strong_pairs(real[with_gaps])
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
    train, held_out, given = parts(arguments.data, name)
    count = min(MOST_SAMPLED_ROWS, max(LEAST_SAMPLED_ROWS, len(train)))
    runs = []
    for seed in range(arguments.seeds):
        model = TabMT(minutes=arguments.minutes, seed=seed, threads=arguments.threads).fit(train)
        found = compare(train, model.sample(count, seed=seed))
        runs.append({"seed": seed, **found})
        strongest = found["correlation_difference"]
        print(
            f"{name} seed {seed}: largest difference of a rate {found['rate_difference']:.2f} "
            f"points, of {len(found['pairs'])} correlations "
            f"{'-' if strongest is None else format(strongest, '.3f')}",
            flush=True,
        )
    reference = compare(train, held_out)
    worst = {
        key: max((run[key] for run in runs if run[key] is not None), default=None)
        for key in ("rate_difference", "correlation_difference")
    }
    return {
        "table": name,
        "left_out": LEFT_OUT[name],
        "training_rows": len(train),
        "training_rows_before_subsampling": given,
        "sampled_rows": count,
        "pairs": len(reference["pairs"]),
        "largest_rate_difference_points": worst["rate_difference"],
        "largest_correlation_difference": worst["correlation_difference"],
        "held_out": {key: reference[key] for key in worst},
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--tables", nargs="+", default=list(LEFT_OUT), choices=LEFT_OUT)
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, for each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"there is no folder {arguments.data} with the tables")
    RESULTS.mkdir(exist_ok=True)
    for name in arguments.tables:
        result = run(name, arguments)
        result |= told("benchmarks.gaps", arguments.data, arguments.threads)
        path = RESULTS / f"gaps-{name}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(f"into {path}", flush=True)


if __name__ == "__main__":
    main()
