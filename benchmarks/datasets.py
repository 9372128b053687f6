"""The real tables of the benchmarks: what is predicted, and which columns are left out.

A folder with NAME.parquet and NAME.split.npz (row positions `train`, `val`, `test`) is expected;
`catboost_tuned.json` beside them holds the CatBoost settings of the TabDDPM protocol.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from tabmt.data.files import load as load_table
from tabmt.data.schema import infer
from tabmt.evaluation.metrics.fidelity import detector_auc
from tabmt.evaluation.metrics.privacy import closeness, copies, share_closer_to_train
from tabmt.evaluation.metrics.utility import ml_efficiency
from tabmt.evaluation.metrics.view import Lens, View


@dataclass(frozen=True)
class Dataset:
    name: str
    target: str
    task: Literal["classification", "regression"]
    left_out: tuple[str, ...] = ()


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("abalone", "Class_number_of_rings", "regression"),
        Dataset("adult", "income", "classification"),
        Dataset("california", "MedHouseVal", "regression"),
        Dataset("churn", "Exited", "classification", ("RowNumber", "CustomerId", "Surname")),
        Dataset("diabetes", "Outcome", "classification"),
        Dataset("insurance", "charges", "regression"),
        Dataset("king", "price", "regression", ("id", "date")),
    )
}


@dataclass(frozen=True)
class Split:
    """The real rows of a benchmark, with the CatBoost settings that were tuned on them."""

    train: pd.DataFrame
    valid: pd.DataFrame
    test: pd.DataFrame
    catboost: dict[str, Any]

    def efficiency(
        self, rows: pd.DataFrame, dataset: Dataset, seed: int, *, on_valid: bool = False
    ) -> float:
        """ML efficiency of a table: macro F1 or R2 on real test or validation rows."""
        judge = self.valid if on_valid else self.test
        rows_view, valid, test = self._views(rows, self.valid, judge)
        found = ml_efficiency(
            rows_view, valid, test, dataset.target, settings=self.catboost, seed=seed
        )
        return found.score

    def judge(self, rows: pd.DataFrame, dataset: Dataset, seed: int) -> dict[str, float]:
        """What the comparisons report of a synthetic table, beside what real rows score."""
        train, synthetic, test = self._views(self.train, rows, self.test)
        near, real_near = closeness(synthetic, train), closeness(test, train)
        return {
            "mle": self.efficiency(rows, dataset, seed),
            "detector": detector_auc(test, synthetic, np.random.default_rng(seed)),
            "dcr": near.median,
            "dcr_held_out": real_near.median,
            "closer_to_train": share_closer_to_train(synthetic, train, test, near.distances),
            "closer_expected": len(train) / (len(train) + len(test)),
            "copies": copies(synthetic, train),
            "copies_held_out": copies(test, train),
        }

    def _views(self, *parts: pd.DataFrame) -> list[View]:
        train = load_table(self.train)[0]
        lens = Lens.grind(train, infer(train))
        return [lens.view(load_table(part)[0], "benchmark") for part in parts]


def load(folder: Path, dataset: Dataset) -> Split:
    table = pd.read_parquet(folder / f"{dataset.name}.parquet")
    table = table.drop(columns=[name for name in dataset.left_out if name in table])
    rows = np.load(folder / f"{dataset.name}.split.npz")
    parts = [table.iloc[rows[part]].reset_index(drop=True) for part in ("train", "val", "test")]
    settings = json.loads((folder / "catboost_tuned.json").read_text())
    return Split(*parts, catboost=settings[dataset.name])
