"""An Arrow table as one matrix of integers, and back.

    tokens: int64 (rows, columns). A cell is a code 0 .. size-1 of its column, or MASK: not known.

A column's gaps are one more code, its last (learned), or MASK (masked, the paper's way). Columns
without a choice (constants, ids without gaps) have no place in the matrix and come back from the
codec alone. Knows Arrow and numpy, nothing of networks.
"""

import difflib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.codec.identifiers import Identifiers
from tabmt.codec.quantize import Quantized, quantize
from tabmt.config import CodecConfig, Decode
from tabmt.data import text_formats as text
from tabmt.data.schema import Column, Columnar, Schema, check_names, combine, known_values
from tabmt.data.units import Grid
from tabmt.errors import UserError
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK, TokenStore, pack

log = logging.getLogger(__name__)

Bounds = tuple[np.ndarray, np.ndarray]  # of each number, low and high, both allowed

LEAST_BINS, MOST_BINS = 10, 100
ROWS_PER_BIN = 50


@dataclass(frozen=True)
class NumericCodec:
    """Numbers, dates and times: a grid, and the codes of its units."""

    grid: Grid
    codes: Quantized

    @property
    def size(self) -> int:
        return self.codes.size

    def encode(self, values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        return self.codes.encode(self.grid.units(values))

    def decode(
        self, codes: np.ndarray, rng: np.random.Generator, how: Decode, within: Bounds | None
    ) -> pa.Array:
        return self.grid.values(self.codes.decode(codes, rng, how, within))


@dataclass(frozen=True)
class CategoricalCodec:
    """Categories: one code for each value that was seen."""

    values: pa.Array
    # Positions of `values` in the caller's own dictionary, whose unused entries are kept too.
    dictionary: pa.Array | None = None

    @property
    def size(self) -> int:
        return len(self.values)

    def encode(self, values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        codes = pc.fill_null(pc.index_in(values.cast(self.values.type), self.values), -1)
        found = np.asarray(codes.to_numpy(zero_copy_only=False)).astype(np.int64)
        return np.maximum(found, 0), found < 0

    def decode(self, codes: np.ndarray) -> pa.Array:
        return self.values.take(pa.array(codes))


def _unknown_category(name: str, unknown: Any, known: list[Any]) -> str:
    close = difflib.get_close_matches(str(unknown), [str(value) for value in known], n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"Column {name!r} holds {str(unknown)[:60]!r}, which the model has not seen; "
        f"it knows {len(known)} values there.{hint}"
    )


@dataclass(frozen=True)
class ConstantCodec:
    """One value, or nothing but gaps."""

    values: pa.Array  # one value, or none
    dictionary: pa.Array | None = None  # as in CategoricalCodec

    size = 1

    def encode(self, values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        codes = np.zeros(len(values), np.int64)
        if len(self.values) == 0:
            return codes, np.ones(len(values), bool)
        differ = pc.not_equal(values, self.values[0])
        return codes, np.asarray(differ.to_numpy(zero_copy_only=False), bool)

    def decode(self, codes: np.ndarray) -> pa.Array:
        if len(self.values) == 0:
            return pa.nulls(len(codes), self.values.type)
        return pa.repeat(self.values[0], len(codes))


@dataclass(frozen=True)
class IdCodec:
    """Regenerated values; as far as they are learned at all, every id is the same code."""

    identifiers: Identifiers
    values: pa.Array = field(default_factory=lambda: pa.nulls(0))  # none that are learned

    size = 1

    def encode(self, values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(values), np.int64), np.zeros(len(values), bool)


ColumnCodec = NumericCodec | CategoricalCodec | ConstantCodec | IdCodec


@dataclass(frozen=True)
class CodedColumn:
    """A column with its codec, and where its gaps go."""

    column: Column
    codec: ColumnCodec

    @property
    def missing_code(self) -> int | None:
        return self.codec.size if self.column.gaps == "learned" else None

    @property
    def size(self) -> int:
        return self.codec.size + (self.column.gaps == "learned")

    @property
    def has_tokens(self) -> bool:
        return self.size > 1

    @property
    def ratios(self) -> np.ndarray | None:
        """Positions of the ordered codes in [0, 1]; None if the codes have no order."""
        return self.codec.codes.ratios if isinstance(self.codec, NumericCodec) else None

    @property
    def bins(self) -> np.ndarray | None:
        """(ordered codes,) bool: which are ranges of numbers; None for categories."""
        return ~self.codec.codes.atom if isinstance(self.codec, NumericCodec) else None

    def look(self, array: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray, pa.Array]:
        """Codes, which values the model has not seen, (rows,) each, and the values, typed.

        An unseen value has the code nearest to it, or any.
        """
        array = typed(array, self.column)
        values, gaps, _ = known_values(array)
        codes, unseen = self.codec.encode(values)
        if gaps == 0:
            return codes, unseen, values
        combined = combine(array)
        known = pc.is_valid(combined)
        if pa.types.is_floating(combined.type):
            known = pc.and_(known, pc.invert(pc.fill_null(pc.is_nan(combined), False)))
        rows = known.to_numpy(zero_copy_only=False)
        tokens = np.full(len(combined), MASK if self.missing_code is None else self.missing_code)
        tokens[rows] = codes
        odd = np.zeros(len(combined), bool)
        odd[rows] = unseen
        return tokens, odd, values

    def encode(
        self,
        array: pa.ChunkedArray,
        *,
        gaps_expected: bool = False,
        warned: set[str] | None = None,
    ) -> np.ndarray:
        """`warned` holds the columns of which a word was said, for tables that come in parts."""
        tokens, unseen, values = self.look(array)
        name, gaps = self.column.name, len(tokens) - len(values)
        if gaps and self.column.gaps == "none" and self.has_tokens and not gaps_expected:
            log.warning(
                "Column %r has %d gaps, but had none when the model was made; "
                "they are taken as unknown.",
                name,
                gaps,
            )
        if not unseen.any():
            return tokens
        match self.codec:
            case CategoricalCodec(values=seen):
                known = seen.to_pylist()
                first = values.filter(pc.invert(pc.is_in(values, seen)))[0].as_py()
                raise UserError(_unknown_category(name, first, known))
            case ConstantCodec(values=seen):
                only = f"only {seen[0]}" if len(seen) else "only gaps"
                raise UserError(f"Column {name!r} has other values than the model saw: {only}.")
        if warned is None or name not in warned:
            log.warning(
                "Column %r has values outside what the model has seen; each is taken for the "
                "nearest that it has (%d of the first %d values).",
                name,
                int(unseen.sum()),
                len(values),
            )
        if warned is not None:
            warned.add(name)
        return tokens

    def decode(
        self,
        codes: np.ndarray,
        rng: np.random.Generator,
        how: Decode,
        first_row: int,
        seed: int,
        within: Bounds | None,
    ) -> pa.Array:
        assert codes.min(initial=0) >= 0
        column = self.column
        known = np.ones(len(codes), bool)
        if self.missing_code is not None:
            known = codes != self.missing_code
            codes = np.where(known, codes, 0)
        if isinstance(self.codec, IdCodec):
            dtype = _value_type(column)
            values = self.codec.identifiers.make(
                first_row, len(codes), dtype=dtype, seed=seed, name=column.name
            )
        elif isinstance(self.codec, NumericCodec):
            if within is not None:  # a gap has no bounds
                low, high = within
                within = np.where(known, low, -np.inf), np.where(known, high, np.inf)
            values = self.codec.decode(codes, rng, how, within)
        else:
            values = self.codec.decode(codes)
        if not known.all():
            values = pc.if_else(pa.array(known), values, pa.scalar(None, values.type))
        return as_given(values, self)


def _value_type(column: Column) -> pa.DataType:
    """The type of the values the codec works on: not the text or dictionary around them."""
    dtype = column.type
    if pa.types.is_dictionary(dtype):
        return dtype.value_type
    return dtype


def typed(array: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """The column's own type: text that stands for numbers or dates read as such, and rows that
    come in another type than the model was made with cast to it."""
    given = _value_type(column)
    if column.gap_text is not None and not text.is_text(array.type):
        # It may be a category, or stand among numbers.
        plain = text.without_gap(combine(array), column.format, column.gap_text)
        array = pa.chunked_array([plain])
    if column.format is None or not text.is_text(array.type):
        there = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        if there == given or (text.is_text(given) and column.format not in (None, "text")):
            return array
        try:
            return pa.chunked_array([combine(array).cast(given)])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UserError(
                f"Column {column.name!r} holds {there}, but the model was made with {given}: "
                f"{str(error).splitlines()[0]}"
            ) from error
    dtype = column.type
    if text.is_text(dtype):
        dtype = _read_type(column.format)
    try:
        return pa.chunked_array([text.read(combine(array), column.format, dtype, column.gap_text)])
    except (pa.ArrowInvalid, OverflowError) as error:
        raise UserError(
            f"Column {column.name!r} holds text that is not of the form {column.format!r}: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _read_type(fmt: str) -> pa.DataType:
    if fmt == "integer":
        return pa.int64()
    if fmt == "text":
        return pa.string()
    if fmt in ("shortest", "plain") or fmt.startswith("fixed:"):
        return pa.float64()
    return pa.timestamp(fmt.partition(":")[0])


def as_given(values: pa.Array, coded: CodedColumn) -> pa.Array:
    """Values in the type the caller gave."""
    column, dtype = coded.column, coded.column.type
    as_text = column.format == "text" or not text.is_text(values.type)
    if column.format is not None and text.is_text(dtype) and as_text:
        return text.write(values, column.format, column.gap_text).cast(dtype)
    if pa.types.is_dictionary(dtype):
        words = getattr(coded.codec, "dictionary", None)
        if words is None:  # a person made a number or an id of it
            words = pc.unique(values).drop_null()
        indices = pc.index_in(values, words).cast(dtype.index_type)
        return pa.DictionaryArray.from_arrays(indices, words, ordered=dtype.ordered)
    return values.cast(dtype)


@dataclass(frozen=True)
class TableCodec:
    """All columns of a table, and which of them stand in the token matrix."""

    schema: Schema
    coded: tuple[CodedColumn, ...]

    @classmethod
    def fit(cls, table: Columnar, schema: Schema, config: CodecConfig, seed: int) -> "TableCodec":
        coded = []
        for column in schema.columns:
            array = table.column(column.name)
            values, _, _ = known_values(typed(array, column))
            codec = _fit_column(column, array, values, config, derive(seed, "codec", column.name))
            coded.append(CodedColumn(column, codec))
        return cls(schema, tuple(coded))

    @property
    def token_columns(self) -> list[CodedColumn]:
        return [coded for coded in self.coded if coded.has_tokens]

    def read(self, table: pa.Table) -> pa.Table:
        """A table as given, in the types that `decode` gives: what a CSV file holds as text."""
        columns = []
        for column in self.schema.columns:
            if column.name not in table.column_names:
                raise UserError(
                    f"The table has no column {column.name!r}; it has: "
                    f"{', '.join(table.column_names)}."
                )
            array = table.column(column.name)
            columns.append(array if text.is_text(column.type) else typed(array, column))
        return pa.table(columns, schema=self.schema.arrow)

    def store(self, table: Columnar) -> TokenStore:
        """The tokens of a table, for training."""
        return TokenStore(self.pack(table))

    def pack(self, table: Columnar, warned: set[str] | None = None) -> np.ndarray:
        """The tokens of a table, row by row, as they are stored."""
        sizes = [coded.size for coded in self.token_columns]
        return pack(self._codes(table, warned), sizes, table.num_rows)

    def encode(self, table: pa.Table) -> np.ndarray:
        """(rows, token columns) int64."""
        tokens = list(self._codes(table))
        return np.stack(tokens, axis=1) if tokens else np.zeros((table.num_rows, 0), np.int64)

    def _codes(self, table: Columnar, warned: set[str] | None = None) -> Iterator[np.ndarray]:
        """The codes of each column that has some; constants are checked."""
        self.check_columns(table)
        for coded in self.coded:
            codes = coded.encode(table.column(coded.column.name), warned=warned)
            if coded.has_tokens:
                yield codes

    def look(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """For scores: tokens, with MASK where a value was never seen; which those are; and the
        log-share that each value has inside its code, 0 where it is all of it; (rows, C) each.
        Last, how many constant columns of a row hold another value, (rows,)."""
        self.check_columns(table)
        changed = np.zeros(table.num_rows, np.int64)
        for coded in self.coded:
            if isinstance(coded.codec, ConstantCodec) and not coded.has_tokens:
                changed += coded.look(table.column(coded.column.name))[1]
        shape = (table.num_rows, len(self.token_columns))
        tokens, unseen = np.full(shape, MASK, np.int64), np.zeros(shape, bool)
        shares = np.zeros(shape)
        for place, coded in enumerate(self.token_columns):
            codes, odd, values = coded.look(table.column(coded.column.name))
            if isinstance(coded.codec, NumericCodec):
                known = (codes != MASK) & (codes != coded.missing_code)
                units = coded.codec.grid.units(values)
                mass = coded.codec.codes.point_shares(units, codes[known])
                odd[known] |= mass <= 0
                shares[known, place] = np.log(np.maximum(mass, 1e-300))
            tokens[:, place] = np.where(odd, MASK, codes)
            unseen[:, place] = odd
            shares[odd, place] = 0.0
        return tokens, unseen, shares, changed

    def check_columns(self, table: Columnar, *, all_of_them: bool = True) -> None:
        """Refuse a table with columns that the model does not know, or without some it does."""
        check_names(table.column_names)
        for name in self.schema.names:
            if all_of_them and name not in table.column_names:
                raise UserError(
                    f"The table has no column {name!r}, which the model was made with; "
                    f"it has: {', '.join(table.column_names)}."
                )
        for name in table.column_names:
            if name not in self.schema.names:
                raise UserError(
                    f"The table has a column {name!r}, which the model does not know; leave it out."
                )

    def decode(
        self,
        tokens: np.ndarray,
        *,
        seed: int,
        first_row: int = 0,
        how: Decode = "inside",
        within: Mapping[str, Bounds] | None = None,
    ) -> pa.Table:
        """A table of the caller's types. Rows are numbered from `first_row` for ids and draws.

        `within` bounds the numbers of some columns, in units of their grid.
        """
        arrays, place = [], 0
        for coded in self.coded:
            codes = np.zeros(len(tokens), np.int64)
            if coded.has_tokens:
                codes = tokens[:, place]
                place += 1
            rng = numpy_stream(seed, "decode", coded.column.name, first_row)
            bounds = None if within is None else within.get(coded.column.name)
            arrays.append(coded.decode(codes, rng, how, first_row, seed, bounds))
        return pa.Table.from_arrays(arrays, schema=self.schema.arrow)


def _fit_column(
    column: Column, array: pa.ChunkedArray, values: pa.Array, config: CodecConfig, seed: int
) -> ColumnCodec:
    dictionary = None
    if pa.types.is_dictionary(array.type):
        words = array.unify_dictionaries().chunk(0).dictionary.drop_null()
        dictionary = words.cast(values.type)
    if column.kind == "constant":
        first = pa.array(range(min(1, len(values))), pa.int64())
        return ConstantCodec(values.take(first), dictionary)  # a slice would keep all in memory
    if column.kind == "id":
        gap = text.gap_value(values.type, column.format, column.gap_text)
        return IdCodec(Identifiers.find(column.name, values, None if gap is None else gap.as_py()))
    if column.kind == "categorical":
        distinct = pc.unique(values)
        distinct = distinct.take(pc.sort_indices(distinct))
        return CategoricalCodec(distinct, dictionary)
    grid = Grid.find(values, decimals=column.decimals, time_step=column.time_step)
    codes = quantize(
        grid.units(values),
        quantizer=config.quantizer if column.quantizer is None else column.quantizer,
        max_bins=_bins(config, len(values)) if column.max_bins is None else column.max_bins,
        continuous=grid.continuous,
        seed=seed,
    )
    return NumericCodec(grid, codes)


def _bins(config: CodecConfig, rows: int) -> int:
    # PAPER-DIFF: the paper's number of clusters does not depend on the table. With a handful of
    # rows to a code, codes cannot be learned, and training would stop before it began.
    if config.max_bins is not None:
        return config.max_bins
    return min(MOST_BINS, max(LEAST_BINS, rows // ROWS_PER_BIN))
