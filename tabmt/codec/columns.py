"""One column as integer codes, and back: a codec for each kind of column.

A codec works on known values in the column's own type; a `CodedColumn` adds the missing values.
Whatever depends on the kind of a column is a method here: what a condition selects, which values a
rule is tried with, what the expected value is, how the codec is stored.
"""

import abc
import dataclasses
import difflib
import json
import logging
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.codec.identifiers import TURNS, Identifiers
from tabmt.codec.quantize import How, Quantized, quantize
from tabmt.config import CodecConfig, most_bins
from tabmt.data import text_formats
from tabmt.data.arrow_types import is_number, is_text, is_time, parse_type, storage_type, value_type
from tabmt.data.missing import missing_scalar
from tabmt.data.personal import find_form
from tabmt.data.protection import ValueCounts, can_be_stored
from tabmt.data.schema import MOST_TEXT, Column
from tabmt.data.typed_columns import TypedColumn
from tabmt.data.units import Grid, in_zone
from tabmt.data.user_values import is_whole_day, read_value, to_decimal, type_name, wrong_type
from tabmt.errors import UserError
from tabmt.json_files import MOST_DIGITS, convert, parse_texts, require
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

Bounds = tuple[np.ndarray, np.ndarray]  # the lowest and highest number allowed, for each row
Arrays = Mapping[str, np.ndarray]

CANDIDATES_PER_BIN = 16
LAST_RESORT = 1e-6  # weight of a candidate that is taken only if no other satisfies the rules


@dataclass(frozen=True)
class Decoding:
    """How codes become values. Rows are numbered from `first_row`, for identifiers."""

    rng: np.random.Generator
    how: How = "inside"
    within: Bounds | None = None  # of numbers, in units
    first_row: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Selection:
    """What a condition leaves of a column's codes."""

    weights: np.ndarray  # (K,) in [0, 1]: the allowed share of each code
    low: float = -math.inf  # numbers lie from here ...
    high: float = math.inf  # ... to here, in units ...
    choices: np.ndarray | None = None  # ... or are one of these, in units

    @property
    def is_one_code(self) -> bool:
        return int((self.weights > 0).sum()) == 1

    def allows(self, units: np.ndarray) -> np.ndarray:
        """(n,) bool: which numbers the condition allows."""
        if self.choices is not None:
            return np.isin(units, self.choices)
        return (units >= self.low) & (units <= self.high)


class Range(NamedTuple):
    """What users ask for as a range. A bound that is None is open-ended."""

    low: Any
    high: Any
    excludes_low: bool
    excludes_high: bool

    def __str__(self) -> str:
        low = "" if self.low is None else f" from {self.low}"
        high = "" if self.high is None else f" to {self.high}"
        return low + high


class Candidates(NamedTuple):
    """Values with which rules are tried: several for each bin, one for each other code."""

    values: pa.Array  # (V,)
    units: np.ndarray  # (V,), zero for categories
    codes: np.ndarray  # (V,)
    weights: np.ndarray  # (V,)


class ColumnCodec(abc.ABC):
    """Codes 0 .. size-1 for the known values of one column."""

    kind: ClassVar[str]
    has_rare: bool = False  # whether there are values that are not stored

    @property
    @abc.abstractmethod
    def size(self) -> int: ...

    @property
    @abc.abstractmethod
    def value_type(self) -> pa.DataType: ...

    @abc.abstractmethod
    def encode(self, known: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Codes of values, and which values are unseen, (n,) each. Unseen values get the nearest
        code, or any."""

    @abc.abstractmethod
    def decode(self, codes: np.ndarray, column: Column, decoding: Decoding) -> pa.Array: ...

    @abc.abstractmethod
    def unseen_error(self, column: Column, known: pa.Array) -> str | None:
        """What to say about unseen values; None if the nearest code may stand for them."""

    @abc.abstractmethod
    def select_values(self, column: Column, values: tuple[Any, ...]) -> Selection:
        """The codes of some values that a user asks for."""

    @abc.abstractmethod
    def select_range(self, column: Column, wanted: Range) -> Selection:
        """The codes of a range that a user asks for."""

    @abc.abstractmethod
    def candidates(
        self, weights: np.ndarray, selection: Selection | None, rng: np.random.Generator
    ) -> Candidates:
        """Values of the codes that have weight, (K,), for trying rules."""

    @abc.abstractmethod
    def labels(self) -> list[str]:
        """Each code as a person would write it."""

    @abc.abstractmethod
    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and JSON that together are the codec."""

    @classmethod
    @abc.abstractmethod
    def from_parts(cls, arrays: Arrays, entry: Mapping[str, Any]) -> "ColumnCodec":
        """The inverse of `to_parts`. Raises ValueError if the parts do not fit together."""

    @property
    def categories(self) -> pa.Array | None:
        """The value of each code, if a code has just one."""
        return None

    def at_centres(self, *, on_grid: bool = False) -> "ColumnCodec":
        """A codec for generation, whose numbers are the centres of bins, as in the paper."""
        return self

    @property
    def is_empty(self) -> bool:
        """Whether every value of the column is missing."""
        return False

    @property
    def rare_code(self) -> int | None:
        """The code of all rare values, if there is one."""
        return None

    @property
    def is_drawn(self) -> np.ndarray:
        """(size,) bool: which codes may be generated."""
        return np.ones(self.size, bool)

    # Only numbers have an order, and more than one value to a code.

    @property
    def ratios(self) -> np.ndarray | None:
        """Positions of ordered codes in [0, 1] (eq. 4); None if the codes have no order."""
        return None

    @property
    def is_bin(self) -> np.ndarray | None:
        """(size,) bool: which ordered codes are ranges of numbers; None if there is no order."""
        return None

    @property
    def numeric(self) -> "NumericCodec | None":
        """This codec, if its values are numbers on a grid."""
        return None

    def bounds(
        self, selection: Selection, codes: np.ndarray, rng: np.random.Generator
    ) -> Bounds | None:
        """Where the numbers of drawn codes have to lie."""
        return None

    def log_shares(self, known: pa.Array, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log of the share that values have of their codes, and which values have none."""
        return np.zeros(len(codes)), np.zeros(len(codes), bool)

    def expected_values(self, probabilities: np.ndarray) -> pa.Array | None:
        """The expected value under probabilities of the codes, (n, size); None for categories."""
        return None


# --- numbers, dates and times --------------------------------------------------------------


@dataclass(frozen=True)
class GridEntry:
    """What a model file holds of a `Grid`, and of the arrays beside it."""

    codec: str
    dtype: str
    decimals: int | None
    step: int
    offset: int
    local: bool = False


@dataclass(frozen=True)
class NumericCodec(ColumnCodec):
    """Numbers, dates and times: a grid, and the codes of its units."""

    grid: Grid
    codes: Quantized

    kind = "numeric"
    ARRAYS: ClassVar = (
        "centres", "atom", "edges", "knot_bin", "knot_share", "knot_value", "round_steps",
        "round_shares",
    )  # fmt: skip

    @property
    def size(self) -> int:
        return self.codes.size

    @property
    def value_type(self) -> pa.DataType:
        return self.grid.dtype

    @property
    def ratios(self) -> np.ndarray:
        return self.codes.ratios

    @property
    def is_bin(self) -> np.ndarray:
        return ~self.codes.atom

    @property
    def numeric(self) -> "NumericCodec":
        return self

    def encode(self, known: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        return self.codes.encode(self.grid.units(known))

    def decode(self, codes: np.ndarray, column: Column, decoding: Decoding) -> pa.Array:
        if decoding.how == "centre" and decoding.within is None and self.grid.is_float:
            return self.grid.values(self.codes.centres[codes])  # as it is, not on the grid
        return self.grid.values(self.decode_units(codes, decoding))

    def decode_units(self, codes: np.ndarray, decoding: Decoding) -> np.ndarray:
        return self.codes.decode(codes, decoding.rng, decoding.how, decoding.within)

    def at_centres(self, *, on_grid: bool = False) -> "NumericCodec":
        codes = self.codes.centres_only(exact=self.grid.is_float and not on_grid)
        return dataclasses.replace(self, codes=codes)

    def unseen_error(self, column: Column, known: pa.Array) -> None:
        return None

    def select_values(self, column: Column, values: tuple[Any, ...]) -> Selection:
        scalars = pa.array(
            [read_value(v, column, self.value_type) for v in values], self.grid.dtype
        )
        units = np.unique(self.grid.units(scalars))
        if not self.grid.values(units).equals(_sorted_distinct(scalars)):
            listed = ", ".join(str(value) for value in values)
            raise UserError(
                f"The condition on column {column.name!r} asks for {listed}, but its values are "
                f"{_precision(column)}."
            )
        own, outside = self.codes.encode(units)
        if outside.any():
            unit = units[outside][0]
            least, most = (self._show(end) for end in self.codes.extent)
            raise UserError(
                f"The condition on column {column.name!r} asks for {self._show(unit)}, which the "
                f"model cannot generate; {self._neighbours(unit)} (range {least} to {most})."
            )
        if len(units) == 1:
            return Selection(np.bincount(own, minlength=self.size).astype(float), choices=units)
        weights = np.bincount(own, self._point_weights(units), minlength=self.size)
        return Selection(np.clip(weights, 0.0, 1.0), choices=units)

    def select_range(self, column: Column, wanted: Range) -> Selection:
        low, high = -math.inf, math.inf
        if wanted.low is not None:
            low = self._bound(column, wanted.low)
        if wanted.high is not None:
            high = self._bound(column, wanted.high, to_end_of_day=not wanted.excludes_high)
        if self.grid.continuous:
            low = np.nextafter(low, math.inf) if wanted.excludes_low else low
            high = np.nextafter(high, -math.inf) if wanted.excludes_high else high
        else:
            if math.isfinite(low):
                low = math.floor(low) + 1 if wanted.excludes_low else math.ceil(low)
            if math.isfinite(high):
                high = math.ceil(high) - 1 if wanted.excludes_high else math.floor(high)
        weights = self.codes.shares(np.array([low]), np.array([high]))[0]
        if not (weights > 0).any():
            least, most = self.codes.extent
            known = f"its range is {self._show(least)} to {self._show(most)}"
            if least <= low <= high <= most:  # between two values, such as the centres of bins
                known = self._neighbours(low)
            raise UserError(_empty_range(column, wanted, known))
        return Selection(weights, float(low), float(high))

    def _bound(self, column: Column, value: Any, *, to_end_of_day: bool = False) -> float:
        """A bound in units, which need not be a value of the column."""
        dtype = self.grid.dtype
        if is_time(dtype):
            scalar = read_value(value, column, dtype)
            # A range of timestamps up to a day includes that day: it ends before the next one.
            extended = to_end_of_day and pa.types.is_timestamp(dtype) and is_whole_day(value)
            if extended:
                local = scalar if dtype.tz is None else pc.local_timestamp(scalar)
                scalar = pc.add(local, pa.scalar(86_400, pa.duration("s")).cast(_duration(dtype)))
                scalar = scalar if dtype.tz is None else in_zone(scalar, dtype.tz)
            raw = int(self.grid.raw(pa.array([scalar.as_py()], dtype))[0]) - extended
            return (raw - self.grid.offset) / self.grid.step
        number = to_decimal(value)
        if number is None:
            raise UserError(wrong_type(value, column, dtype))
        if pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
            digits = dtype.scale if pa.types.is_decimal(dtype) else self.grid.decimals
            return float(number if digits is None else number.scaleb(digits))
        return float((number - self.grid.offset) / self.grid.step)

    def bounds(self, selection: Selection, codes: np.ndarray, rng: np.random.Generator) -> Bounds:
        if selection.choices is None:
            return np.full(len(codes), selection.low), np.full(len(codes), selection.high)
        own, _ = self.codes.encode(selection.choices)
        weights = self._point_weights(selection.choices)
        picked = np.zeros(len(codes))
        for code in np.unique(codes):
            here = np.flatnonzero(own == code)
            if len(here) == 0:  # the missing code
                continue
            rows = np.flatnonzero(codes == code)
            shares = weights[here] / weights[here].sum()
            picked[rows] = rng.choice(selection.choices[here], len(rows), p=shares)
        return picked, picked

    def _point_weights(self, units: np.ndarray) -> np.ndarray:
        own, _ = self.codes.encode(units)
        return np.asarray(np.maximum(self.codes.point_shares(units, own), 1e-12))

    def candidates(
        self, weights: np.ndarray, selection: Selection | None, rng: np.random.Generator
    ) -> Candidates:
        allowed = np.flatnonzero(weights[: self.size] > 0)
        is_atom = self.codes.atom[allowed]
        codes = np.concatenate([allowed[is_atom], allowed[~is_atom].repeat(CANDIDATES_PER_BIN)])
        within = None if selection is None else self.bounds(selection, codes, rng)
        units = self.codes.decode(codes, rng, "inside", within)
        counts = np.bincount(codes, minlength=len(weights))
        shares = weights[codes] / counts[codes]
        if selection is None:
            ends, own = self.codes.ends()
            units, codes = np.concatenate([units, ends]), np.concatenate([codes, own])
            last = np.full(len(own), LAST_RESORT) * weights[own]
            shares = np.concatenate([shares, last])
        return Candidates(self.grid.values(units), units, codes, shares)

    def log_shares(self, known: pa.Array, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mass = self.codes.point_shares(self.grid.units(known), codes)
        return np.log(np.maximum(mass, 1e-300)), mass <= 0

    def expected_values(self, probabilities: np.ndarray) -> pa.Array:
        finite = np.isfinite(self.codes.centres)
        weights = probabilities[:, finite]
        means = weights @ self.codes.centres[finite] / weights.sum(1).clip(1e-300)
        units = np.clip(means, *self.codes.extent)
        if not self.grid.continuous:
            units = np.floor(units + 0.5)
        return self.grid.values(units)

    def labels(self) -> list[str]:
        """A value, or from..to."""
        labels, edge = [], 0
        for centre, is_atom in zip(self.codes.centres, self.codes.atom, strict=True):
            ends = [centre]
            if not is_atom:
                low, high = self.codes.edges[edge], self.codes.edges[edge + 1]
                if not self.codes.continuous:
                    is_last = edge == len(self.codes.edges) - 2
                    low, high = np.ceil(low), np.floor(high) if is_last else np.ceil(high) - 1
                ends, edge = [low, high], edge + 1
            labels.append("..".join(str(v) for v in self.grid.values(np.array(ends)).to_pylist()))
        return labels

    def _show(self, unit: float) -> Any:
        return self.grid.values(np.array([unit]))[0].as_py()

    def _neighbours(self, unit: float) -> str:
        """A clause with the values on both sides of one that no code has."""
        ends, _ = self.codes.ends()
        points = np.concatenate([self.codes.centres[self.codes.atom], ends])
        below, above = points[points < unit], points[points > unit]
        sides = [*([below.max()] if len(below) else []), *([above.min()] if len(above) else [])]
        named = " and ".join(str(self._show(side)) for side in sides)
        words = "value it can generate is" if len(sides) == 1 else "values it can generate are"
        return f"the nearest {words} {named}"

    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = {key: getattr(self.codes, key) for key in self.ARRAYS}
        return arrays, {
            "codec": self.kind,
            "dtype": str(self.grid.dtype),
            "decimals": self.grid.decimals,
            "step": self.grid.step,
            "offset": self.grid.offset,
            "local": self.grid.local,
        }

    @classmethod
    def from_parts(cls, arrays: Arrays, entry: Mapping[str, Any]) -> "NumericCodec":
        stored = convert(entry, GridEntry)
        dtype = parse_type(stored.dtype)
        grid = Grid(dtype, stored.decimals, stored.step, stored.offset, stored.local)
        require(is_number(dtype) or is_time(dtype), "the grid is not of numbers or times")
        require(stored.decimals is None or abs(stored.decimals) <= 80, "the precision is unusual")
        require(stored.decimals is not None or grid.is_float, "whole numbers are not continuous")
        require(1 <= stored.step < 2**63, "the step of a grid is not positive")
        require(abs(stored.offset) < 2**256, "the offset of a grid is too large")
        require(not stored.local or getattr(dtype, "tz", None) is not None, "there is no zone")
        require(set(arrays) == set(cls.ARRAYS), "the arrays are not those of numbers")
        for key in cls.ARRAYS:
            require(arrays[key].ndim == 1, f"the array {key} has no one dimension")
            require(arrays[key].dtype.kind in "bif", f"the array {key} holds no numbers")
            require(not np.isnan(arrays[key]).any(), f"the array {key} holds NaN")
        codes = Quantized(**{key: arrays[key] for key in cls.ARRAYS}, continuous=grid.continuous)
        require(codes.atom.dtype == bool, "atom is not boolean")
        bins = int((~codes.atom).sum())
        require(codes.centres.shape == codes.atom.shape, "centres and atoms differ in length")
        require(
            len(codes.edges) == (bins + 1 if bins else 0),
            "the number of edges does not fit that of bins",
        )
        require(
            len(codes.knot_bin) == len(codes.knot_share) == len(codes.knot_value),
            "the arrays of the knots differ in length",
        )
        require(np.array_equal(np.unique(codes.knot_bin), np.arange(bins)), "a bin has no knots")
        require(codes.size > 0, "a column of numbers has no codes")
        _check_order(codes)
        _check_range(grid, codes)
        _check_round(codes)
        return cls(grid, codes)


def _check_order(codes: Quantized) -> None:
    """Encoding and decoding search in these arrays, which therefore ascend."""
    for key in ("centres", "edges", "knot_bin", "knot_value"):
        values = getattr(codes, key)
        require(bool((values[1:] >= values[:-1]).all()), f"the array {key} does not ascend")
    shares = codes.knot_share
    require(bool(((shares >= 0) & (shares <= 1)).all()), "a share is not between 0 and 1")
    position = codes.knot_bin + shares
    require(bool((position[1:] >= position[:-1]).all()), "the shares of knots do not ascend")
    atoms = codes.centres[codes.atom]
    require(bool((atoms[1:] > atoms[:-1]).all()), "a number has two codes")


def _check_round(codes: Quantized) -> None:
    """Steps are multiples of one another, and each bin has shares of those that lie in it."""
    steps, shares = codes.round_steps, codes.round_shares
    bins = max(0, len(codes.edges) - 1)
    require(len(shares) == bins * len(steps), "the shares of steps do not fit the bins")
    if len(steps) == 0:
        return
    require(not codes.continuous, "continuous numbers have no steps")
    require(bool(np.isfinite(steps).all()) and steps[0] == 1, "the steps do not begin with 1")
    require(bool((steps[1:] > steps[:-1]).all()), "the steps do not ascend")
    require(not (steps[1:] % steps[:-1]).any(), "a step is no multiple of the one before")
    require(bool(((shares >= 0) & (shares <= 1)).all()), "a share is not between 0 and 1")
    rounded = codes.round_numbers
    assert rounded is not None
    require(bool(np.allclose(rounded.shares.sum(1), 1.0)), "the shares of steps do not add up")
    require(rounded.fits, "a bin has no number of a step that it draws")


def _check_range(grid: Grid, codes: Quantized) -> None:
    """Every number must be one that the column's type can hold."""
    for key in ("centres", "edges", "knot_value"):
        values = getattr(codes, key)
        infinite = ~np.isfinite(values)
        if grid.is_float and key == "centres":
            infinite &= ~codes.atom
        require(not infinite.any(), f"the array {key} holds infinity")
        if not grid.is_float and not pa.types.is_decimal(grid.dtype):
            most = float(np.abs(values).max(initial=0.0)) * grid.step
            require(most < 2.0**63, f"the array {key} holds numbers that are too large")


def _duration(dtype: pa.DataType) -> pa.DataType:
    return pa.duration(dtype.unit)


def _sorted_distinct(values: pa.Array) -> pa.Array:
    distinct = pc.unique(values)
    return distinct.take(pc.sort_indices(distinct))


def _precision(column: Column) -> str:
    if column.decimals is not None and column.decimals < 0:
        return f"multiples of {10**-column.decimals}"
    if column.time_step is not None:
        return f"whole {column.time_step}s"
    return f"rounded to {column.decimals} decimal{'s' * (column.decimals != 1)}"


def _empty_range(column: Column, wanted: Range, known: str) -> str:
    return (
        f"The condition on column {column.name!r} asks for values{wanted}, but the model has none "
        f"there; {known}."
    )


# --- categories, constants and identifiers -------------------------------------------------


@dataclass(frozen=True)
class ValuesEntry:
    """What a model file holds of a codec of single values, beside their arrays."""

    codec: str
    dtype: str
    has_rare: bool = False
    rare_text: str | None = None


@dataclass(frozen=True)
class CategoricalCodec(ColumnCodec):
    """Categories: one code for each value that enough rows hold, and one for all rare values.

    Rare values are not known, so their code, the last, is generated only if a text stands for it.
    """

    values: pa.Array
    dictionary: pa.Array | None = None  # the entries that the user declared, used or not
    has_rare: bool = False
    rare_text: str | None = None

    kind = "categorical"

    @property
    def size(self) -> int:
        return len(self.values) + self.has_rare

    @property
    def categories(self) -> pa.Array:
        return self.values

    @property
    def rare_code(self) -> int | None:
        return len(self.values) if self.has_rare else None

    @property
    def is_drawn(self) -> np.ndarray:
        drawn = np.ones(self.size, bool)
        if self.rare_text is None:
            drawn[len(self.values) :] = False
        return drawn

    @property
    def value_type(self) -> pa.DataType:
        return self.values.type

    def encode(self, known: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        codes = pc.fill_null(pc.index_in(known.cast(self.values.type), self.values), -1)
        integers = np.asarray(codes.to_numpy(zero_copy_only=False)).astype(np.int64)
        unseen = integers < 0
        if self.rare_code is not None:  # any other value may be one of the rare ones
            return np.where(unseen, self.rare_code, integers), np.zeros(len(integers), bool)
        return np.maximum(integers, 0), unseen

    def decode(self, codes: np.ndarray, column: Column, decoding: Decoding) -> pa.Array:
        values = self.values
        if self.rare_code is not None and (codes == self.rare_code).any():
            if self.rare_text is not None:
                values = pa.concat_arrays([values, pa.array([self.rare_text], values.type)])
            else:  # only in cells that are given, and returned as they are
                codes = np.where(codes == self.rare_code, 0, codes)
        return values.take(pa.array(codes))

    def unseen_error(self, column: Column, known: pa.Array) -> str:
        unseen = known.filter(pc.invert(pc.is_in(known, self.values)))
        count, distinct = len(unseen), pc.count_distinct(unseen).as_py()
        cells = f"{count:,} cell{'s' * (count != 1)} with {distinct:,}"
        return (
            f"Column {column.name!r} has {cells} value{'s' * (distinct != 1)} that the model does "
            f"not know; it knows {len(self.values):,}. Remove these rows, or leave the cells empty."
        )

    def select_values(self, column: Column, values: tuple[Any, ...]) -> Selection:
        if self.rare_text is None:
            return _select_categories(self.values, column, values)
        word = pa.array([self.rare_text], self.values.type)
        return _select_categories(pa.concat_arrays([self.values, word]), column, values)

    def select_range(self, column: Column, wanted: Range) -> Selection:
        return _select_category_range(self.values, column, wanted)

    def candidates(
        self, weights: np.ndarray, selection: Selection | None, rng: np.random.Generator
    ) -> Candidates:
        return _single_candidates(self.values, weights)

    def labels(self) -> list[str]:
        rare = "(rare)" if self.rare_text is None else self.rare_text
        return [str(value) for value in self.values.to_pylist()] + [rare] * self.has_rare

    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, entry = _values_to_parts(self.kind, self.values, self.dictionary)
        return arrays, {**entry, "has_rare": self.has_rare, "rare_text": self.rare_text}

    @classmethod
    def from_parts(cls, arrays: Arrays, entry: Mapping[str, Any]) -> "CategoricalCodec":
        values, dictionary = _values_from_parts(arrays, entry)
        require(len(values) > 0, "a categorical column has no values")
        stored = convert(entry, ValuesEntry)
        return cls(values, dictionary, stored.has_rare, stored.rare_text)


@dataclass(frozen=True)
class ConstantCodec(ColumnCodec):
    """One value, or only missing values."""

    values: pa.Array  # one value, or none
    dictionary: pa.Array | None = None  # as in CategoricalCodec
    has_rare: bool = False  # whether there may have been values, which are not stored

    kind = "constant"
    size = 1

    @property
    def value_type(self) -> pa.DataType:
        return self.values.type

    @property
    def categories(self) -> pa.Array:
        return self.values

    @property
    def is_empty(self) -> bool:
        return len(self.values) == 0

    def encode(self, known: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        codes = np.zeros(len(known), np.int64)
        if self.is_empty:
            return codes, np.full(len(known), not self.has_rare)
        differ = pc.not_equal(known, self.values[0])
        return codes, np.asarray(differ.to_numpy(zero_copy_only=False), bool)

    def decode(self, codes: np.ndarray, column: Column, decoding: Decoding) -> pa.Array:
        if self.is_empty:
            return pa.nulls(len(codes), self.values.type)
        return pa.repeat(self.values[0], len(codes))

    def unseen_error(self, column: Column, known: pa.Array) -> str:
        only = "only missing values" if self.is_empty else "a single value"
        return (
            f"Column {column.name!r} had {only} in the training table, but has other values here. "
            "Remove these rows, or leave the cells empty."
        )

    def select_values(self, column: Column, values: tuple[Any, ...]) -> Selection:
        return _select_categories(self._not_empty(column), column, values)

    def select_range(self, column: Column, wanted: Range) -> Selection:
        return _select_category_range(self._not_empty(column), column, wanted)

    def _not_empty(self, column: Column) -> pa.Array:
        if self.is_empty:
            raise UserError(no_values(column.name))
        return self.values

    def candidates(
        self, weights: np.ndarray, selection: Selection | None, rng: np.random.Generator
    ) -> Candidates:
        return _single_candidates(self.values, weights)

    def labels(self) -> list[str]:
        return [str(value) for value in self.values.to_pylist()]

    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, entry = _values_to_parts(self.kind, self.values, self.dictionary)
        return arrays, {**entry, "has_rare": self.has_rare}

    @classmethod
    def from_parts(cls, arrays: Arrays, entry: Mapping[str, Any]) -> "ConstantCodec":
        values, dictionary = _values_from_parts(arrays, entry)
        require(len(values) <= 1, "a constant column has several values")
        return cls(values, dictionary, convert(entry, ValuesEntry).has_rare)


@dataclass(frozen=True)
class IdCodec(ColumnCodec):
    """Generated identifiers; only whether one is missing is learned, so all have one code."""

    identifiers: Identifiers

    kind = "id"
    size = 1

    @property
    def value_type(self) -> pa.DataType:
        return pa.null()

    def encode(self, known: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(known), np.int64), np.zeros(len(known), bool)

    def decode(self, codes: np.ndarray, column: Column, decoding: Decoding) -> pa.Array:
        return self.identifiers.generate(
            decoding.first_row,
            len(codes),
            dtype=value_type(column.type),
            seed=decoding.seed,
            name=column.name,
        )

    def unseen_error(self, column: Column, known: pa.Array) -> None:
        return None

    def select_values(self, column: Column, values: tuple[Any, ...]) -> Selection:
        raise self._not_selectable(column)

    def select_range(self, column: Column, wanted: Range) -> Selection:
        raise self._not_selectable(column)

    def _not_selectable(self, column: Column) -> UserError:
        return UserError(
            f"Column {column.name!r} is an id column; conditions on it are not supported. To learn "
            'its values, set its kind to "categorical" in the schema and fit again.'
        )

    def candidates(
        self, weights: np.ndarray, selection: Selection | None, rng: np.random.Generator
    ) -> Candidates:
        raise AssertionError("rules about ids are refused before rows are drawn")

    def labels(self) -> list[str]:
        return ["(an id)"]

    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        ids = self.identifiers
        return {}, {
            "codec": self.kind,
            "start": ids.start,
            "count": ids.count,
            "pattern": list(ids.pattern),
            "prefix": ids.prefix,
            "skip": ids.skip,
            "patterns": [list(pattern) for pattern in ids.patterns],
            "turns": list(ids.turns),
            "free": [None if free is None else dataclasses.asdict(free) for free in ids.free],
            "form": ids.form,
        }

    @classmethod
    def from_parts(cls, arrays: Arrays, entry: Mapping[str, Any]) -> "IdCodec":
        require(not arrays, "an id has no arrays")
        ids = convert(entry, Identifiers)
        require(ids.count is None or ids.count >= 1, "there are no ids")
        require(len(ids.prefix) <= MOST_TEXT, "the prefix of ids is too long")
        patterns, turns = ids.patterns, ids.turns
        require(len(patterns) == len(turns) <= TURNS, "patterns and turns do not fit")
        require(all(0 < turn <= TURNS for turn in turns), "a pattern has no turn")
        require(len(patterns) == len(ids.free), "patterns and free numbers do not fit")
        for pattern in (*patterns, *([ids.pattern] if ids.pattern else [])):
            # Before their product is computed: it has no more digits than this.
            digits = sum(len(str(len(letters))) for letters in pattern)
            require(digits <= MOST_DIGITS and all(pattern), "the pattern of ids is too long")
        if ids.pattern:
            count = math.prod(len(letters) for letters in ids.pattern)
            require(ids.count == count, "the pattern of ids has another count")
        for numbers in ids.free:
            require(
                numbers is None
                or (
                    bool(numbers.remainders)
                    and all(0 <= r < numbers.divisor for r in numbers.remainders)
                ),
                "the free numbers of a pattern are wrong",
            )
        return cls(ids)


def _select_categories(known: pa.Array, column: Column, values: tuple[Any, ...]) -> Selection:
    weights = np.zeros(len(known))
    for value in values:
        code = pc.index(known, read_value(value, column, known.type)).as_py()
        if code < 0:
            raise UserError(_unknown_category(column, value, known))
        weights[code] = 1.0
    return Selection(weights)


def _select_category_range(known: pa.Array, column: Column, wanted: Range) -> Selection:
    if not (is_number(known.type) or is_time(known.type)):
        raise UserError(
            f"The condition on column {column.name!r} is a range, but the column holds "
            f"{type_name(known.type)}; use its values: {_listed(known)}."
        )
    allowed = np.ones(len(known), bool)
    for bound, compare in (
        (wanted.low, operator.gt if wanted.excludes_low else operator.ge),
        (wanted.high, operator.lt if wanted.excludes_high else operator.le),
    ):
        if bound is not None:
            limit = _category_bound(column, bound, known.type)
            allowed &= np.array([compare(value, limit) for value in known.to_pylist()], bool)
    if not allowed.any():
        ends = f"its range is {known[0].as_py()} to {known[-1].as_py()}"
        raise UserError(_empty_range(column, wanted, ends))
    return Selection(allowed.astype(np.float64))


def _category_bound(column: Column, value: Any, dtype: pa.DataType) -> Any:
    """A bound to compare categories with, which need not be one of them."""
    if not is_number(dtype):
        return read_value(value, column, dtype).as_py()
    number = to_decimal(value)
    if number is None:
        raise UserError(wrong_type(value, column, dtype))
    return float(number) if pa.types.is_floating(dtype) else number


def _unknown_category(column: Column, value: Any, known: pa.Array) -> str:
    categories = [str(category) for category in known.to_pylist()]
    close = difflib.get_close_matches(str(value), categories, n=3, cutoff=0.5)
    hint = f"The closest are: {', '.join(map(repr, close))}" if close else (
        f"Its values are: {_listed(known)}")  # fmt: skip
    return (
        f"The condition on column {column.name!r} asks for {value!r}, which is not a value of this "
        f"model (unknown, or too rare to be stored). {hint}."
    )


def no_values(name: str) -> str:
    """What to say about a condition on a column of which no value is stored."""
    return (
        f"Column {name!r} had no known values in the training table, or none frequent enough to be "
        "stored, so a condition can only ask for missing values."
    )


def _listed(known: pa.Array) -> str:
    shown = ", ".join(repr(str(value)) for value in known[:8].to_pylist())
    return shown + (f" and {len(known) - 8} more" if len(known) > 8 else "")


def _single_candidates(known: pa.Array, weights: np.ndarray) -> Candidates:
    codes = np.flatnonzero(weights[: max(len(known), 1)] > 0)
    values = known.take(pa.array(codes)) if len(known) else pa.nulls(len(codes), known.type)
    return Candidates(values, np.zeros(len(codes)), codes, weights[codes])


def _values_to_parts(
    kind: str, values: pa.Array, dictionary: pa.Array | None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays = {"values": _to_bytes(values)}
    if dictionary is not None:
        arrays["dictionary"] = _to_bytes(dictionary)
    return arrays, {"codec": kind, "dtype": str(values.type)}


def _values_from_parts(
    arrays: Arrays, entry: Mapping[str, Any]
) -> tuple[pa.Array, pa.Array | None]:
    dtype = parse_type(convert(entry, ValuesEntry).dtype)
    require("values" in arrays, "the array values is missing")
    require(set(arrays) <= {"values", "dictionary"}, "the arrays are not those of values")
    stored = arrays.get("dictionary")
    dictionary = None if stored is None else _from_bytes(stored, dtype)
    return _from_bytes(arrays["values"], dtype), dictionary


def _to_bytes(values: pa.Array) -> np.ndarray:
    """Values of any flat type as the bytes of a JSON list of texts."""
    if is_time(values.type):
        values = values.cast(storage_type(values.type))  # Arrow cannot read all times from text
    texts = values.cast(pa.string()).to_pylist()
    return np.frombuffer(json.dumps(texts, ensure_ascii=False).encode(), np.uint8)


def _from_bytes(array: np.ndarray, dtype: pa.DataType) -> pa.Array:
    require(array.dtype == np.uint8 and array.ndim == 1, "values are not stored as bytes")
    words = parse_texts(array.tobytes())
    require(max(map(len, words), default=0) <= MOST_TEXT, "a value is too long")
    require(len(set(words)) == len(words), "a value has two codes")
    if pa.types.is_null(dtype):
        return pa.nulls(len(words))
    texts = pa.array(words, pa.string())
    return (texts.cast(storage_type(dtype)) if is_time(dtype) else texts).cast(dtype)


CODECS: dict[str, type[ColumnCodec]] = {
    codec.kind: codec for codec in (NumericCodec, CategoricalCodec, ConstantCodec, IdCodec)
}


def codec_from_parts(arrays: Arrays, entry: Mapping[str, Any]) -> ColumnCodec:
    kinds = tuple(CODECS)  # what the entry holds may not be hashable
    require(isinstance(entry, Mapping) and entry.get("codec") in kinds, "a codec is unknown")
    return CODECS[entry["codec"]].from_parts(arrays, entry)


def fit_codec(typed: TypedColumn, config: CodecConfig, seed: int) -> ColumnCodec:
    """The codec of a column, from its values."""
    column, known = typed.column, typed.known
    match column.kind:
        case "constant":
            first = pa.array(range(min(1, len(known))), pa.int64())
            value, dictionary = known.take(first), typed.dictionary  # a slice would keep all rows
            if config.protect and dictionary is not None:
                dictionary = value
            return ConstantCodec(value, dictionary)
        case "id":
            missing = missing_scalar(known.type, column.format, column.missing_text)
            form = find_form(column.name, pc.unique(known)) if is_text(known.type) else None
            return IdCodec(
                Identifiers.find(
                    column.name,
                    known,
                    None if missing is None else missing.as_py(),
                    None if form is None else form.key,
                )
            )
        case "categorical":
            return categories_codec(ValueCounts.of(known), typed.dictionary, config, seed)
        case _:
            if not can_be_stored(column.kind, known, config.protect):
                return ConstantCodec(known[:0], has_rare=True)
            grid = Grid.find(known, decimals=column.decimals, time_step=column.time_step)
            codes = quantize(
                grid.units(known),
                quantizer=config.quantizer if column.quantizer is None else column.quantizer,
                max_bins=_bins(config, len(known)) if column.max_bins is None else column.max_bins,
                continuous=grid.continuous,
                seed=seed,
                protect=config.protect,
                shared=config.shared_values == "codes",
                find_round=column.time_step is None and grid.offset == 0,
            )
            return NumericCodec(grid, codes)


def categories_codec(
    counts: ValueCounts, dictionary: pa.Array | None, config: CodecConfig, seed: int
) -> CategoricalCodec | ConstantCodec:
    """The codec of categories, from all values of a column; without a frequent one it is empty."""
    frequent = counts.frequent(config.protect, seed)
    values, rare = (counts.values.filter(pa.array(mask)) for mask in (frequent, ~frequent))
    rare_text = config.rare_text if len(rare) and is_text(values.type) else None
    if dictionary is not None:
        if config.protect:  # also of categories that are declared, but that no row holds
            dictionary = dictionary.filter(pc.is_in(dictionary, values))
        words = [values] if rare_text is None else [values, pa.array([rare_text], values.type)]
        dictionary = pc.unique(pa.concat_arrays([dictionary, *words]))
    if len(values) == 0:
        return ConstantCodec(values, dictionary, has_rare=True)
    return CategoricalCodec(values, dictionary, bool(len(rare)), rare_text)


def _bins(config: CodecConfig, rows: int) -> int:
    # PAPER-DIFF max_bins: the paper's number of clusters does not depend on the table. With only a
    # handful of rows per code, codes cannot be learned, and training would stop before it began.
    return most_bins(config.max_bins, rows)


# --- with missing values -------------------------------------------------------------------


@dataclass(frozen=True)
class CodedColumn:
    """A column with its codec. If missing values are learned, they are the last code."""

    column: Column
    codec: ColumnCodec

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def missing_code(self) -> int | None:
        return self.codec.size if self.column.missing == "learned" else None

    @property
    def size(self) -> int:
        return self.codec.size + (self.column.missing == "learned")

    @property
    def has_tokens(self) -> bool:
        """Whether there is anything to learn, and so a column in the token matrix."""
        return self.size > 1

    def encode(self, typed: TypedColumn) -> tuple[np.ndarray, np.ndarray]:
        """The token of each row, and which rows hold an unseen value, (rows,) each.

        An unseen value has the code nearest to it, or any.
        """
        codes, unseen = self.codec.encode(typed.known)
        if typed.missing_count == 0:
            return codes, unseen
        missing = MASK if self.missing_code is None else self.missing_code
        tokens = np.full(len(typed.values), missing)
        tokens[typed.is_known] = codes
        unseen_rows = np.zeros(len(tokens), bool)
        unseen_rows[typed.is_known] = unseen
        return tokens, unseen_rows

    def encode_checked(
        self, typed: TypedColumn, *, missing_expected: bool = False, warned: set[str] | None = None
    ) -> np.ndarray:
        """The token of each row, (rows,). Unseen categories are an error, unseen numbers a warning.

        `warned` collects the columns with a warning, so that a table in batches gets each once.
        """
        tokens, unseen = self.encode(typed)
        warned = set() if warned is None else warned
        if (
            typed.missing_count
            and self.column.missing == "none"
            and self.has_tokens
            and not missing_expected
        ):
            log.warning(
                "Column %r has %d missing values, but had none when the model was fitted; "
                "they are masked, as if they were not given.",
                self.name,
                typed.missing_count,
            )
        if not unseen.any():
            return tokens
        if (message := self.codec.unseen_error(self.column, typed.known)) is not None:
            raise UserError(message)
        if self.name not in warned:
            log.warning(
                "Column %r has values outside the range of the model; each is replaced by "
                "the nearest value in range (%d of the first %d values).",
                self.name,
                int(unseen.sum()),
                len(typed.known),
            )
            warned.add(self.name)
        return tokens

    def decode(self, codes: np.ndarray, decoding: Decoding) -> pa.Array:
        """Values in the type that users get back, (rows,)."""
        assert codes.min(initial=0) >= 0
        if self.missing_code is None:
            return self.in_user_type(self.codec.decode(codes, self.column, decoding))
        known = codes != self.missing_code
        if decoding.within is not None:  # a missing value has no bounds
            low, high = decoding.within
            within = np.where(known, low, -np.inf), np.where(known, high, np.inf)
            decoding = dataclasses.replace(decoding, within=within)
        values = self.codec.decode(np.where(known, codes, 0), self.column, decoding)
        if not known.all():
            values = pc.if_else(pa.array(known), values, pa.scalar(None, values.type))
        return self.in_user_type(values)

    def in_user_type(self, values: pa.Array) -> pa.Array:
        """Values of the codec in the type that users get back: text, or a dictionary."""
        column, dtype = self.column, self.column.type
        writes_text = column.format == "text" or not is_text(values.type)
        if column.format is not None and is_text(dtype) and writes_text:
            return text_formats.write(values, column.format, column.missing_text).cast(dtype)
        if pa.types.is_dictionary(dtype):
            words = getattr(self.codec, "dictionary", None)
            if words is None:  # a user has made numbers or ids of it
                words = pc.unique(values).drop_null()
            indices = pc.index_in(values, words).cast(dtype.index_type)
            return pa.DictionaryArray.from_arrays(indices, words, ordered=dtype.ordered)
        return values.cast(dtype)

    def drawn_codes(self, *, allow_missing: bool) -> np.ndarray | None:
        """Weights of the codes that may be generated, (K,); None if all may."""
        weights = np.ones(self.size)
        weights[: self.codec.size] = self.codec.is_drawn
        if self.missing_code is not None and not allow_missing:
            weights[self.missing_code] = 0.0
        return None if weights.all() else weights
