"""An Arrow table as one matrix of integers, and back.

    tokens: int64 (rows, columns). A cell is a code 0 .. size-1 of its column, or MASK: not known.

A column's gaps are one more code, its last (learned), or MASK (masked, the paper's way). Columns
without a choice (constants, ids without gaps) have no place in the matrix and come back from the
codec alone. Knows Arrow and numpy, nothing of networks.
"""

import difflib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt import text
from tabmt.config import CodecConfig, Decode
from tabmt.errors import UserError
from tabmt.grid import Grid, is_time, whole_type
from tabmt.identifiers import Identifiers
from tabmt.quantize import Quantized, quantize
from tabmt.schema import Column, Schema, combine, known_values, parse_type
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

LEAST_BINS = 10
ROWS_PER_BIN = 25  # a number column of few rows gets fewer codes than it may have


@dataclass(frozen=True)
class NumericCodec:
    """Numbers, dates and times: a grid, and the codes of its units."""

    grid: Grid
    codes: Quantized

    @property
    def size(self) -> int:
        return self.codes.size

    def encode(self, values: pa.Array, column: Column) -> np.ndarray:
        codes, changed = self.codes.encode(self.grid.units(values))
        if changed.any():
            log.warning(
                "Column %r: %d values lie outside what the model has seen; "
                "each is taken for the nearest that it has.",
                column.name,
                int(changed.sum()),
            )
        return codes

    def decode(self, codes: np.ndarray, rng: np.random.Generator, how: Decode) -> pa.Array:
        return self.grid.values(self.codes.decode(codes, rng, how))


@dataclass(frozen=True)
class CategoricalCodec:
    """Categories: one code for each value that was seen."""

    values: pa.Array
    # Positions of `values` in the caller's own dictionary, whose unused entries are kept too.
    dictionary: pa.Array | None = None

    @property
    def size(self) -> int:
        return len(self.values)

    def encode(self, values: pa.Array, column: Column) -> np.ndarray:
        codes = pc.index_in(values.cast(self.values.type), self.values)
        if codes.null_count:
            unknown = values.filter(pc.is_null(codes))[0].as_py()
            raise UserError(_unknown_category(column.name, unknown, self.values.to_pylist()))
        return np.asarray(codes.to_numpy(zero_copy_only=False)).astype(np.int64)

    def decode(self, codes: np.ndarray, rng: np.random.Generator, how: Decode) -> pa.Array:
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

    def encode(self, values: pa.Array, column: Column) -> np.ndarray:
        if len(self.values) == 0 or not pc.all(pc.equal(values, self.values[0])).as_py():
            only = f"only {self.values[0]}" if len(self.values) else "only gaps"
            raise UserError(f"Column {column.name!r} has other values than the model saw: {only}.")
        return np.zeros(len(values), np.int64)

    def decode(self, codes: np.ndarray, rng: np.random.Generator, how: Decode) -> pa.Array:
        if len(self.values) == 0:
            return pa.nulls(len(codes), self.values.type)
        return pa.repeat(self.values[0], len(codes))


@dataclass(frozen=True)
class IdCodec:
    """Regenerated values; as far as they are learned at all, every id is the same code."""

    identifiers: Identifiers

    size = 1

    def encode(self, values: pa.Array, column: Column) -> np.ndarray:
        return np.zeros(len(values), np.int64)


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

    def encode(self, array: pa.ChunkedArray) -> np.ndarray:
        array = _typed(array, self.column)
        values, gaps, _ = known_values(array)
        if gaps == 0:
            return self.codec.encode(values, self.column)
        if self.column.gaps == "none" and self.has_tokens:
            log.warning(
                "Column %r has %d gaps, but had none when the model was made; "
                "they are taken as unknown.",
                self.column.name,
                gaps,
            )
        combined = combine(array)
        known = pc.is_valid(combined)
        if pa.types.is_floating(combined.type):
            known = pc.and_(known, pc.invert(pc.fill_null(pc.is_nan(combined), False)))
        tokens = np.full(len(combined), MASK if self.missing_code is None else self.missing_code)
        if len(values):
            tokens[known.to_numpy(zero_copy_only=False)] = self.codec.encode(values, self.column)
        return tokens

    def decode(
        self, codes: np.ndarray, rng: np.random.Generator, how: Decode, first_row: int, seed: int
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
        else:
            values = self.codec.decode(codes, rng, how)
        if not known.all():
            values = pc.if_else(pa.array(known), values, pa.scalar(None, values.type))
        return _as_given(values, self)


def _value_type(column: Column) -> pa.DataType:
    """The type of the values the codec works on: not the text or dictionary around them."""
    dtype = column.type
    if pa.types.is_dictionary(dtype):
        return dtype.value_type
    return dtype


def _typed(array: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """The column's own type: text that stands for numbers or dates read as such, and rows that
    come in another type than the model was made with cast to it."""
    given = _value_type(column)
    if column.format is None or not text.is_text(array.type):
        there = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        if there == given or (text.is_text(given) and column.format is not None):
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
    if fmt in ("shortest", "plain") or fmt.startswith("fixed:"):
        return pa.float64()
    return pa.timestamp(fmt.partition(":")[0])


def _as_given(values: pa.Array, coded: CodedColumn) -> pa.Array:
    """Values in the type the caller gave."""
    column, dtype = coded.column, coded.column.type
    if column.format is not None and text.is_text(dtype) and not text.is_text(values.type):
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
    def fit(cls, table: pa.Table, schema: Schema, config: CodecConfig, seed: int) -> "TableCodec":
        coded = []
        for column in schema.columns:
            array = table.column(column.name)
            values, _, _ = known_values(_typed(array, column))
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
            array = table.column(column.name)
            columns.append(array if text.is_text(column.type) else _typed(array, column))
        return pa.table(columns, schema=self.schema.arrow)

    def encode(self, table: pa.Table) -> np.ndarray:
        """(rows, token columns) int64."""
        for name in self.schema.names:
            if name not in table.column_names:
                raise UserError(
                    f"The table has no column {name!r}, which the model was made with; "
                    f"it has: {', '.join(table.column_names)}."
                )
        for name in table.column_names:
            if name not in self.schema.names:
                raise UserError(
                    f"The table has a column {name!r}, which the model does not know; leave it out."
                )
        tokens = [
            encoded
            for coded in self.coded
            for encoded in [coded.encode(table.column(coded.column.name))]
            if coded.has_tokens
        ]
        return np.stack(tokens, axis=1) if tokens else np.zeros((table.num_rows, 0), np.int64)

    def decode(
        self, tokens: np.ndarray, *, seed: int, first_row: int = 0, how: Decode = "inside"
    ) -> pa.Table:
        """A table of the caller's types. Rows are numbered from `first_row` for ids and draws."""
        arrays, place = [], 0
        for coded in self.coded:
            codes = np.zeros(len(tokens), np.int64)
            if coded.has_tokens:
                codes = tokens[:, place]
                place += 1
            rng = numpy_stream(seed, "decode", coded.column.name, first_row)
            arrays.append(coded.decode(codes, rng, how, first_row, seed))
        return pa.Table.from_arrays(arrays, schema=self.schema.arrow)

    # --- on disk -------------------------------------------------------------------------------

    def to_parts(self) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Arrays and JSON that together are the codec."""
        arrays: dict[str, np.ndarray] = {}
        entries = []
        for place, coded in enumerate(self.coded):
            found, entry = _codec_to_parts(coded.codec)
            arrays |= {f"{place}.{key}": array for key, array in found.items()}
            entries.append(entry)
        return arrays, entries

    @classmethod
    def from_parts(
        cls, schema: Schema, arrays: Mapping[str, np.ndarray], entries: list[dict[str, Any]]
    ) -> "TableCodec":
        coded = []
        for place, (column, entry) in enumerate(zip(schema.columns, entries, strict=True)):
            prefix = f"{place}."
            own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
            coded.append(CodedColumn(column, _codec_from_parts(own, entry)))
        return cls(schema, tuple(coded))


def _fit_column(
    column: Column, array: pa.ChunkedArray, values: pa.Array, config: CodecConfig, seed: int
) -> ColumnCodec:
    dictionary = None
    if pa.types.is_dictionary(array.type):
        words = array.unify_dictionaries().chunk(0).dictionary.drop_null()
        dictionary = words.cast(values.type)
    if column.kind == "constant":
        return ConstantCodec(values[:1], dictionary)
    if column.kind == "id":
        return IdCodec(Identifiers.find(column.name, values))
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
    return min(config.max_bins, max(LEAST_BINS, rows // ROWS_PER_BIN))


NUMERIC_ARRAYS = ("centres", "atom", "edges", "knot_bin", "knot_share", "knot_value")


def _words_to_bytes(words: pa.Array) -> np.ndarray:
    """Values of any flat type as the bytes of a JSON list of texts."""
    if is_time(words.type):
        words = words.cast(whole_type(words.type))  # Arrow cannot read all times from text
    texts = words.cast(pa.string()).to_pylist()
    return np.frombuffer(json.dumps(texts, ensure_ascii=False).encode(), np.uint8)


def _words_from_bytes(array: np.ndarray, dtype: pa.DataType) -> pa.Array:
    words = json.loads(array.tobytes().decode())
    assert isinstance(words, list) and all(isinstance(word, str) for word in words)
    if pa.types.is_null(dtype):
        return pa.nulls(len(words))
    texts = pa.array(words, pa.string())
    return (texts.cast(whole_type(dtype)) if is_time(dtype) else texts).cast(dtype)


def _codec_to_parts(codec: ColumnCodec) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    if isinstance(codec, NumericCodec):
        arrays = {key: getattr(codec.codes, key) for key in NUMERIC_ARRAYS}
        grid = codec.grid
        return arrays, {
            "codec": "numeric",
            "dtype": str(grid.dtype),
            "decimals": grid.decimals,
            "step": grid.step,
            "offset": grid.offset,
        }
    if isinstance(codec, IdCodec):
        found = codec.identifiers
        return {}, {
            "codec": "id",
            "start": found.start,
            "count": found.count,
            "pattern": list(found.pattern),
            "prefix": found.prefix,
        }
    arrays = {"values": _words_to_bytes(codec.values)}
    if codec.dictionary is not None:
        arrays["dictionary"] = _words_to_bytes(codec.dictionary)
    name = "categorical" if isinstance(codec, CategoricalCodec) else "constant"
    return arrays, {"codec": name, "dtype": str(codec.values.type)}


def _codec_from_parts(arrays: Mapping[str, np.ndarray], entry: dict[str, Any]) -> ColumnCodec:
    if entry["codec"] == "id":
        return IdCodec(
            Identifiers(entry["start"], entry["count"], tuple(entry["pattern"]), entry["prefix"])
        )
    dtype = parse_type(entry["dtype"])
    if entry["codec"] == "numeric":
        grid = Grid(dtype, entry["decimals"], entry["step"], entry["offset"])
        numbers = {key: arrays[key] for key in NUMERIC_ARRAYS}
        codes = Quantized(**numbers, continuous=grid.continuous)
        bins = int((~codes.atom).sum())
        assert codes.centres.shape == codes.atom.shape and codes.centres.ndim == 1
        assert len(codes.edges) == (bins + 1 if bins else 0)
        assert len(codes.knot_bin) == len(codes.knot_share) == len(codes.knot_value)
        assert np.array_equal(np.unique(codes.knot_bin), np.arange(bins))
        return NumericCodec(grid, codes)
    values = _words_from_bytes(arrays["values"], dtype)
    stored = arrays.get("dictionary")
    dictionary = None if stored is None else _words_from_bytes(stored, dtype)
    if entry["codec"] == "constant":
        assert len(values) <= 1
        return ConstantCodec(values, dictionary)
    assert entry["codec"] == "categorical" and len(values) > 0
    return CategoricalCodec(values, dictionary)
