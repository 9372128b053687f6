"""MST of the `dpmm` package: see aim.py."""

import pandas as pd

from benchmarks.peers.aim import PACKAGES, Model, fit_by, sample

__all__ = ["PACKAGES", "fit", "sample"]


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    return fit_by("mst", train, seed)
