"""The paper's table on missing data: what losing a quarter of the training values costs.

    python -m benchmarks.missing --data DATA --tables adult king --minutes 10 --seeds 5

From each cell of the training rows, target included, the value is dropped with probability 0.25.
One model learns the gappy table and one the full table, alike in all else and with gaps="masked",
so that neither generates a gap. Both are judged by ML efficiency on real rows. Adult has gaps of
its own (nulls, not text): they stay, in both tables, so the full one is not quite full, and in the
judged test rows they are a category. Writes benchmarks/results/missing-TABLE.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from benchmarks.datasets import DATASETS, Dataset, Split, load
from benchmarks.intervals import over_seeds
from benchmarks.machine import RESULTS, told
from tabmt import TabMT
from tabmt.config import NetworkConfig, NetworkName

SHARE = 0.25
PAPER = {"adult": {"mle": 0.813, "delta": -0.001}, "king": {"mle": 0.868, "delta": -0.008}}


def nullable(table: pd.DataFrame) -> pd.DataFrame:
    """Whole numbers stay whole numbers when some of them are missing."""
    whole = table.select_dtypes("integer").columns
    return table.astype(dict.fromkeys(whole, "Int64"))


def with_gaps(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    gappy: pd.DataFrame = table.mask(rng.random(table.shape) < SHARE)
    return gappy


def measure(
    table: pd.DataFrame, split: Split, dataset: Dataset, seed: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Fit a table, sample as many rows, judge them."""
    model = TabMT(
        gaps="masked",
        minutes=arguments.minutes,
        target=dataset.target,
        network=arguments.network,
        seed=seed,
        threads=arguments.threads,
    ).fit(table)
    rows = model.sample(len(table), seed=seed)
    gaps = table.isna().to_numpy()
    scores = [split.efficiency(rows, dataset, judge) for judge in range(arguments.judges)]
    assert model.card_.summary is not None
    return {
        "mle": float(np.mean(scores)),
        "values_missing": float(gaps.mean()),
        "rows_with_gaps": float(gaps.any(1).mean()),
        "rows_given": len(table),
        "rows_learned": model.card_.rows,
        "gaps_generated": int(rows.isna().to_numpy().sum()),
        "steps": model.card_.summary.steps,
        "stopped": model.card_.summary.stopped,
    }


def compare(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    dataset = DATASETS[name]
    split = load(arguments.data, dataset)
    full = nullable(split.train)
    runs = []
    for seed in range(arguments.seeds):
        run: dict[str, Any] = {"seed": seed}
        for kind, table in (("full", full), ("gappy", with_gaps(full, seed))):
            run[kind] = measure(table, split, dataset, seed, arguments)
        run["delta"] = run["gappy"]["mle"] - run["full"]["mle"]
        runs.append(run)
        print(
            f"{name} seed {seed}: MLE {run['full']['mle']:.4f} on the full table, "
            f"{run['gappy']['mle']:.4f} with gaps in {run['gappy']['rows_with_gaps']:.1%} of the "
            f"rows, delta {run['delta']:+.4f}",
            flush=True,
        )
    fits = [run[kind] for run in runs for kind in ("full", "gappy")]
    own = full.isna().sum()
    return {
        "table": name,
        "metric": "macro F1" if dataset.task == "classification" else "R2",
        "share_dropped": SHARE,
        "own_gaps": {column: int(count) for column, count in own[own > 0].items()},
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
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--tables", nargs="+", default=list(PAPER), choices=DATASETS)
    parser.add_argument("--network", default=NetworkConfig.network, choices=get_args(NetworkName))
    parser.add_argument("--minutes", type=float, default=10.0, help="of training, for each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--judges", type=int, default=3, help="CatBoost models per sample")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"there is no folder {arguments.data} with the tables")
    RESULTS.mkdir(exist_ok=True)
    for name in arguments.tables:
        result = compare(name, arguments)
        result |= told("benchmarks.missing", arguments.data, arguments.threads)
        path = RESULTS / f"missing-{name}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(f"{name}: delta {result['delta']}, paper {result['paper']}, into {path}", flush=True)


if __name__ == "__main__":
    main()
