"""The paper's own method with the settings of `--config paper`, with a time limit.

As in TabDDPM's tables, a missing category is a separate category: the method generates no missing
values.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from benchmarks.peers.frames import as_text, category_columns, restore
from tabmt import PAPER, TabMT

PACKAGES = ("tabmt", "torch")


@dataclass(frozen=True)
class Model:
    model: TabMT
    train: pd.DataFrame


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    kinds = [
        {"name": name, "kind": "categorical"}
        for name in category_columns(train)
        if train[name].nunique(dropna=False) > 1
    ]
    model = TabMT(**{**PAPER, "minutes": seconds / 60, "threads": 1, "seed": seed})
    return Model(model.fit(as_text(train), schema={"columns": kinds}), train)


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    return restore(model.model.sample(rows, seed=seed), model.train)


def about(model: Model) -> dict[str, Any]:
    summary = model.model.card_.summary
    assert summary is not None
    cut = []
    if summary.steps < PAPER["steps"]:
        cut.append(f"{summary.steps} of {PAPER['steps']} steps")
    return {"settings": model.model.card_.settings.to_json(), "steps": summary.steps, "cut": cut}
