"""Adding rows of a rare class: Churn with generated rows, SMOTE rows and copies.

    python -m benchmarks.augment --data DATA --minutes 5 --seeds 5

Rows of customers who left are added to the training rows until they are as many as those of
customers who stayed. CatBoost (tuned settings, early stopping on real validation rows) then
predicts who leaves; the score is F1 of the rare class on real test rows. SMOTE is implemented
below: numbers lie between a row and one of its five nearest neighbours in the rare class,
categories are those of the majority of the neighbours. Writes benchmarks/results/augment.json.
"""

import argparse
from typing import Any

import numpy as np
import pandas as pd
from catboost import CatBoostClassifier
from sklearn.metrics import f1_score
from sklearn.neighbors import NearestNeighbors

from benchmarks.datasets import CLEAN_TABLES, add_data_option, as_arrow, load
from benchmarks.encoding import Encoding
from benchmarks.intervals import over_seeds
from benchmarks.machine import run_info, save_result
from tabmt import TabMT
from tabmt.data.infer import infer_schema
from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder

TABLE = "churn"
CHURN = CLEAN_TABLES[TABLE]
RARE = 1
NEIGHBOURS = 5


def smote(
    train: EncodedTable, rare_rows: np.ndarray, count: int, rng: np.random.Generator
) -> EncodedTable:
    """`count` new rows of the rare class, from its rows in `train`."""
    rare = train.take(rare_rows)
    matrix = Encoding.fit(train).encode(rare)
    search = NearestNeighbors(n_neighbors=NEIGHBOURS + 1).fit(matrix)
    neighbours = search.kneighbors(matrix, return_distance=False)[:, 1:]  # (rows, neighbours)
    start = rng.integers(0, len(rare), count)
    end = neighbours[start, rng.integers(0, NEIGHBOURS, count)]
    weight = rng.random(count)
    numbers = {
        name: values[start] + weight * (values[end] - values[start])
        for name, values in rare.numbers.items()
    }
    codes = {
        name: np.array([np.bincount(row).argmax() for row in codes[neighbours[start]]])
        for name, codes in rare.codes.items()
    }
    return EncodedTable(numbers, codes, rare.encoder)


def f1(
    rows: pd.DataFrame, valid: pd.DataFrame, test: pd.DataFrame, settings: dict[str, Any]
) -> float:
    """F1 of the rare class on test rows, of one CatBoost model as for ML efficiency."""
    target = CHURN.target
    features = rows.drop(columns=target)
    model = CatBoostClassifier(
        **settings,
        eval_metric="TotalF1",
        cat_features=[name for name in features if features[name].dtype == object],
        verbose=False,
        allow_writing_files=False,
    )
    model.fit(features, rows[target], eval_set=(valid.drop(columns=target), valid[target]))
    predicted = model.predict(test.drop(columns=target)).ravel()
    return float(f1_score(test[target], predicted, pos_label=str(RARE)))


def run(seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    split = load(arguments.data, CHURN)
    arrow = as_arrow(split.train)
    encoder = MetricEncoder.fit(arrow, infer_schema(arrow))
    train, valid, test = (
        encoder.encode(as_arrow(table), "benchmark")
        for table in (split.train, split.valid, split.test)
    )
    rare_rows = np.flatnonzero(split.train[CHURN.target] == RARE)
    count = len(train) - 2 * len(rare_rows)
    rng = np.random.default_rng(seed)
    settings = {"minutes": arguments.minutes, "threads": arguments.threads}
    model = TabMT(target=CHURN.target, seed=seed, **settings).fit(split.train)
    generated = model.sample(count, where={CHURN.target: RARE}, seed=seed)
    assert (generated[CHURN.target] == RARE).all()
    added_rows = {
        "none": train.take(np.array([], int)),
        "ours": encoder.encode(as_arrow(generated), "benchmark"),
        "smote": smote(train, rare_rows, count, rng),
        "copies": train.take(rng.choice(rare_rows, count)),
    }
    scores = {}
    catboost = {**split.catboost, "thread_count": arguments.threads}
    model_seeds = range(seed * arguments.models, (seed + 1) * arguments.models)
    for method, rows in added_rows.items():
        table = pd.concat([train.frame(), rows.frame()] if len(rows) else [train.frame()])
        f1_scores = [
            f1(table, valid.frame(), test.frame(), {**catboost, "random_seed": model_seed})
            for model_seed in model_seeds
        ]
        scores[method] = float(np.mean(f1_scores))
    text = ", ".join(f"{method} {score:.4f}" for method, score in scores.items())
    print(f"seed {seed}: F1 {text}", flush=True)
    return {"seed": seed, "rare_rows": len(rare_rows), "added_rows": count, "f1": scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--minutes", type=float, default=5.0, help="training time of each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--judges", dest="models", type=int, default=3, help="CatBoost models for each table"
    )
    arguments = parser.parse_args()
    runs = [run(seed, arguments) for seed in range(arguments.seeds)]
    methods = list(runs[0]["f1"])
    result = {
        "table": TABLE,
        "rare_class": f"{CHURN.target} = {RARE}",
        "f1": {method: over_seeds([run["f1"][method] for run in runs]) for method in methods},
        "ours - other": {
            method: over_seeds([run["f1"]["ours"] - run["f1"][method] for run in runs])
            for method in methods
            if method != "ours"
        },
        "runs": runs,
        **run_info("benchmarks.augment", arguments.data, arguments.threads),
    }
    print(result["f1"])
    save_result("augment", result)


if __name__ == "__main__":
    main()
