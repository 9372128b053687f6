"""How well are gaps filled? Ours beside mean and mode, nearest neighbours and chained regressions.

    python -m benchmarks.imputation --data DATA --minutes 5

A fifth of the cells of the test rows is hidden. All methods learn the training rows; those of
scikit-learn see numbers standardised and categories one-hot, whose largest column is the filled
category, and at most 10,000 training rows. Numbers are judged by RMSE over the column's standard
deviation in training (mean over columns), categories by the share of hidden cells filled wrongly.
Gaps that the table had before (Adult) are no truth, so nobody is judged on them.
Writes benchmarks/results/imputation-TABLE.json.
"""

import argparse
import json
import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from benchmarks.datasets import DATASETS, load
from benchmarks.encoding import Encoding
from benchmarks.intervals import over_seeds
from benchmarks.machine import RESULTS, told
from benchmarks.missing import nullable
from tabmt import TabMT
from tabmt.data.files import load as load_table
from tabmt.evaluation.metrics.view import Lens, View

TABLES = ("adult", "california", "abalone", "king")
HIDDEN = 0.2
MOST_TEST_ROWS, MOST_PEER_ROWS = 2_000, 10_000
DRAWS = 20


def errors(
    filled: View, truth: View, hidden: dict[str, np.ndarray], encoding: Encoding
) -> dict[str, Any]:
    """Of numbers the RMSE in standard deviations, of categories the share wrong."""
    roots, wrong = {}, {}
    for name, (_, sd) in encoding.scales.items():
        off = (filled.numbers[name] - truth.numbers[name])[hidden[name]]
        roots[name] = float(np.sqrt(np.mean(off**2)) / sd)
    for name in truth.codes:
        wrong[name] = (filled.codes[name] != truth.codes[name])[hidden[name]]
    return {
        "numbers": float(np.mean(list(roots.values()))),
        "categories": float(np.concatenate(list(wrong.values())).mean()) if wrong else None,
        "columns": roots | {name: float(miss.mean()) for name, miss in wrong.items()},
    }


def chained_regressions(train: np.ndarray, seed: int) -> IterativeImputer:
    """Complete training rows converge at once, and test rows would get a single round: without a
    tolerance they get all ten. The bounds keep the chain from running away."""
    low, high = np.nanmin(train, 0), np.nanmax(train, 0)
    high = np.maximum(high, low + 1e-6)
    return IterativeImputer(tol=0, min_value=low, max_value=high, random_state=seed)


PEERS: dict[str, Callable[[np.ndarray, int], Any]] = {
    "mean or mode": lambda train, seed: SimpleImputer(),  # a one-hot column's mean: its frequency
    "nearest neighbours": lambda train, seed: KNNImputer(n_neighbors=5),
    "chained regressions": chained_regressions,
}


def coverage(draws: list[View], truth: View, hidden: dict[str, np.ndarray]) -> dict[str, float]:
    """Per number column: the share of hidden cells between the 5 % and 95 % quantile of draws.

    Weibull's quantiles: with them the interval of so few draws holds a further draw of the same
    distribution 90 % of the time; with numpy's own default it is 81 % for 20 draws.
    """
    found = {}
    for name, values in truth.numbers.items():
        drawn = np.stack([draw.numbers[name][hidden[name]] for draw in draws])
        low, high = np.quantile(drawn, [0.05, 0.95], axis=0, method="weibull")
        true = values[hidden[name]]
        found[name] = float(((low <= true) & (true <= high)).mean())
    return found


def run(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    split = load(arguments.data, DATASETS[name])
    train, test = nullable(split.train), nullable(split.test)
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(test), min(MOST_TEST_ROWS, len(test)), replace=False)
    test = test.iloc[rows].reset_index(drop=True)
    hide = rng.random(test.shape) < HIDDEN
    gappy = test.mask(hide)

    started = time.perf_counter()
    model = TabMT(minutes=arguments.minutes, seed=seed, threads=arguments.threads).fit(train)
    fitted = time.perf_counter()
    ours = model.impute(gappy, how="mean")  # of categories it is the mode
    seconds = {"ours": time.perf_counter() - fitted, "our fit": fitted - started}

    lens = Lens.grind(load_table(train)[0], model.schema_)

    def view(table: pd.DataFrame) -> View:
        return lens.view(load_table(table)[0], "benchmark")

    truth, known = view(test), view(train)
    hidden = {
        column: hide[:, list(test).index(column)] & ~truth.gaps(column) for column in lens.names
    }
    found = {"ours": errors(view(ours), truth, hidden, Encoding.fit(known))}
    few = rng.choice(len(train), min(MOST_PEER_ROWS, len(train)), replace=False)
    for peer, imputer in PEERS.items():
        encoding = Encoding.fit(known, full=imputer is not chained_regressions)
        matrix, to_fill = encoding.encode(known.take(few)), encoding.encode(view(gappy))
        started = time.perf_counter()
        filled = encoding.decode(imputer(matrix, seed).fit(matrix).transform(to_fill))
        seconds[peer] = time.perf_counter() - started
        found[peer] = errors(filled, truth, hidden, encoding)
    draws = [view(draw) for draw in model.impute(gappy, draws=DRAWS, seed=seed)]
    covered = coverage(draws, truth, hidden)
    cells = {column: int(hidden[column].sum()) for column in covered}
    result = {
        "seed": seed,
        "test_rows": len(test),
        "training_rows": len(train),
        "training_rows_of_peers": len(few),
        "hidden_cells": int(sum(mask.sum() for mask in hidden.values())),
        "errors": found,
        "coverage_90": float(np.average(list(covered.values()), weights=list(cells.values()))),
        "coverage_90_columns": covered,
        "seconds": seconds,
    }
    for method, error in found.items():
        wrong = "-" if error["categories"] is None else f"{error['categories']:.4f}"
        print(f"{name} seed {seed} {method}: numbers {error['numbers']:.4f}, categories {wrong}")
    print(f"{name} seed {seed}: coverage {result['coverage_90']:.4f}", flush=True)
    return result


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, and ours over theirs: below 1 ours is better."""
    means: dict[str, dict[str, Any]] = {}
    for method in runs[0]["errors"]:
        found = [run["errors"][method] for run in runs]
        means[method] = {"numbers": over_seeds([error["numbers"] for error in found])}
        if found[0]["categories"] is not None:
            means[method]["categories"] = over_seeds([error["categories"] for error in found])
    ratios = {
        peer: {
            kind: ours["mean"] / means[peer][kind]["mean"] for kind, ours in means["ours"].items()
        }
        for peer in means
        if peer != "ours"
    }
    coverages = over_seeds([run["coverage_90"] for run in runs])
    return {"errors": means, "ours / theirs": ratios, "coverage_90": coverages}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=DATASETS)
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, for each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"there is no folder {arguments.data} with the tables")
    logging.disable(logging.WARNING)  # each draw would tell anew which test values are unseen
    warnings.simplefilter("ignore", ConvergenceWarning)  # tol=0 never converges, by intent
    RESULTS.mkdir(exist_ok=True)
    for name in arguments.tables:
        runs = [run(name, seed, arguments) for seed in range(arguments.seeds)]
        result = {"table": name, "hidden": HIDDEN, "draws": DRAWS, **summary(runs), "runs": runs}
        result |= told("benchmarks.imputation", arguments.data, arguments.threads)
        path = RESULTS / f"imputation-{name}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(f"ours / theirs {result['ours / theirs']}, into {path}", flush=True)


if __name__ == "__main__":
    main()
