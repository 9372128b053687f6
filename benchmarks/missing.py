"""The paper's table on missing data: the cost of losing a quarter of the training values.

    python -m benchmarks.missing --data DATA --tables adult king --minutes 10 --seeds 5

Each value of the training rows, target included, is dropped with probability 0.25. One model learns
the table with these missing values and one the complete table, with the same settings and
missing="masked", so that neither generates a missing value. Both are scored by ML efficiency on
real rows. Adult has missing values of its own (nulls, not text). They stay in both tables, so the
complete table is not quite complete; in the test rows they are a category.
Writes benchmarks/results/missing-TABLE.json.
"""

import argparse
from typing import Any, get_args

import numpy as np
import pandas as pd

from benchmarks.datasets import CLEAN_TABLES, Split, TableInfo, add_data_option, load
from benchmarks.intervals import over_seeds
from benchmarks.machine import run_info, save_result
from benchmarks.published import MISSING
from tabmt import TabMT
from tabmt.config import NetworkConfig, NetworkName

SHARE = 0.25
PAPER = {name: MISSING[info.code] for name, info in CLEAN_TABLES.items() if info.code in MISSING}


def nullable(table: pd.DataFrame) -> pd.DataFrame:
    """Integers as a type that stays integer when values are missing."""
    integers = table.select_dtypes("integer").columns
    return table.astype(dict.fromkeys(integers, "Int64"))


def drop_values(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    result: pd.DataFrame = table.mask(rng.random(table.shape) < SHARE)
    return result


def measure(
    table: pd.DataFrame, split: Split, info: TableInfo, seed: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Fit a table, sample as many rows, and score them."""
    model = TabMT(
        missing="masked",
        minutes=arguments.minutes,
        target=info.target,
        network=arguments.network,
        seed=seed,
        threads=arguments.threads,
    ).fit(table)
    rows = model.sample(len(table), seed=seed)
    is_missing = table.isna().to_numpy()
    scores = [split.efficiency(rows, info, model_seed) for model_seed in range(arguments.models)]
    assert model.card_.summary is not None
    return {
        "mle": float(np.mean(scores)),
        "values_missing": float(is_missing.mean()),
        "rows_with_gaps": float(is_missing.any(1).mean()),
        "rows_given": len(table),
        "rows_learned": model.card_.rows,
        "gaps_generated": int(rows.isna().to_numpy().sum()),
        "steps": model.card_.summary.steps,
        "stopped": model.card_.summary.stopped,
    }


def compare(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    info = CLEAN_TABLES[name]
    split = load(arguments.data, info)
    complete = nullable(split.train)
    runs = []
    for seed in range(arguments.seeds):
        run: dict[str, Any] = {"seed": seed}
        for kind, table in (("full", complete), ("gappy", drop_values(complete, seed))):
            run[kind] = measure(table, split, info, seed, arguments)
        run["delta"] = run["gappy"]["mle"] - run["full"]["mle"]
        runs.append(run)
        print(
            f"{name} seed {seed}: MLE {run['full']['mle']:.4f} with the complete table, "
            f"{run['gappy']['mle']:.4f} with missing values in "
            f"{run['gappy']['rows_with_gaps']:.1%} of the rows, difference {run['delta']:+.4f}",
            flush=True,
        )
    fits = [run[kind] for run in runs for kind in ("full", "gappy")]
    missing_before = complete.isna().sum()
    return {
        "table": name,
        "metric": info.metric,
        "share_dropped": SHARE,
        "own_gaps": {
            column: int(count) for column, count in missing_before[missing_before > 0].items()
        },
        "full": over_seeds([run["full"]["mle"] for run in runs]),
        "gappy": over_seeds([run["gappy"]["mle"] for run in runs]),
        "delta": over_seeds([run["delta"] for run in runs]),
        "paper": PAPER.get(name),
        "rows_dropped": sum(fit["rows_given"] - fit["rows_learned"] for fit in fits),
        "gaps_generated": sum(fit["gaps_generated"] for fit in fits),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=list(PAPER), choices=CLEAN_TABLES)
    parser.add_argument("--network", default=NetworkConfig.network, choices=get_args(NetworkName))
    parser.add_argument("--minutes", type=float, default=10.0, help="training time of each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--judges", dest="models", type=int, default=3, help="CatBoost models for each sample"
    )
    arguments = parser.parse_args()
    for name in arguments.tables:
        result = compare(name, arguments)
        result |= run_info("benchmarks.missing", arguments.data, arguments.threads)
        print(f"{name}: difference {result['delta']}, paper {result['paper']}", flush=True)
        save_result(f"missing-{name}", result)


if __name__ == "__main__":
    main()
