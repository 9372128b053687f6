"""Adversarial random forests of the `arfpy` package with its defaults.

It has no limit of time. The rounds of the adversarial loop end after half of it, because the
densities of the leaves have to be estimated afterwards.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from arfpy import arf

from benchmarks.peers.frames import as_text, restore

PACKAGES = ("arfpy", "scikit-learn", "pandas")
ROUNDS = 10  # its default
SHARE = 0.5  # of the time, for the rounds


class Rounds(int):
    """The most rounds, which are reached sooner when the time is over."""

    deadline = 0.0

    def __le__(self, done: int) -> bool:
        return int(self) <= done or time.monotonic() > self.deadline


@dataclass(frozen=True)
class Model:
    model: Any
    train: pd.DataFrame
    ended_early: bool


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    np.random.seed(seed)
    rounds = Rounds(ROUNDS)
    rounds.deadline = time.monotonic() + SHARE * seconds
    model = arf.arf(as_text(train), max_iters=rounds, verbose=False, random_state=seed, n_jobs=1)
    accuracies = model.acc  # it ends by itself where the forest cannot tell, or tells better again
    converged = accuracies[-1] <= 0.5 or (len(accuracies) > 1 and accuracies[-1] > accuracies[-2])
    ended_early = not converged and len(accuracies) - 1 < ROUNDS
    model.forde()
    return Model(model, train, ended_early)


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    np.random.seed(seed)
    return restore(model.model.forge(n=rows), model.train)


def about(model: Model) -> dict[str, Any]:
    rounds = len(model.model.acc) - 1
    cut = [f"ended by time after {rounds} of at most {ROUNDS} rounds"] if model.ended_early else []
    return {"rounds": rounds, "accuracies": model.model.acc, "cut": cut}
