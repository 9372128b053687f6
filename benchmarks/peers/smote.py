"""SMOTE of every row, as in TabDDPM's comparison: a training row moved towards a neighbour.

Neighbours are the five nearest rows of the same class; of a number to predict, rows above and
below its median are the classes. Numbers are scaled to 0..1; a difference of two categories counts
as in SMOTE-NC, by the median standard deviation of the numbers. The new row lies between both rows,
and has the categories that are the most frequent among the neighbours.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from benchmarks.peers.frames import Codes

PACKAGES = ("scikit-learn", "numpy")
NEIGHBOURS = 5


@dataclass(frozen=True)
class Model:
    codes: Codes
    values: np.ndarray  # (rows, numbers)
    categories: np.ndarray  # (rows, categories)
    neighbours: np.ndarray  # (rows, 5): of the same class, in training rows


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    codes = Codes.of(train)
    values, categories = codes.encode(train)
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = (values - low) / np.where(high > low, high - low, 1)
    deviation = np.median(scaled.std(axis=0)) if scaled.shape[1] else 1.0
    vectors = np.concatenate([scaled, codes.one_hot(categories) * deviation / 2], axis=1)
    neighbours = np.zeros((len(train), NEIGHBOURS), np.int64)
    classes = _classes(train, target)
    for label in np.unique(classes):
        rows = np.flatnonzero(classes == label)
        count = min(NEIGHBOURS + 1, len(rows))
        search = NearestNeighbors(n_neighbors=count, n_jobs=1).fit(vectors[rows])
        found = search.kneighbors(vectors[rows], return_distance=False)
        others = rows[found[:, 1:] if count > 1 else found]  # the nearest is the row itself
        neighbours[rows] = np.resize(others.T, (NEIGHBOURS, len(rows))).T
    return Model(codes, values, categories, neighbours)


def _classes(train: pd.DataFrame, target: str | None) -> np.ndarray:
    if target is None:
        return np.zeros(len(train), np.int64)
    values = train[target]
    if isinstance(values.dtype, pd.CategoricalDtype):
        return values.cat.codes.to_numpy(np.int64)
    return (values > values.median()).to_numpy(np.int64)


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    origin = rng.integers(len(model.values), size=rows)
    around = model.neighbours[origin]  # (rows, 5)
    other = around[np.arange(rows), rng.integers(NEIGHBOURS, size=rows)]
    step = rng.random((rows, 1))
    values = model.values[origin] + step * (model.values[other] - model.values[origin])
    categories = _most_frequent(model.categories[around], rng)
    return model.codes.decode(values, categories)


def _most_frequent(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(rows, neighbours, columns) -> (rows, columns); one of them at random if several are."""
    votes = (codes[:, :, None] == codes[:, None]).sum(axis=2)  # of each neighbour's code
    winner = (votes + rng.random(votes.shape)).argmax(axis=1)
    return np.take_along_axis(codes, winner[:, None], axis=1)[:, 0]


def about(model: Model) -> dict[str, Any]:
    return {"settings": {"neighbours": NEIGHBOURS}}
