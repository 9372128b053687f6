"""Copies of training rows: the best quality and the worst privacy."""

from typing import Any

import numpy as np
import pandas as pd

PACKAGES = ("pandas", "numpy")


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Any:
    return train


def sample(model: Any, rows: int, seed: int) -> pd.DataFrame:
    """Every row equally often, up to one."""
    rng = np.random.default_rng(seed)
    rounds = [rng.permutation(len(model)) for _ in range(-(-rows // len(model)))]
    return model.iloc[np.concatenate(rounds)[:rows]].reset_index(drop=True)
