"""ML efficiency by the TabDDPM/TabMT protocol: train on synthetic rows, score on real test rows.

CatBoost with the settings tuned on real data, early stopping on real validation rows; macro F1 or
R2. Gaps of text columns are a category of their own.
"""

from typing import Any

import pandas as pd
from catboost import CatBoostClassifier, CatBoostRegressor
from sklearn.metrics import f1_score, r2_score

from benchmarks.datasets import Dataset, Split

GAP = "(gap)"


def ml_efficiency(
    train: pd.DataFrame, split: Split, dataset: Dataset, *, seed: int, threads: int
) -> float:
    categories = [
        name
        for name in train
        if name != dataset.target and not pd.api.types.is_numeric_dtype(train[name])
    ]
    settings: dict[str, Any] = {
        **split.catboost,
        "cat_features": categories,
        "random_seed": seed,
        "thread_count": threads,
        "verbose": False,
        "allow_writing_files": False,
    }
    features, target = _parts(train, dataset.target, categories)
    valid, test = (_parts(part, dataset.target, categories) for part in (split.valid, split.test))
    if dataset.task == "regression":
        regressor = CatBoostRegressor(**settings, eval_metric="RMSE")
        regressor.fit(features, target, eval_set=valid)
        return float(r2_score(test[1], regressor.predict(test[0])))
    classifier = CatBoostClassifier(**settings, eval_metric="TotalF1")
    classifier.fit(features, target.astype(str), eval_set=(valid[0], valid[1].astype(str)))
    predicted = classifier.predict(test[0]).ravel()
    return float(f1_score(test[1].astype(str), predicted, average="macro"))


def _parts(
    table: pd.DataFrame, target: str, categories: list[str]
) -> tuple[pd.DataFrame, "pd.Series[Any]"]:
    features = table.drop(columns=target)
    for name in categories:
        features[name] = features[name].astype(object).where(features[name].notna(), GAP)
    return features, table[target]
