"""How the metrics see a table: numbers as floats, categories as codes, and both as one matrix.

A `MetricEncoder` is fitted on the real training table: it decides which columns are compared,
scales numbers by the training rows and assigns codes to categories. Every table is encoded in the
same way.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data.plain_values import as_numbers, as_words
from tabmt.data.schema import Schema
from tabmt.errors import UserError

MOST_CATEGORIES = 100  # of a column that have a column of the matrix; the others share one
ROBUST_WIDTH = 4.0  # so that most numbers lie within 1 of each other, as two categories do
MOST_ROBUST = 50.0  # of asinh, which is 50 for a number 10^21 units away from the median


@dataclass(frozen=True)
class EncodedTable:
    """One table. NaN and code -1 are missing; a category that is not in the training rows has the
    code after the last."""

    numbers: dict[str, np.ndarray]  # column -> (rows,) float64
    codes: dict[str, np.ndarray]  # column -> (rows,) int64
    encoder: "MetricEncoder"
    unseen: dict[str, np.ndarray] = field(default_factory=dict)  # column -> (rows,) their text

    def __len__(self) -> int:
        return len(next(iter((self.numbers | self.codes).values())))

    @property
    def names(self) -> tuple[str, ...]:
        return self.encoder.names

    def take(self, rows: np.ndarray) -> "EncodedTable":
        return EncodedTable(
            {name: values[rows] for name, values in self.numbers.items()},
            {name: codes[rows] for name, codes in self.codes.items()},
            self.encoder,
            {name: words[rows] for name, words in self.unseen.items()},
        )

    def missing(self, name: str) -> np.ndarray:
        """(rows,) bool."""
        return np.isnan(self.numbers[name]) if name in self.numbers else self.codes[name] < 0

    def frame(self) -> pd.DataFrame:
        """For CatBoost: numbers, and categories as text; a missing category is one too.

        Categories that are not in the training rows keep their text. With one word for all of them,
        a detector would recognise test rows by this word, whatever they are compared with.
        """
        columns = {}
        for name in self.names:
            if name in self.numbers:
                columns[name] = pd.Series(self.numbers[name])
            else:
                categories = self.encoder.categories[name]
                words = np.array([*categories, "", "(missing)"], dtype=object)[self.codes[name]]
                if name in self.unseen:
                    is_unseen = self.codes[name] == len(categories)
                    words = np.where(is_unseen, self.unseen[name], words)
                columns[name] = pd.Series(words, dtype="object")
        return pd.DataFrame(columns)

    @cached_property
    def matrix(self) -> np.ndarray:
        """(rows, dimensions) float32: numbers in [0, 1] by the training rows, categories one-hot
        over sqrt 2, so that two different categories are as far apart as the ends of a range.

        A missing number is replaced by the training median, and a separate column marks it. Numbers
        far outside the training range are clipped to within one range of it.
        """
        columns = []
        for name, values in self.numbers.items():
            low, high, median = self.encoder.scales[name]
            known = ~np.isnan(values)
            finite = np.clip(np.where(known, values, median), low - (high - low), 2 * high - low)
            columns += [(finite - low) / ((high - low) or 1.0), ~known]
        for name in self.codes:
            hot = self._hot(name)
            columns.extend((hot == i) / np.sqrt(2) for i in range(self.encoder.dimensions(name)))
        return np.stack(columns, axis=1).astype(np.float32)

    @cached_property
    def robust_matrix(self) -> np.ndarray:
        """(rows, dimensions) float32, as `matrix`, but in units that a few extreme values cannot
        change: asinh of the distance to the median, counted in median deviations.

        So neighbouring numbers stay apart, whatever the largest number of the column is.
        """
        width = sum(map(self.encoder.dimensions, self.names))
        matrix = np.zeros((len(self), width), np.float32)
        for name, columns in self.encoder.robust_slices.items():
            if name in self.codes:
                hot = columns.start + self._hot(name)
                matrix[np.arange(len(hot)), hot] = 1 / np.sqrt(2)
                continue
            values = self.numbers[name]
            median, unit = self.encoder.scales[name][2], self.encoder.units[name]
            known = ~np.isnan(values)
            with np.errstate(over="ignore"):  # infinity is clipped
                robust = np.arcsinh((np.where(known, values, median) - median) / unit)
            matrix[:, columns.start] = np.clip(robust, -MOST_ROBUST, MOST_ROBUST) / ROBUST_WIDTH
            matrix[:, columns.start + 1] = ~known
        return matrix

    def robust_columns(self, names: Sequence[str]) -> np.ndarray:
        """(rows, dimensions) float32: the part of `robust_matrix` that belongs to some columns."""
        slices = self.encoder.robust_slices
        return np.concatenate([self.robust_matrix[:, slices[name]] for name in names], axis=1)

    def _hot(self, name: str) -> np.ndarray:
        """(rows,): which dimension of a categorical column is not 0."""
        count, codes = self.encoder.dimensions(name), self.codes[name]
        return np.where(codes < 0, count - 1, np.minimum(codes, count - 2))


@dataclass(frozen=True)
class MetricEncoder:
    names: tuple[str, ...]  # the columns that count, in the table's order
    categories: dict[str, list[str]]  # column -> its values, most frequent in training first
    scales: dict[str, tuple[float, float, float]]  # number column -> low, high, median
    units: dict[str, float]  # number column -> median distance to the median, of other numbers
    left_out: dict[str, str]  # column -> why
    schema: Schema

    @classmethod
    def fit(cls, train: pa.Table, schema: Schema) -> "MetricEncoder":
        names, categories, scales, units, left_out = [], {}, {}, {}, {}
        for column in schema.columns:
            array, name = train.column(column.name), column.name
            if column.kind == "id":
                left_out[name] = f"an id, which is generated and not learned ({column.reason})"
                continue
            if column.kind == "constant":
                left_out[name] = f"constant ({column.reason})"
                continue
            if column.kind in ("numeric", "datetime"):
                values = as_numbers(array, column)
                finite = values[np.isfinite(values)]
                if len(finite) == 0:  # all numbers may be in rows that were set aside
                    left_out[name] = "no number in the training rows"
                    continue
                low, high = float(finite.min()), float(finite.max())
                scales[name] = (low, high, float(np.median(finite)))
                units[name] = _median_deviation(finite)
            else:
                counts = pc.value_counts(as_words(array, column).drop_null())
                order = np.argsort(-counts.field("counts").to_numpy(), kind="stable")
                categories[name] = counts.field("values").take(pa.array(order)).to_pylist()
            names.append(name)
        if not names:
            raise UserError(
                "No column of the training table varies, so there is nothing to evaluate."
            )
        return cls(tuple(names), categories, scales, units, left_out, schema)

    def dimensions(self, name: str) -> int:
        """How many numbers of a vector a column has: a number, or one for each category, one for
        all other categories; and one for missing values."""
        if name in self.scales:
            return 2
        return min(len(self.categories[name]), MOST_CATEGORIES) + 2

    @cached_property
    def robust_slices(self) -> dict[str, slice]:
        """Column -> its dimensions in `robust_matrix`."""
        ends = np.cumsum([self.dimensions(name) for name in self.names]).tolist()
        starts = [0, *ends[:-1]]
        return {n: slice(a, b) for n, a, b in zip(self.names, starts, ends, strict=True)}

    def with_categories_of(self, table: pa.Table) -> "MetricEncoder":
        """This encoder, which also distinguishes the categories of another table."""
        categories = {}
        for name, known in self.categories.items():
            words = pc.unique(
                _in_spelling_of(known, as_words(table.column(name), self.schema[name]))
            )
            new = pc.filter(words, pc.invert(pc.is_in(words, pa.array(known, pa.string()))))
            categories[name] = [*known, *new.drop_null().to_pylist()]
        return dataclasses.replace(self, categories=categories)

    def encode(self, table: pa.Table, what: str) -> EncodedTable:
        """`what` names the table in errors."""
        if table.num_rows == 0:
            raise UserError(f"The {what} table has no rows.")
        numbers, codes, unseen = {}, {}, {}
        for name in self.names:
            if name not in table.column_names:
                raise UserError(
                    f"The {what} table has no column {name!r}; it has: "
                    f"{', '.join(table.column_names)}."
                )
            array, column = table.column(name), self.schema[name]
            if name in self.scales:
                numbers[name] = as_numbers(array, column)
            else:
                words = _in_spelling_of(self.categories[name], as_words(array, column))
                codes[name] = _codes(words, self.categories[name])
                if (codes[name] == len(self.categories[name])).any():
                    unseen[name] = words.to_numpy(zero_copy_only=False)
        return EncodedTable(numbers, codes, self, unseen)


def _median_deviation(values: np.ndarray) -> float:
    """The median distance to the median, of the numbers that are not equal to it.

    Of all numbers it would be 0 for a column of mostly zeros.
    """
    deviations = np.abs(values - np.median(values))
    deviations = deviations[deviations > 0]
    return float(np.median(deviations)) if len(deviations) else 1.0


def _codes(words: pa.Array, categories: list[str]) -> np.ndarray:
    """The number of each word's category, -1 where it is missing, (rows,)."""
    known = pa.array(categories, pa.string())
    index = pc.index_in(words, known)
    unseen = pc.and_(pc.is_valid(words), pc.is_null(index))
    index = pc.if_else(unseen, len(known), pc.fill_null(index, -1))
    return np.asarray(index.to_numpy(zero_copy_only=False).astype(np.int64))


def _in_spelling_of(categories: list[str], words: pa.Array) -> pa.Array:
    """Booleans and whole numbers of another tool, in the spelling of the real table."""
    if {word.lower() for word in categories} <= {"true", "false"}:
        spelling = {word.lower(): word for word in categories}
        lower = pc.utf8_lower(words)
        for plain, real in spelling.items():
            words = pc.if_else(pc.fill_null(pc.equal(lower, plain), False), real, words)
        return words
    if all(word.lstrip("-").isdigit() for word in categories):
        return pc.replace_substring_regex(words, r"^(-?[0-9]+)\.0+$", r"\1")
    return words
