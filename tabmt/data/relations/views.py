"""Views of some rows, in which relations are searched: numbers, codes, and missing values.

A relation must hold in nearly all rows, and must not be due to chance: in rows whose columns are
shuffled independently, it must fail often (`is_evidence`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data.arrow_types import is_number, is_time, storage_type
from tabmt.data.schema import Column
from tabmt.data.typed_columns import TypedColumn
from tabmt.data.units import EXACT

LEAST_SHARE = 0.999  # of the rows in which a relation must hold
LEAST_EVIDENCE = 30  # rows in which it would fail if its columns were independent ...
MOST_LUCK = 0.02  # ... of which this share may fail nevertheless
USUAL_SHARE = 0.9  # of numbers that have the usual decimals of their column
MOST_DECIMALS = 6  # with which sums are exact
OFF_GRID = 1e-4  # distance from a whole number, in units
MISSING = -1  # the code of a missing value


def is_evidence(failures: int, chance_failures: int, rows: int) -> bool:
    """Whether a relation that fails in so few rows is more than chance.

    `chance_failures` is the number of rows in which it fails when its columns are shuffled.
    """
    return (
        rows > 0
        and failures <= (1 - LEAST_SHARE) * rows
        and chance_failures >= LEAST_EVIDENCE
        and failures <= MOST_LUCK * chance_failures
    )


@dataclass(frozen=True)
class ColumnView:
    """A column in some rows."""

    column: Column
    values: pa.Array
    known: np.ndarray  # (n,) bool

    @classmethod
    def of(cls, typed: TypedColumn) -> "ColumnView":
        return cls(typed.column, typed.values, typed.is_known)

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def is_learned(self) -> bool:
        return self.column.kind in ("numeric", "datetime", "categorical")

    @property
    def has_numbers(self) -> bool:
        """Whether the column can be a term of a sum."""
        return self.is_learned and is_number(self.values.type)

    @property
    def is_ordered(self) -> bool:
        return self.is_learned and (is_number(self.values.type) or is_time(self.values.type))

    @cached_property
    def numbers(self) -> np.ndarray:
        """(n,) float64, NaN where missing; times as they are stored."""
        values = self.values
        if is_time(values.type):
            values = values.cast(storage_type(values.type))
        floats = values.cast(pa.float64(), safe=False)
        return np.asarray(floats.to_numpy(zero_copy_only=False), dtype=np.float64)

    @cached_property
    def decimals(self) -> int | None:
        """The decimals that nearly all numbers have, 0 for whole numbers; None if there are too
        many."""
        if pa.types.is_integer(self.values.type):
            return 0
        numbers = self.numbers[self.known]
        for decimals in range(MOST_DECIMALS + 1):
            scaled = numbers * 10.0**decimals
            if np.mean(np.abs(scaled - np.round(scaled)) <= OFF_GRID) >= USUAL_SHARE:
                return decimals
        return None

    @cached_property
    def encoded(self) -> pa.DictionaryArray:
        return pc.dictionary_encode(self.values)

    @cached_property
    def codes(self) -> np.ndarray:
        """(n,) a number for each distinct value, MISSING where there is none."""
        indices = self.encoded.indices.fill_null(MISSING)
        return np.asarray(indices.to_numpy(zero_copy_only=False)).astype(np.int64)

    @property
    def distinct(self) -> int:
        return len(self.encoded.dictionary)

    @cached_property
    def flags(self) -> np.ndarray | None:
        """(n,) bool, if every value is known and is 0 or 1, and both occur."""
        if not self.is_learned or not self.known.all() or self.distinct != 2:
            return None
        if not (self.has_numbers or pa.types.is_boolean(self.values.type)):
            return None
        numbers = self.numbers
        return numbers == 1 if bool(np.isin(numbers, (0.0, 1.0)).all()) else None


Views = Mapping[str, ColumnView]


def is_exact(numbers: np.ndarray) -> bool:
    """Whether numbers are finite and small enough to calculate with exactly."""
    return bool(np.isfinite(numbers).all() and np.abs(numbers).max(initial=0.0) < EXACT / 1000)
