"""The Gaussian copula of the `sdv` package with its defaults; it takes seconds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sdv.metadata import Metadata
from sdv.single_table import GaussianCopulaSynthesizer

from benchmarks.peers.frames import as_text, category_columns, restore

PACKAGES = ("sdv", "copulas")
NAME = "table"


@dataclass(frozen=True)
class Model:
    model: Any
    train: pd.DataFrame


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    categories = set(category_columns(train))
    columns = {
        name: {"sdtype": "categorical" if name in categories else "numerical"} for name in train
    }
    metadata = Metadata.load_from_dict({"tables": {NAME: {"columns": columns}}})
    np.random.seed(seed)
    model = GaussianCopulaSynthesizer(metadata)
    model.fit({NAME: as_text(train)})
    return Model(model, train)


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    np.random.seed(seed)
    return restore(model.model.sample(num_rows=rows)[NAME], model.train)
