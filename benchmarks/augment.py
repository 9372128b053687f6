"""Does it help to add rows of the rare class? Churn with prompted rows, SMOTE and copies.

    python -m benchmarks.augment --data DATA --minutes 5 --seeds 5

The customers who left are raised to the number of those who stayed, in the training rows only, and
CatBoost (the tuned settings, early stopping on real validation rows) predicts who leaves. Reported
is F1 of the rare class on real test rows. SMOTE is written out below: numbers between a row and one
of its five nearest rare neighbours, categories by their majority. Writes
benchmarks/results/augment.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from catboost import CatBoostClassifier
from sklearn.metrics import f1_score
from sklearn.neighbors import NearestNeighbors

from benchmarks.datasets import DATASETS, load
from benchmarks.encoding import Encoding
from benchmarks.intervals import over_seeds
from benchmarks.machine import RESULTS, told
from tabmt import TabMT
from tabmt.data.files import load as load_table
from tabmt.data.schema import infer
from tabmt.evaluation.metrics.view import Lens, View

CHURN = DATASETS["churn"]
RARE = 1
NEIGHBOURS = 5


def smote(train: View, places: np.ndarray, count: int, rng: np.random.Generator) -> View:
    """`count` new rows from the rare ones, which are at `places`."""
    rare = train.take(places)
    matrix = Encoding.fit(train).encode(rare)
    near = NearestNeighbors(n_neighbors=NEIGHBOURS + 1).fit(matrix)
    around = near.kneighbors(matrix, return_distance=False)[:, 1:]  # (rows, neighbours)
    rows = rng.integers(0, len(rare), count)
    to = around[rows, rng.integers(0, NEIGHBOURS, count)]
    way = rng.random(count)
    numbers = {
        name: values[rows] + way * (values[to] - values[rows])
        for name, values in rare.numbers.items()
    }
    codes = {
        name: np.array([np.bincount(found).argmax() for found in codes[around[rows]]])
        for name, codes in rare.codes.items()
    }
    return View(numbers, codes, rare.lens)


def f1(
    rows: pd.DataFrame, valid: pd.DataFrame, test: pd.DataFrame, settings: dict[str, Any]
) -> float:
    """F1 of the rare class on test rows, of one CatBoost model as in tabmt.metrics.utility."""
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
    arrow = load_table(split.train)[0]
    lens = Lens.grind(arrow, infer(arrow))
    train, valid, test = (
        lens.view(load_table(part)[0], "benchmark")
        for part in (split.train, split.valid, split.test)
    )
    is_rare = (split.train[CHURN.target] == RARE).to_numpy()
    rare = np.flatnonzero(is_rare)
    count = len(train) - 2 * len(rare)
    rng = np.random.default_rng(seed)
    settings = {"minutes": arguments.minutes, "threads": arguments.threads}
    model = TabMT(target=CHURN.target, seed=seed, **settings).fit(split.train)
    prompted = model.sample(count, where={CHURN.target: RARE}, seed=seed)
    assert (prompted[CHURN.target] == RARE).all()
    added = {
        "none": train.take(np.array([], int)),
        "ours": lens.view(load_table(prompted)[0], "benchmark"),
        "smote": smote(train, rare, count, rng),
        "copies": train.take(rng.choice(rare, count)),
    }
    scores, held_out = {}, (valid.frame(), test.frame())
    threads = {"thread_count": arguments.threads}
    for way, rows in added.items():
        table = pd.concat([train.frame(), rows.frame()] if len(rows) else [train.frame()])
        judges = range(seed * arguments.judges, (seed + 1) * arguments.judges)
        found = [
            f1(table, *held_out, {**split.catboost, "random_seed": judge, **threads})
            for judge in judges
        ]
        scores[way] = float(np.mean(found))
    print(f"seed {seed}: " + ", ".join(f"{way} {s:.4f}" for way, s in scores.items()), flush=True)
    return {"seed": seed, "rare_rows": len(rare), "added_rows": count, "f1": scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, for each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--judges", type=int, default=3, help="CatBoost models per table")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"there is no folder {arguments.data} with the tables")
    runs = [run(seed, arguments) for seed in range(arguments.seeds)]
    ways = list(runs[0]["f1"])
    result = {
        "table": CHURN.name,
        "rare_class": f"{CHURN.target} = {RARE}",
        "f1": {way: over_seeds([run["f1"][way] for run in runs]) for way in ways},
        "ours - other": {
            way: over_seeds([run["f1"]["ours"] - run["f1"][way] for run in runs])
            for way in ways
            if way != "ours"
        },
        "runs": runs,
        **told("benchmarks.augment", arguments.data, arguments.threads),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "augment.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{result['f1']}, into {path}")


if __name__ == "__main__":
    main()
