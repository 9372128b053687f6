"""Tables as peers need them, and samples in the types of the training table.

Needs pandas and NumPy only, which every environment has. Columns of pandas' category type are
categories, all others are numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

MISSING = "nan"  # the text of a missing category, as in TabDDPM's tables


def category_columns(table: pd.DataFrame) -> list[str]:
    return [name for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)]


def number_columns(table: pd.DataFrame) -> list[str]:
    categories = set(category_columns(table))
    return [name for name in table if name not in categories]


def as_text(table: pd.DataFrame) -> pd.DataFrame:
    """The table with categories as plain text, also the missing ones."""
    columns = {}
    for name in table:
        values: Any = table[name]
        if isinstance(values.dtype, pd.CategoricalDtype):
            texts = [str(value) for value in values.cat.categories] + [MISSING]
            values = pd.Series([texts[code] for code in values.cat.codes], dtype=object)
        columns[name] = values
    return pd.DataFrame(columns)


def is_whole(values: pd.Series) -> bool:
    """Whether all numbers of a column are whole, whatever their type is."""
    known = values.dropna().to_numpy(float)
    return bool(np.all(known == np.round(known)))


def restore(sample: pd.DataFrame, train: pd.DataFrame) -> pd.DataFrame:
    """A sample with the columns and types of the training table.

    Numbers are rounded where all training values are whole, for every peer: most do not, and would
    be recognised by it alone.
    """
    columns = {}
    for name in train:
        real, values = train[name], sample[name].reset_index(drop=True)
        if isinstance(real.dtype, pd.CategoricalDtype):
            columns[name] = _categories(values, real.dtype)
            continue
        numbers = pd.to_numeric(values).astype(float)
        if is_whole(real):
            numbers = numbers.round()
        columns[name] = numbers.astype(real.dtype)
    return pd.DataFrame(columns)


def _categories(values: pd.Series, dtype: pd.CategoricalDtype) -> pd.Series:
    codes = {str(category): code for code, category in enumerate(dtype.categories)} | {MISSING: -1}
    texts = [MISSING if missing else str(value) for value, missing in _with_missing(values)]
    unknown = sorted({text for text in texts if text not in codes})
    if unknown:
        raise ValueError(f"column {values.name!r} has no category {unknown[0]!r}")
    return pd.Series(pd.Categorical.from_codes([codes[text] for text in texts], dtype=dtype))


def _with_missing(values: pd.Series) -> Iterable[tuple[Any, bool]]:
    return zip(values.astype(object), values.isna(), strict=True)


@dataclass(frozen=True)
class Codes:
    """A table as a matrix of numbers and a matrix of category codes, and back.

    A missing category is a code of its own, the last; a missing number is the median.
    """

    train: pd.DataFrame
    numbers: list[str]
    categories: list[str]
    sizes: list[int]  # codes of each category
    medians: np.ndarray

    @classmethod
    def of(cls, train: pd.DataFrame) -> "Codes":
        numbers, categories = number_columns(train), category_columns(train)
        sizes = [
            len(train[name].cat.categories) + int(train[name].isna().any()) for name in categories
        ]
        medians = np.array([np.nanmedian(train[name].to_numpy(float)) for name in numbers])
        return cls(train, numbers, categories, sizes, medians)

    def encode(self, table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """(rows, numbers) as float64 and (rows, categories) as int64."""
        shape = (len(table), 0)
        columns = [table[name].to_numpy(float) for name in self.numbers]
        values = np.stack(columns, axis=1) if columns else np.zeros(shape)
        values = np.where(np.isnan(values), self.medians, values)
        codes = np.zeros(shape, np.int64)
        if self.categories:
            codes = np.stack([table[name].cat.codes for name in self.categories], axis=1)
        codes = np.where(codes < 0, np.array(self.sizes) - 1, codes).astype(np.int64)
        return values, codes

    def decode(self, values: np.ndarray, codes: np.ndarray) -> pd.DataFrame:
        columns: dict[str, Any] = {}
        for number, name in enumerate(self.numbers):
            columns[name] = values[:, number]
        for number, name in enumerate(self.categories):
            dtype = self.train[name].dtype
            known = np.where(codes[:, number] < len(dtype.categories), codes[:, number], -1)
            columns[name] = pd.Series(pd.Categorical.from_codes(known, dtype=dtype))
        return restore(pd.DataFrame(columns), self.train)

    def one_hot(self, codes: np.ndarray) -> np.ndarray:
        """(rows, sum of the sizes) of zeros and ones."""
        if not self.sizes:
            return np.zeros((len(codes), 0))
        return np.concatenate(
            [np.eye(size)[codes[:, number]] for number, size in enumerate(self.sizes)], axis=1
        )
