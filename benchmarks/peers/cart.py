"""Sequential CART as in synthpop: a tree for each column, given the columns before it.

The first column is drawn with replacement, each other one from the leaf that a row falls into; the
order is that of the table. As in synthpop, a leaf has at least five training rows, one of which is
drawn, and trees are not pruned. Trees are those of scikit-learn, which splits numbers only, so the
categories of a predictor are ordered by the mean of the response, or by the share of its most
frequent category: the best order for numbers and for two categories. Missing values are drawn with
the rows of the leaf.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.peers.frames import category_columns

PACKAGES = ("scikit-learn", "numpy")
LEAST_ROWS = 5  # of a leaf, synthpop's default


@dataclass(frozen=True)
class Step:
    """How one column is drawn when those before it are known."""

    tree: Any
    orders: dict[str, np.ndarray]  # of a predictor: code + 1 -> position
    leaves: dict[int, np.ndarray]  # leaf -> training rows


@dataclass(frozen=True)
class Model:
    train: pd.DataFrame
    steps: dict[str, Step]  # of every column but the first


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    steps = {}
    names = list(train)
    for position, name in enumerate(names[1:], 1):
        steps[name] = _step(train, names[:position], name, seed)
    return Model(train, steps)


def _step(train: pd.DataFrame, predictors: list[str], name: str, seed: int) -> Step:
    response = train[name]
    is_category = isinstance(response.dtype, pd.CategoricalDtype)
    if is_category:
        values = response.cat.codes.to_numpy(np.int64)
        weights = (values == np.bincount(values + 1).argmax() - 1).astype(float)
        known = np.ones(len(train), bool)  # a missing category is one more category
        tree: Any = DecisionTreeClassifier(min_samples_leaf=LEAST_ROWS, random_state=seed)
    else:
        values = weights = response.to_numpy(float)
        known = ~np.isnan(values)
        tree = DecisionTreeRegressor(min_samples_leaf=LEAST_ROWS, random_state=seed)
    orders = {
        predictor: _order(train.loc[known, predictor], weights[known])
        for predictor in category_columns(train[predictors])
    }
    matrix = _matrix(train[predictors], orders)
    tree.fit(matrix[known], values[known])
    leaf = tree.apply(matrix)
    by_leaf = np.argsort(leaf, kind="stable")
    found, starts = np.unique(leaf[by_leaf], return_index=True)
    return Step(tree, orders, dict(zip(found, np.split(by_leaf, starts[1:]), strict=True)))


def _order(predictor: pd.Series, response: np.ndarray) -> np.ndarray:
    """The position of each category, missing first, when ordered by the mean of the response."""
    codes = predictor.cat.codes.to_numpy(np.int64) + 1
    size = len(predictor.cat.categories) + 1
    counts = np.bincount(codes, minlength=size)
    sums = np.bincount(codes, weights=response, minlength=size)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), response.mean())
    return np.argsort(np.argsort(means, kind="stable"), kind="stable").astype(float)


def _matrix(table: pd.DataFrame, orders: dict[str, np.ndarray]) -> np.ndarray:
    columns = [
        orders[name][table[name].cat.codes.to_numpy(np.int64) + 1]
        if name in orders
        else table[name].to_numpy(float)
        for name in table
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    train = model.train
    first = next(iter(train))
    drawn = {first: train[first].iloc[rng.integers(len(train), size=rows)].reset_index(drop=True)}
    for name, step in model.steps.items():
        leaf = step.tree.apply(_matrix(pd.DataFrame(drawn), step.orders))
        chosen = np.empty(rows, np.int64)
        for number in np.unique(leaf):
            here = np.flatnonzero(leaf == number)
            chosen[here] = rng.choice(step.leaves[number], size=len(here))
        drawn[name] = train[name].iloc[chosen].reset_index(drop=True)
    return pd.DataFrame(drawn)


def about(model: Model) -> dict[str, Any]:
    return {"settings": {"least rows of a leaf": LEAST_ROWS, "order": list(model.train)}}
