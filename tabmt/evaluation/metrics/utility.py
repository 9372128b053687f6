"""Does a model trained on the synthetic table work on real rows?

ML efficiency by the TabDDPM/TabMT protocol: CatBoost is trained on synthetic rows, stops early on
real validation rows, and is scored on real test rows by macro F1 or R2.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tabmt.errors import UserError
from tabmt.evaluation.metrics.encoder import EncodedTable
from tabmt.evaluation.metrics.fidelity import catboost

# Used without settings that were tuned for the table.
DEFAULT_SETTINGS: dict[str, Any] = {"iterations": 1000, "early_stopping_rounds": 50}


@dataclass(frozen=True)
class Efficiency:
    score: float  # macro F1 or R2 on real test rows
    importances: dict[str, float]  # column -> share in percent


def is_classification(table: EncodedTable, target: str) -> bool:
    return target in table.codes


def ml_efficiency(
    train: EncodedTable,
    valid: EncodedTable,
    test: EncodedTable,
    target: str,
    *,
    settings: dict[str, Any],
    seed: int,
) -> Efficiency:
    """One CatBoost model. Rows whose target is missing are left out of all tables."""
    pairs = [_features_and_target(table, target) for table in (train, valid, test)]
    features, label = pairs[0]
    if label.nunique() < 2:
        raise UserError(f"the target {target!r} does not vary in the training rows")
    for (_, other), what in zip(pairs[1:], ("validation", "test"), strict=True):
        usable = other.isin(label) if is_classification(train, target) else other.notna()
        if not usable.any():
            raise UserError(
                f"no {what} row has a value of the target {target!r} that can be predicted"
            )
    common: dict[str, Any] = {
        **(settings or DEFAULT_SETTINGS),
        "cat_features": [name for name in features if features[name].dtype == object],
        "random_seed": seed % 2**31,  # the most that CatBoost takes
        "verbose": False,
        "allow_writing_files": False,
    }
    try:
        return _score(common, pairs, is_classification(train, target))
    except (catboost().CatBoostError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"CatBoost failed: {reason}") from error


def _score(
    common: dict[str, Any], pairs: list[tuple[pd.DataFrame, "pd.Series[Any]"]], classify: bool
) -> Efficiency:
    from sklearn.metrics import f1_score, r2_score

    (features, label), (valid_features, valid_label), (test_features, test_label) = pairs
    if classify:
        model = catboost().CatBoostClassifier(**common, eval_metric="TotalF1")
        known = valid_label.isin(label.unique())  # CatBoost knows only the classes it trained on
        model.fit(features, label, eval_set=(valid_features[known], valid_label[known]))
        predicted = model.predict(test_features).ravel()
        score = f1_score(test_label, predicted, average="macro")
    else:
        model = catboost().CatBoostRegressor(**common, eval_metric="RMSE")
        model.fit(features, label, eval_set=(valid_features, valid_label))
        predicted = model.predict(test_features)
        score = r2_score(test_label, predicted) if len(predicted) > 1 else math.nan
    shares = model.get_feature_importance()
    return Efficiency(float(score), dict(zip(features, map(float, shares), strict=True)))


def _features_and_target(table: EncodedTable, target: str) -> tuple[pd.DataFrame, "pd.Series[Any]"]:
    frame = table.frame()[~table.missing(target)].reset_index(drop=True)
    return frame.drop(columns=target), frame[target]


def split_into_samples(
    table: EncodedTable, count: int, rows: int, rng: np.random.Generator
) -> list[EncodedTable]:
    """`count` samples of `rows` rows each, at random: a table may be sorted."""
    if len(table) < count * rows:
        raise UserError(
            f"the paper's protocol needs {count} samples of {rows:,} rows, so a synthetic table of "
            f"{count * rows:,} rows; this one has {len(table):,}"
        )
    order = rng.permutation(len(table))
    return [table.take(np.sort(order[i * rows : (i + 1) * rows])) for i in range(count)]
