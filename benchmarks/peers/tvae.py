"""TVAE of the `ctgan` package with its defaults, stopped at the time limit."""

import pandas as pd
from ctgan.synthesizers import tvae as package

from benchmarks.peers.ctgan import PACKAGES, Model, about, fit_within, sample

__all__ = ["PACKAGES", "about", "fit", "sample"]


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    return fit_within(package, "TVAE", train, seconds, seed)
