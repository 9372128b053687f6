"""ForestDiffusion of the package of that name (flow matching), as large as the time allows.

Its cost grows with the noise levels and with the copies of the table that each is trained on, of
which the defaults are 50 and 100. Two small models are timed first.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from ForestDiffusion import ForestDiffusionModel

from benchmarks.peers.frames import Codes, is_whole

PACKAGES = ("ForestDiffusion", "xgboost", "pandas")
LEVELS, COPIES = 50, 100  # its defaults
LEAST_LEVELS = 10
SHARE = 0.8  # of the time that is left after the first models


@dataclass(frozen=True)
class Model:
    model: Any
    codes: Codes
    label: int | None  # the position of the class to predict among the categories
    size: tuple[int, int]


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    started = time.monotonic()
    codes = Codes.of(train)
    values, categories = codes.encode(train)
    label = codes.categories.index(target) if target in codes.categories else None
    others = [number for number in range(len(codes.sizes)) if number != label]
    # Categories first: it finds their columns by the beginning of a name, so 1 must not be 11's.
    matrix = np.concatenate([categories[:, others].astype(float), values], axis=1)
    sizes = [codes.sizes[number] for number in others]
    options = {
        "label_y": None if label is None else categories[:, label],
        "cat_indexes": [number for number, size in enumerate(sizes) if size > 2],
        "bin_indexes": [number for number, size in enumerate(sizes) if size <= 2],
        "int_indexes": [
            len(others) + n for n, name in enumerate(codes.numbers) if is_whole(train[name])
        ],
        "n_jobs": 1,
        "nthread": 1,
        "seed": seed,
    }
    meter = time.monotonic()
    ForestDiffusionModel(matrix, n_t=2, duplicate_K=1, **options)
    each = (time.monotonic() - meter) / 2
    left = SHARE * (seconds - (time.monotonic() - started))
    size = size_within(left / each)
    model = ForestDiffusionModel(matrix, n_t=size[0], duplicate_K=size[1], **options)
    return Model(model, codes, label, size)


def size_within(units: float) -> tuple[int, int]:
    """Levels and copies whose product is within so many units, both reduced alike."""
    share = min(1.0, max(0.0, units) / (LEVELS * COPIES)) ** 0.5
    levels = max(LEAST_LEVELS, round(share * LEVELS))
    return levels, max(1, min(COPIES, int(units / levels)))


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    np.random.seed(seed)
    drawn = model.model.generate(batch_size=rows)
    count = len(model.codes.sizes) - (model.label is not None)
    codes = list(np.round(drawn[:, :count]).astype(np.int64).T)
    if model.label is not None:
        codes.insert(model.label, drawn[:, -1].astype(np.int64))
    values = drawn[:, count : count + len(model.codes.numbers)]
    stacked = np.stack(codes, axis=1) if codes else np.zeros((rows, 0), np.int64)
    return model.codes.decode(values, stacked)


def about(model: Model) -> dict[str, Any]:
    cut = []
    if model.size != (LEVELS, COPIES):
        cut.append(f"{model.size[0]} of {LEVELS} noise levels, {model.size[1]} of {COPIES} copies")
    return {"levels": model.size[0], "copies": model.size[1], "cut": cut}
