"""How the metrics see a table: numbers as floats, categories as codes, and both as one matrix.

A `Lens` is ground from the real training table: it decides which columns count, scales numbers
by the training rows and numbers the categories. Every table is looked at through the same lens.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data.schema import Schema
from tabmt.data.values import as_numbers, as_words
from tabmt.errors import UserError

MOST_CATEGORIES = 100  # of a column that the matrix tells apart; the rest count as one


@dataclass(frozen=True)
class View:
    """One table through a lens. NaN and code -1 are gaps; a category that training never saw
    has the code after the last."""

    numbers: dict[str, np.ndarray]  # column -> (rows,) float64
    codes: dict[str, np.ndarray]  # column -> (rows,) int64
    lens: "Lens"

    def __len__(self) -> int:
        return len(next(iter((self.numbers | self.codes).values())))

    def take(self, rows: np.ndarray) -> "View":
        return View(
            {name: values[rows] for name, values in self.numbers.items()},
            {name: codes[rows] for name, codes in self.codes.items()},
            self.lens,
        )

    def gaps(self, name: str) -> np.ndarray:
        """(rows,) bool."""
        return np.isnan(self.numbers[name]) if name in self.numbers else self.codes[name] < 0

    def frame(self) -> pd.DataFrame:
        """For CatBoost: numbers, and categories as text; a gap of a category is one too."""
        columns = {}
        for name in self.lens.names:
            if name in self.numbers:
                columns[name] = pd.Series(self.numbers[name])
            else:
                words = np.array([*self.lens.words[name], "(unseen)", "(gap)"], dtype=object)
                columns[name] = pd.Series(words[self.codes[name]], dtype="object")
        return pd.DataFrame(columns)

    @cached_property
    def matrix(self) -> np.ndarray:
        """(rows, dimensions) float32: numbers in [0, 1] by the training rows, categories one-hot
        over sqrt 2, so that two different categories are as far apart as the ends of a range.
        A number's gap sits at the training median, with a column of its own that says so. Numbers
        far outside the training range are brought within one range of it.
        """
        parts = []
        for name, values in self.numbers.items():
            low, high, median = self.lens.scales[name]
            known = ~np.isnan(values)
            finite = np.clip(np.where(known, values, median), low - (high - low), 2 * high - low)
            parts += [(finite - low) / ((high - low) or 1.0), ~known]
        for name, codes in self.codes.items():
            count = min(len(self.lens.words[name]), MOST_CATEGORIES) + 2  # others, and gaps
            hot = np.where(codes < 0, count - 1, np.minimum(codes, count - 2))
            parts.extend((hot == place) / np.sqrt(2) for place in range(count))
        return np.stack(parts, axis=1).astype(np.float32)


@dataclass(frozen=True)
class Lens:
    names: tuple[str, ...]  # the columns that count, in the table's order
    kinds: dict[str, str]  # column -> number or category
    words: dict[str, list[str]]  # category column -> its values, most frequent in training first
    scales: dict[str, tuple[float, float, float]]  # number column -> low, high, median
    left_out: dict[str, str]  # column -> why
    schema: Schema

    @classmethod
    def grind(cls, train: pa.Table, schema: Schema) -> "Lens":
        kinds, words, scales, left_out = {}, {}, {}, {}
        for column in schema.columns:
            array = train.column(column.name)
            if column.kind == "id":
                left_out[column.name] = f"an id is regenerated, not learned ({column.reason})"
            elif column.kind == "constant":
                left_out[column.name] = f"constant ({column.reason})"
            elif column.kind in ("numeric", "datetime"):
                values = as_numbers(array, column)
                finite = values[np.isfinite(values)]
                if len(finite) == 0:  # all numbers may be in the rows that were set aside
                    left_out[column.name] = "no number in the training rows"
                    continue
                low, high = float(finite.min()), float(finite.max())
                scales[column.name] = (low, high, float(np.median(finite)))
                kinds[column.name] = "number"
            else:
                counts = pc.value_counts(as_words(array, column).drop_null())
                order = np.argsort(-counts.field("counts").to_numpy(), kind="stable")
                values = counts.field("values").take(pa.array(order)).to_pylist()
                words[column.name] = values
                kinds[column.name] = "category"
        if not kinds:
            raise UserError("No column of the training table varies, so there is nothing to judge.")
        return cls(tuple(kinds), kinds, words, scales, left_out, schema)

    def view(self, table: pa.Table, what: str) -> View:
        """`what` names the table in errors."""
        if table.num_rows == 0:
            raise UserError(f"The {what} table has no rows.")
        numbers, codes = {}, {}
        columns = {column.name: column for column in self.schema.columns}
        for name in self.names:
            if name not in table.column_names:
                raise UserError(
                    f"The {what} table has no column {name!r}; it has: "
                    f"{', '.join(table.column_names)}."
                )
            array = table.column(name)
            if self.kinds[name] == "number":
                numbers[name] = as_numbers(array, columns[name])
            else:
                found = _spelled_alike(as_words(array, columns[name]), self.words[name])
                known = pa.array(self.words[name], pa.string())
                index = pc.index_in(found, known)
                # A value that training never saw is the next code.
                unseen = pc.and_(pc.is_valid(found), pc.is_null(index))
                index = pc.if_else(unseen, len(known), pc.fill_null(index, -1))
                codes[name] = index.to_numpy(zero_copy_only=False).astype(np.int64)
        return View(numbers, codes, self)


def _spelled_alike(words: pa.Array, known: list[str]) -> pa.Array:
    """Another tool's spelling of truth values and whole numbers, in the real table's."""
    if {word.lower() for word in known} <= {"true", "false"}:
        spelling = {word.lower(): word for word in known}
        lower = pc.utf8_lower(words)
        for plain, real in spelling.items():
            words = pc.if_else(pc.fill_null(pc.equal(lower, plain), False), real, words)
        return words
    if all(word.lstrip("-").isdigit() for word in known):
        return pc.replace_substring_regex(words, r"^(-?[0-9]+)\.0+$", r"\1")
    return words
