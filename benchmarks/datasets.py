"""The real tables of the benchmarks: which column is predicted, and which columns are left out.

Expects a folder with NAME.parquet and NAME.split.npz (row numbers `train`, `val` and `test`) for
each table, and `catboost_tuned.json` with the CatBoost settings of the TabDDPM protocol.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from tabmt.data.dataset import Dataset
from tabmt.data.infer import infer_schema
from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder
from tabmt.evaluation.metrics.fidelity import detector_auc
from tabmt.evaluation.metrics.privacy import closeness, copies, share_closer_to_train
from tabmt.evaluation.metrics.utility import ml_efficiency


@dataclass(frozen=True)
class TableInfo:
    name: str
    target: str
    task: Literal["classification", "regression"]
    left_out: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        """What ML efficiency is measured in."""
        return "macro F1" if self.task == "classification" else "R2"


TABLES = {
    info.name: info
    for info in (
        TableInfo("abalone", "Class_number_of_rings", "regression"),
        TableInfo("adult", "income", "classification"),
        TableInfo("california", "MedHouseVal", "regression"),
        TableInfo("churn", "Exited", "classification", ("RowNumber", "CustomerId", "Surname")),
        TableInfo("diabetes", "Outcome", "classification"),
        TableInfo("insurance", "charges", "regression"),
        TableInfo("king", "price", "regression", ("id", "date")),
    )
}


def add_data_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=existing_folder, required=True, help="folder with the tables and splits"
    )


def existing_folder(name: str) -> Path:
    path = Path(name)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {name!r}")
    return path


def as_arrow(table: Any) -> pa.Table:
    return Dataset.open(table).to_table()


@dataclass(frozen=True)
class Split:
    """The real rows of a benchmark, with the CatBoost settings that were tuned on them."""

    train: pd.DataFrame
    valid: pd.DataFrame
    test: pd.DataFrame
    catboost: dict[str, Any]

    def efficiency(
        self, rows: pd.DataFrame, info: TableInfo, seed: int, *, on_valid: bool = False
    ) -> float:
        """ML efficiency of a table: macro F1 or R2 on real test or validation rows."""
        scored_on = self.valid if on_valid else self.test
        encoded, valid, test = self._encode(rows, self.valid, scored_on)
        result = ml_efficiency(encoded, valid, test, info.target, settings=self.catboost, seed=seed)
        return result.score

    def evaluate(self, rows: pd.DataFrame, info: TableInfo, seed: int) -> dict[str, float]:
        """The scores of a synthetic table, and those of real test rows where they differ."""
        train, synthetic, test = self._encode(self.train, rows, self.test)
        distances, test_distances = closeness(synthetic, train), closeness(test, train)
        return {
            "mle": self.efficiency(rows, info, seed),
            "detector": detector_auc(test, synthetic, np.random.default_rng(seed)),
            "dcr": distances.median,
            "dcr_held_out": test_distances.median,
            "closer_to_train": share_closer_to_train(synthetic, train, test, distances.distances),
            "closer_expected": len(train) / (len(train) + len(test)),
            "copies": copies(synthetic, train),
            "copies_held_out": copies(test, train),
        }

    def _encode(self, *tables: pd.DataFrame) -> list[EncodedTable]:
        train = as_arrow(self.train)
        encoder = MetricEncoder.fit(train, infer_schema(train))
        return [encoder.encode(as_arrow(table), "benchmark") for table in tables]


def load(folder: Path, info: TableInfo) -> Split:
    table = pd.read_parquet(folder / f"{info.name}.parquet")
    table = table.drop(columns=[name for name in info.left_out if name in table])
    rows = np.load(folder / f"{info.name}.split.npz")
    tables = [table.iloc[rows[name]].reset_index(drop=True) for name in ("train", "val", "test")]
    settings = json.loads((folder / "catboost_tuned.json").read_text())
    return Split(*tables, catboost=settings[info.name])
