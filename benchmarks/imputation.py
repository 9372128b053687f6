"""Imputation of hidden cells: ours, mean or mode, nearest neighbours and chained regressions.

    python -m benchmarks.imputation --data DATA --minutes 5

A fifth of the cells of the test rows is hidden. All methods learn the training rows. Those of
scikit-learn get numbers standardised and categories one-hot, of which the largest column is the
imputed category, and at most 10,000 training rows. The error of numbers is the RMSE divided by the
column's standard deviation in training (mean over columns), that of categories the share of hidden
cells that are imputed wrongly. Values that were missing before (Adult) have no known truth and are
not scored. Writes benchmarks/results/imputation-TABLE.json.
"""

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from benchmarks.datasets import CLEAN_TABLES, add_data_option, as_arrow, load
from benchmarks.encoding import Encoding
from benchmarks.intervals import over_seeds
from benchmarks.machine import run_info, save_result
from benchmarks.missing import nullable
from tabmt import TabMT
from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder

DEFAULT_TABLES = ("adult", "california", "abalone", "king")
HIDDEN = 0.2
MOST_TEST_ROWS, MOST_PEER_ROWS = 2_000, 10_000
DRAWS = 20


@dataclass(frozen=True)
class Truth:
    """The test rows, and which of their cells were hidden and are scored."""

    rows: EncodedTable
    hidden: dict[str, np.ndarray]  # column -> (rows,) bool

    def errors(self, imputed: EncodedTable, encoding: Encoding) -> dict[str, Any]:
        """The RMSE of numbers in standard deviations, and the share of wrong categories."""
        rmse, wrong = {}, {}
        for name, (_, sd) in encoding.scales.items():
            difference = (imputed.numbers[name] - self.rows.numbers[name])[self.hidden[name]]
            rmse[name] = float(np.sqrt(np.mean(difference**2)) / sd)
        for name in self.rows.codes:
            wrong[name] = (imputed.codes[name] != self.rows.codes[name])[self.hidden[name]]
        return {
            "numbers": float(np.mean(list(rmse.values()))),
            "categories": float(np.concatenate(list(wrong.values())).mean()) if wrong else None,
            "columns": rmse | {name: float(is_wrong.mean()) for name, is_wrong in wrong.items()},
        }

    def coverage(self, draws: list[EncodedTable]) -> dict[str, float]:
        """For each number column, the share of hidden cells between the 5 % and 95 % quantiles.

        With Weibull's quantiles, the interval of so few draws contains another draw from the same
        distribution 90 % of the time; with numpy's default it is 81 % for 20 draws.
        """
        shares = {}
        for name, values in self.rows.numbers.items():
            drawn = np.stack([draw.numbers[name][self.hidden[name]] for draw in draws])
            low, high = np.quantile(drawn, [0.05, 0.95], axis=0, method="weibull")
            true = values[self.hidden[name]]
            shares[name] = float(((low <= true) & (true <= high)).mean())
        return shares


def chained_regressions(train: np.ndarray, seed: int) -> IterativeImputer:
    """Complete training rows converge at once, after which test rows would get a single iteration:
    without a tolerance they get all ten. The bounds keep the iterations from diverging."""
    low, high = np.nanmin(train, 0), np.nanmax(train, 0)
    high = np.maximum(high, low + 1e-6)
    return IterativeImputer(tol=0, min_value=low, max_value=high, random_state=seed)


PEERS: dict[str, Callable[[np.ndarray, int], Any]] = {
    # The mean of a one-hot column is the frequency of its category.
    "mean or mode": lambda train, seed: SimpleImputer(),
    "nearest neighbours": lambda train, seed: KNNImputer(n_neighbors=5),
    "chained regressions": chained_regressions,
}


def run(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    split = load(arguments.data, CLEAN_TABLES[name])
    train, test = nullable(split.train), nullable(split.test)
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(test), min(MOST_TEST_ROWS, len(test)), replace=False)
    test = test.iloc[rows].reset_index(drop=True)
    is_hidden = rng.random(test.shape) < HIDDEN
    incomplete = test.mask(is_hidden)

    started = time.perf_counter()
    model = TabMT(minutes=arguments.minutes, seed=seed, threads=arguments.threads).fit(train)
    fitted = time.perf_counter()
    imputed = model.impute(incomplete, how="mean")  # the mode of categories
    seconds = {"ours": time.perf_counter() - fitted, "our fit": fitted - started}

    encoder = MetricEncoder.fit(as_arrow(train), model.schema_)

    def encode(table: pd.DataFrame) -> EncodedTable:
        return encoder.encode(as_arrow(table), "benchmark")

    encoded_test, encoded_train = encode(test), encode(train)
    hidden = {
        column: is_hidden[:, list(test).index(column)] & ~encoded_test.missing(column)
        for column in encoder.names
    }
    truth = Truth(encoded_test, hidden)
    errors = {"ours": truth.errors(encode(imputed), Encoding.fit(encoded_train))}
    sampled = rng.choice(len(train), min(MOST_PEER_ROWS, len(train)), replace=False)
    for peer, imputer in PEERS.items():
        encoding = Encoding.fit(encoded_train, full=imputer is not chained_regressions)
        matrix = encoding.encode(encoded_train.take(sampled))
        to_impute = encoding.encode(encode(incomplete))
        started = time.perf_counter()
        filled = encoding.decode(imputer(matrix, seed).fit(matrix).transform(to_impute))
        seconds[peer] = time.perf_counter() - started
        errors[peer] = truth.errors(filled, encoding)
    draws = [encode(draw) for draw in model.impute_many(incomplete, DRAWS, seed=seed)]
    coverage = truth.coverage(draws)
    cells = [int(hidden[column].sum()) for column in coverage]
    result = {
        "seed": seed,
        "test_rows": len(test),
        "training_rows": len(train),
        "training_rows_of_peers": len(sampled),
        "hidden_cells": int(sum(mask.sum() for mask in hidden.values())),
        "errors": errors,
        "coverage_90": float(np.average(list(coverage.values()), weights=cells)),
        "coverage_90_columns": coverage,
        "seconds": seconds,
    }
    print_result(name, result)
    return result


def print_result(name: str, result: dict[str, Any]) -> None:
    label = f"{name} seed {result['seed']}"
    for method, error in result["errors"].items():
        wrong = "-" if error["categories"] is None else f"{error['categories']:.4f}"
        print(f"{label} {method}: error of numbers {error['numbers']:.4f}, of categories {wrong}")
    print(f"{label}: coverage {result['coverage_90']:.4f}", flush=True)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, and our errors divided by those of the others: below 1 ours are better."""
    means: dict[str, dict[str, Any]] = {}
    for method in runs[0]["errors"]:
        errors = [run["errors"][method] for run in runs]
        means[method] = {"numbers": over_seeds([error["numbers"] for error in errors])}
        if errors[0]["categories"] is not None:
            means[method]["categories"] = over_seeds([error["categories"] for error in errors])
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
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=DEFAULT_TABLES, choices=CLEAN_TABLES)
    parser.add_argument("--minutes", type=float, default=5.0, help="training time of each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # each draw would warn again of unseen test values
    warnings.simplefilter("ignore", ConvergenceWarning)  # tol=0 never converges
    for name in arguments.tables:
        runs = [run(name, seed, arguments) for seed in range(arguments.seeds)]
        result = {"table": name, "hidden": HIDDEN, "draws": DRAWS, **summary(runs), "runs": runs}
        result |= run_info("benchmarks.imputation", arguments.data, arguments.threads)
        print(f"our errors / errors of the others: {result['ours / theirs']}", flush=True)
        save_result(f"imputation-{name}", result)


if __name__ == "__main__":
    main()
