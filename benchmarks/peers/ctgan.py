"""CTGAN of the `ctgan` package with its defaults, stopped at the time limit."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from ctgan.synthesizers import ctgan as package

from benchmarks.peers.frames import as_text, category_columns, restore

PACKAGES = ("ctgan", "torch")
EPOCHS = 300  # the default of CTGAN and TVAE


@dataclass(frozen=True)
class Model:
    model: Any
    train: pd.DataFrame
    epochs: int


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    return fit_within(package, "CTGAN", train, seconds, seed)


def fit_within(source: Any, name: str, train: pd.DataFrame, seconds: float, seed: int) -> Model:
    """Fit a class of the package, which has no limit of time, but takes its epochs from `tqdm`."""
    deadline, epochs = time.monotonic() + seconds, []

    def until_deadline(every: Iterable[int], **_: Any) -> Iterator[int]:
        for epoch in every:
            if epochs and time.monotonic() > deadline:
                return
            epochs.append(epoch)
            yield epoch

    np.random.seed(seed)
    torch.manual_seed(seed)
    source.tqdm = until_deadline
    model = getattr(source, name)(epochs=EPOCHS)
    model.fit(as_text(train), discrete_columns=category_columns(train))
    return Model(model, train, len(epochs))


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    model.model.set_random_state(seed)
    return restore(model.model.sample(rows), model.train)


def about(model: Model) -> dict[str, Any]:
    cut = [f"{model.epochs} of {EPOCHS} epochs"] if model.epochs < EPOCHS else []
    return {"epochs": model.epochs, "cut": cut}
