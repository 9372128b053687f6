"""The columns of a table as codes that a private fit may know: public, or found by noisy counts.

A cell of a column is in one of its `leaves`: a value that many rows have, a range of numbers, the
missing values, or all rare values together. From a leaf a new value is drawn. Whatever a leaf holds
(words, ends of ranges, counts) is a noisy answer or follows from noisy answers.
"""

import abc
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.config import CodecConfig
from tabmt.data import text_formats
from tabmt.data.arrow_types import is_text, is_time, plain_array, storage_type, value_type
from tabmt.data.missing import nan_to_null
from tabmt.data.personal import is_named_like_key
from tabmt.data.units import Grid
from tabmt.private import cells, forms
from tabmt.private.accounting import scale_of_rho
from tabmt.private.budget import Queries
from tabmt.private.forms import Form

UNKNOWN = -1  # the code of a cell that has no leaf
PART = "columns"  # of the budget
FORM_SHARE, VALUES_SHARE = 0.15, 0.85  # of what a column may spend
ROUNDS = (0.2, 0.25, 0.4)  # likewise, of the rounds in which numbers are divided
LEAST_CELLS, MOST_CELLS = 4, 64
SURE_CELL = 4.0  # standard deviations of the noise that a cell should hold
LEAST_KNOWN = 0.5  # share of the cells whose values are known, or else a column is one of ids
LEAST_RARE = 0.02  # share of rare values, for them to be a leaf of their own


@dataclass(frozen=True)
class PrivateColumn(abc.ABC):
    """A column, with the noisy number of rows of each leaf. If there are missing values, they are
    the last leaf."""

    name: str
    dtype: pa.DataType
    form: Form
    counts: np.ndarray  # (leaves,), not negative

    @property
    def has_missing(self) -> bool:
        return self.form.missing > 0

    @property
    def shares(self) -> np.ndarray:
        total = self.counts.sum()
        even = np.full(len(self.counts), 1 / len(self.counts))
        return np.asarray(self.counts / total) if total > 0 else even

    @property
    def is_ordered(self) -> bool:
        return False

    def encode(self, array: pa.ChunkedArray) -> np.ndarray:
        """The leaf of each cell of a real column, (rows,)."""
        values = read(array, self.form)
        known = np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
        codes = np.full(len(values), len(self.counts) - 1 if self.has_missing else UNKNOWN)
        codes[known] = self._encode_known(values.drop_null())
        return codes

    @abc.abstractmethod
    def _encode_known(self, known: pa.Array) -> np.ndarray: ...

    def draw(self, leaves: np.ndarray, rng: np.random.Generator) -> pa.Array:
        """A value for each leaf, in the type of the real column."""
        last = len(self.counts) - 1
        missing = (leaves == last) & self.has_missing
        values = self._draw_known(np.where(missing, 0, leaves), rng)
        values = pc.if_else(pa.array(missing), pa.scalar(None, values.type), values)
        if self.form.format is not None:
            values = text_formats.write(values, self.form.format, self.form.missing_text)
        elif self.form.missing_text is not None and is_text(values.type):
            values = pc.fill_null(values, pa.scalar(self.form.missing_text, values.type))
        if not pa.types.is_dictionary(self.dtype):
            return values.cast(self.dtype)
        # The order in which a table lists its categories may be that of its rows.
        words = pc.unique(values).drop_null()
        words = words.take(pc.sort_indices(words))
        indices = pc.index_in(values, words).cast(self.dtype.index_type)
        return pa.DictionaryArray.from_arrays(indices, words, ordered=self.dtype.ordered)

    @abc.abstractmethod
    def _draw_known(self, leaves: np.ndarray, rng: np.random.Generator) -> pa.Array: ...


@dataclass(frozen=True)
class NumberColumn(PrivateColumn):
    """Numbers and times: the leaves are ranges."""

    grid: Grid
    edges: np.ndarray

    @property
    def is_ordered(self) -> bool:
        return True

    def _encode_known(self, known: pa.Array) -> np.ndarray:
        return cells.cell_of(self.edges, units_of(self.grid, known))

    def _draw_known(self, leaves: np.ndarray, rng: np.random.Generator) -> pa.Array:
        leaves = np.minimum(leaves, len(self.edges) - 2)
        units = cells.draw_units(self.edges, leaves, rng, continuous=self.grid.continuous)
        return self.grid.values(units)


@dataclass(frozen=True)
class ValueColumn(PrivateColumn):
    """Values that many rows have; the rare ones, if they are many, are a leaf after these."""

    words: tuple[str, ...]
    has_rare: bool

    def _encode_known(self, known: pa.Array) -> np.ndarray:
        rare = len(self.words) if self.has_rare else UNKNOWN
        found = pc.index_in(as_words(known), pa.array(self.words, pa.string()))
        return np.asarray(pc.fill_null(found, rare).to_numpy(zero_copy_only=False)).astype(np.int64)

    def _draw_known(self, leaves: np.ndarray, rng: np.random.Generator) -> pa.Array:
        plain = value_type(self.dtype)
        words = pa.array(self.words or ("",), pa.string())
        drawn = words.take(pa.array(np.minimum(leaves, len(words) - 1)))
        if not self.words:
            drawn = pa.nulls(len(leaves), pa.string())
        if self.has_rare:  # each is different, so that they are rare again
            different = pa.array([f"rare {row}" for row in range(len(leaves))], pa.string())
            drawn = pc.if_else(pa.array(leaves == len(self.words)), different, drawn)
        return (drawn if is_text(plain) else drawn.cast(storage_type(plain))).cast(plain)


@dataclass(frozen=True)
class IdColumn(PrivateColumn):
    """Ids: none of them is known, and each new one is another."""

    def _encode_known(self, known: pa.Array) -> np.ndarray:
        return np.zeros(len(known), np.int64)

    def _draw_known(self, leaves: np.ndarray, rng: np.random.Generator) -> pa.Array:
        numbers = pa.array(np.arange(1, len(leaves) + 1))
        plain = value_type(self.dtype)
        if self.form.format == "integer":
            return numbers
        if not is_text(plain):
            return numbers.cast(plain)
        stem = re.sub(r"\W+", "_", self.name).strip("_") or "id"
        return pa.array([f"{stem}_{number}" for number in numbers.to_pylist()], plain)


def public_type(dtype: pa.DataType) -> pa.DataType:
    """The type of a column as private rows have it. How wide the indices of categories are depends
    on how many categories there are."""
    if not pa.types.is_dictionary(dtype):
        return dtype
    return pa.dictionary(pa.int32(), dtype.value_type, dtype.ordered)


# --- real columns ----------------------------------------------------------------------------


def read(array: pa.ChunkedArray, form: Form) -> pa.Array:
    """A real column as values of its form; a cell that is not of the form is null."""
    values = nan_to_null(plain_array(array))
    if not is_text(values.type):
        return values
    if form.missing_text is not None:
        is_missing = pc.equal(values, pa.scalar(form.missing_text, values.type))
        values = pc.if_else(is_missing, pa.scalar(None, values.type), values)
    if form.format is None:
        return values
    texts = values.cast(pa.string())
    if form.kind == "times":
        pattern = form.format.partition(":")[2]
        return pc.strptime(texts, format=pattern, unit="s", error_is_null=True)
    encoded = texts.dictionary_encode()
    words = encoded.dictionary.to_pylist()
    numbers = pa.array([_number(word) for word in words], pa.float64())
    return numbers.take(encoded.indices)


def _number(word: str) -> float | None:
    is_plain = re.fullmatch(text_formats.WHOLE, word) or re.fullmatch(text_formats.POINT, word)
    return float(word) if is_plain or forms.is_number_text(word) else None


def units_of(grid: Grid, known: pa.Array) -> np.ndarray:
    """Numbers in units, within what can be counted exactly; infinite ones are at the ends."""
    units = grid.units(known).astype(np.float64)
    return np.asarray(np.clip(units, *cells.limits(grid)))


def as_words(known: pa.Array) -> pa.Array:
    """Values as text, which they can be read from again."""
    if is_time(known.type):
        known = known.cast(storage_type(known.type))
    return known.cast(pa.string())


# --- from noisy answers ----------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnFinder:
    """Finds the columns of one table by noisy counts, with the same budget for each."""

    queries: Queries
    config: CodecConfig
    rho: float  # of a column
    delta: float  # of a column
    rows: float  # the noisy number of rows

    def find(self, name: str, array: pa.ChunkedArray, entries: Mapping[str, Any]) -> PrivateColumn:
        dtype = public_type(array.type)
        array = array.cast(dtype)
        rho = self.rho * FORM_SHARE
        missing_text = entries.get("missing_text")
        noisy = self.queries.counts(PART, rho, lambda: forms.count_classes(array, missing_text))
        form = forms.decide(dtype, noisy, scale_of_rho(rho), entries)
        if entries.get("kind") == "id":
            return self._ids(name, dtype, form)
        plain = value_type(dtype)
        if pa.types.is_boolean(plain) or pa.types.is_null(plain):
            return self._few(name, array, form)
        may_be_key = self.config.find_ids and is_named_like_key(name) and not is_time(plain)
        if form.kind == "words" or (may_be_key and _is_whole(plain, form)):
            may_be_ids = self.config.find_ids and entries.get("kind") != "categorical"
            return self._values(name, array, form, may_be_ids=may_be_ids)
        return self._numbers(name, array, form)

    def _ids(self, name: str, dtype: pa.DataType, form: Form) -> PrivateColumn:
        counts = np.array([max(form.known, 1.0), *self._missing(form)])
        if form.format != "integer":
            form = replace(form, format=None)
        return IdColumn(name, dtype, form, counts)

    def _missing(self, form: Form) -> list[float]:
        return [form.missing] if form.missing > 0 else []

    def _few(self, name: str, array: pa.ChunkedArray, form: Form) -> PrivateColumn:
        """Values that are public: true and false, or none."""
        is_null = pa.types.is_null(value_type(array.type))
        words = () if is_null else ("false", "true")

        def exact() -> np.ndarray:
            found = pc.index_in(as_words(read(array, form).drop_null()), pa.array(words))
            return np.bincount(found.to_numpy(), minlength=2)

        counts = [0.0]
        if words:
            counts = self.queries.counts(PART, self.rho * VALUES_SHARE, exact).clip(0).tolist()
        own = np.array([*counts, *self._missing(form)])
        return ValueColumn(name, array.type, form, own, words, False)

    def _values(
        self, name: str, array: pa.ChunkedArray, form: Form, *, may_be_ids: bool
    ) -> PrivateColumn:
        """Values that so many rows have that one row more or less does not show."""

        def exact() -> dict[str, int]:
            counted = pc.value_counts(as_words(read(array, form).drop_null()))
            words = counted.field("values").to_pylist()
            return dict(zip(words, counted.field("counts").to_pylist(), strict=True))

        rho = self.rho * VALUES_SHARE
        found = self.queries.frequent(PART, rho, self.delta, exact)
        kept = sum(found.values())
        if may_be_ids and kept < LEAST_KNOWN * form.known:
            return self._ids(name, array.type, form)
        rare = form.known - kept
        sure = SURE_CELL * scale_of_rho(rho) * max(1, len(found)) ** 0.5
        stored = is_text(value_type(array.type)) and self.config.protect > 0
        has_rare = stored and rare > max(sure, LEAST_RARE * form.known)
        counts = [*found.values(), *([rare] if has_rare else []), *self._missing(form)]
        return ValueColumn(
            name, array.type, form, np.array(counts or [1.0]), tuple(found), has_rare
        )

    def _numbers(self, name: str, array: pa.ChunkedArray, form: Form) -> PrivateColumn:
        grid = _grid(array.type, form)
        edges, noisy = cells.first_edges(grid), np.zeros(0)
        for number, share in enumerate(ROUNDS):
            rho = self.rho * share
            current = edges

            def exact(current: np.ndarray = current) -> np.ndarray:
                known = read(array, form).drop_null()
                return cells.count_cells(current, units_of(grid, known))

            noisy = self.queries.counts(PART, rho, exact)
            if number < len(ROUNDS) - 1:
                scale = scale_of_rho(self.rho * ROUNDS[number + 1])
                most = int(np.clip(self.rows / (SURE_CELL * scale), LEAST_CELLS, MOST_CELLS))
                edges = cells.divide(
                    edges, noisy, scale_of_rho(rho), most, continuous=grid.continuous
                )
        counts = np.array([*_denoised(noisy, form.known), *self._missing(form)])
        return NumberColumn(name, array.type, form, counts, grid, edges)


def _is_whole(dtype: pa.DataType, form: Form) -> bool:
    return bool(pa.types.is_integer(dtype)) or (is_text(dtype) and form.format == "integer")


def _grid(dtype: pa.DataType, form: Form) -> Grid:
    """The grid of a column of numbers or times, by its type and its form."""
    plain = value_type(dtype)
    if form.format is not None:
        if form.kind == "times":
            assert form.time_step is not None
            stamps = pa.timestamp("s")
            return Grid(stamps, 0, forms.step_of(stamps, form.time_step))
        return Grid(pa.float64(), form.decimals)
    if form.kind == "times":
        assert form.time_step is not None
        zoned = getattr(plain, "tz", None) is not None
        return Grid(plain, 0, forms.step_of(plain, form.time_step), local=zoned)
    return Grid(plain, form.decimals)


def _denoised(noisy: np.ndarray, total: float) -> np.ndarray:
    """Counts that are not negative and add up to a total: the nearest ones (Duchi et al. 2008)."""
    if total <= 0:
        return noisy.clip(0)
    ordered = np.sort(noisy)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(noisy) + 1)
    last = np.flatnonzero(ordered > excess)[-1]
    return np.asarray((noisy - excess[last]).clip(0))
