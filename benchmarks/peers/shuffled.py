"""Every column drawn independently: right columns, no relations between them."""

from typing import Any

import numpy as np
import pandas as pd

PACKAGES = ("pandas", "numpy")


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Any:
    return train


def sample(model: Any, rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns = {}
    for name in model:
        rounds = [rng.permutation(len(model)) for _ in range(-(-rows // len(model)))]
        columns[name] = model[name].take(np.concatenate(rounds)[:rows]).reset_index(drop=True)
    return pd.DataFrame(columns)
