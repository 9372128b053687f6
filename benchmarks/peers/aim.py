"""AIM of the `dpmm` package, with differential privacy also in its bins and categories.

A tenth of epsilon is for finding the bins, as in its defaults; the rest is for AIM. Epsilon and
delta come from the variables of benchmarks/private.py. It has no limit of time.
"""

import os
from dataclasses import dataclass
from typing import Any

import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline

from benchmarks.peers.frames import as_text, category_columns, restore

PACKAGES = ("dpmm", "opendp", "numpy", "pandas")
BINS_SHARE = 0.1  # of epsilon
PIPELINES = {"aim": AIMPipeline, "mst": MSTPipeline}


@dataclass(frozen=True)
class Model:
    model: Any
    train: pd.DataFrame


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    return fit_by("aim", train, seed)


def fit_by(name: str, train: pd.DataFrame, seed: int) -> Model:
    epsilon, delta = (float(os.environ[f"TABMT_{key}"]) for key in ("EPSILON", "DELTA"))
    pipeline = PIPELINES[name](
        epsilon=(1 - BINS_SHARE) * epsilon,
        delta=delta,
        proc_epsilon=BINS_SHARE * epsilon,
        binner_type="priv-tree",
        n_jobs=1,
    )
    table = as_text(train)
    table = table.astype(dict.fromkeys(category_columns(train), "category"))
    pipeline.fit(table, random_state=seed)
    return Model(pipeline, train)


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    made = model.model.generate(n_records=rows, random_state=seed)
    return restore(made, model.train)
