"""A whole table as one matrix of integers, and back.

    tokens: int64 (rows, columns). A cell is a code 0 .. size-1 of its column, or MASK.

Missing values are the last code of their column (learned), or MASK (masked, as in the paper).
Columns without a choice (constants, ids that are never missing) have no place in the matrix; the
codec alone returns them. Nothing here knows about networks.
"""

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt.codec.columns import (
    Bounds,
    CodedColumn,
    Decoding,
    NumericCodec,
    codec_from_parts,
    fit_codec,
)
from tabmt.codec.equal_numbers import (
    EqualNumbers,
    find_equal_numbers,
    same_grid,
    units_of,
)
from tabmt.codec.quantize import How
from tabmt.config import CodecConfig
from tabmt.data.dataset import Dataset
from tabmt.data.frames import check_pandas
from tabmt.data.schema import (
    Column,
    Schema,
    SchemaRules,
    Source,
    check_names,
    unknown_column,
)
from tabmt.data.typed_columns import TypedColumn, TypedTable, parse_column
from tabmt.errors import UserError
from tabmt.json_files import require
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK, TokenStore, pack

log = logging.getLogger(__name__)

EQUAL_TO, EQUAL_SHARES = "equal_to", "equal_shares"  # in the parts of a codec


@dataclass(frozen=True)
class ScoredCells:
    """A table as tokens for its likelihood, with what the tokens do not say; (rows, C) each."""

    tokens: np.ndarray  # MASK where a value is unseen
    unseen: np.ndarray  # bool
    log_shares: np.ndarray  # of each number inside its code, 0 where it is all of it
    changed_constants: np.ndarray  # (rows,): how many constant columns hold another value


@dataclass(frozen=True)
class TableCodec:
    """All columns of a table, with or without a place in the token matrix."""

    schema: Schema
    coded: tuple[CodedColumn, ...]
    equal: tuple[EqualNumbers, ...] = ()

    @classmethod
    def fit(
        cls,
        columns: Iterable[TypedColumn],
        source: Source,
        rules: Mapping[str, str],
        config: CodecConfig,
        seed: int,
    ) -> "TableCodec":
        """Fit one column after the other, so that only one has to be in memory."""
        coded = tuple(fit_column(typed, config, seed) for typed in columns)
        return cls(Schema(tuple(one.column for one in coded), source, dict(rules)), coded)

    def with_rules(self, rules: SchemaRules) -> "TableCodec":
        return dataclasses.replace(self, schema=self.schema.with_rules(rules))

    def with_equal_numbers(
        self, typed: Callable[[str], TypedColumn], leave: Collection[str]
    ) -> "TableCodec":
        """The same codec with what is found in the columns of a table, or of some of its rows."""
        found = find_equal_numbers(self.coded, typed, leave)
        for one in found:
            log.info(
                "column %r often equals column %r; generated rows keep this", one.column, one.other
            )
        return dataclasses.replace(self, equal=found)

    @cached_property
    def _equal_to(self) -> dict[str, EqualNumbers]:
        return {one.column: one for one in self.equal}

    @cached_property
    def _others_first(self) -> list[CodedColumn]:
        """All columns, each after the one whose numbers it may have."""
        ordered: dict[str, CodedColumn] = {}

        def add(name: str) -> None:
            if name in self._equal_to and name not in ordered:
                add(self._equal_to[name].other)
            ordered[name] = self[name]

        for coded in self.coded:
            add(coded.name)
        return list(ordered.values())

    @cached_property
    def token_columns(self) -> list[CodedColumn]:
        """The columns of the token matrix, in its order."""
        return [coded for coded in self.coded if coded.has_tokens]

    @cached_property
    def token_index(self) -> dict[str, int]:
        """Name -> column of the token matrix."""
        return {coded.name: index for index, coded in enumerate(self.token_columns)}

    @property
    def sizes(self) -> list[int]:
        """The number of codes of each column of the token matrix."""
        return [coded.size for coded in self.token_columns]

    def __getitem__(self, name: str) -> CodedColumn:
        return self.coded[self.schema.names.index(name)]

    def find(self, name: Any, what: str) -> CodedColumn:
        """A column that a user names; `what` begins the sentence if it does not exist."""
        names = self.schema.names
        if name not in names:
            raise UserError(f"{what} {name!r}, {unknown_column(str(name), names)}")
        return self[name]

    def at_centres(
        self, *, on_grid: Collection[str] = (), computed: Collection[str] = ()
    ) -> "TableCodec":
        """A codec for generation, whose numbers are the centres of bins, as in the paper. Tables
        are encoded by the codec itself.

        Columns of which others are computed have their centres on the grid; the others are as they
        are computed.
        """
        coded = []
        for one in self.coded:
            codec = one.codec
            if one.name not in computed:
                codec = codec.at_centres(on_grid=one.name in on_grid)
            coded.append(dataclasses.replace(one, codec=codec))
        return TableCodec(self.schema, tuple(coded))

    # --- tables to tokens ------------------------------------------------------------------

    def parse(self, table: pa.Table) -> TypedTable:
        """The columns of a table, each in its own type."""
        self.check_columns(table.column_names)
        typed = (parse_column(table.column(c.name), c) for c in self.schema.columns)
        return TypedTable.of(typed)

    def encode(self, table: TypedTable, warned: set[str] | None = None) -> TokenStore:
        """The tokens of a table, for training."""
        codes = self._codes(table.columns.values(), warned)
        return TokenStore(pack(codes, self.sizes, table.num_rows))

    def pack(self, dataset: Dataset, warned: set[str] | None = None) -> np.ndarray:
        """The tokens of a table in packed rows, with one of its columns in memory at a time."""
        self.check_columns(dataset.column_names)
        typed = (parse_column(dataset.column(c.name), c) for c in self.schema.columns)
        return pack(self._codes(typed, warned), self.sizes, dataset.num_rows)

    def _codes(
        self, columns: Iterable[TypedColumn], warned: set[str] | None
    ) -> Iterator[np.ndarray]:
        """The codes of each token column; the other columns are only checked."""
        for coded, typed in zip(self.coded, columns, strict=True):
            codes = coded.encode_checked(typed, warned=warned)
            if coded.has_tokens:
                yield codes

    def encode_partial(
        self, table: pa.Table, *, leave: Iterable[str] = (), warned: set[str] | None = None
    ) -> np.ndarray:
        """Tokens of rows that are to be completed, (rows, C): missing values, and columns that the
        table does not have, are MASK. In the columns of `leave` a missing value is known to be
        missing, if the model has learned that."""
        self.check_columns(table.column_names, all_of_them=False)
        leave = set(leave)
        tokens = np.full((table.num_rows, len(self.token_columns)), MASK, np.int64)
        for index, coded in enumerate(self.token_columns):
            if coded.name in table.column_names:
                typed = parse_column(table.column(coded.name), coded.column)
                codes = coded.encode_checked(typed, missing_expected=True, warned=warned)
                if coded.missing_code is not None and coded.name not in leave:
                    codes = np.where(codes == coded.missing_code, MASK, codes)
                tokens[:, index] = codes
        return tokens

    def encode_scored(self, table: pa.Table) -> ScoredCells:
        """Tokens for the likelihood of a table, which may hold values that were never seen."""
        typed = self.parse(table)
        changed = np.zeros(table.num_rows, np.int64)
        for coded in self.coded:
            if coded.column.kind == "constant" and not coded.has_tokens:
                changed += coded.encode(typed.columns[coded.name])[1]
        shape = (table.num_rows, len(self.token_columns))
        tokens, unseen = np.full(shape, MASK, np.int64), np.zeros(shape, bool)
        log_shares = np.zeros(shape)
        for index, coded in enumerate(self.token_columns):
            own = typed.columns[coded.name]
            codes, is_unseen = coded.encode(own)
            shares, impossible = self._log_shares(coded, codes, typed.columns)
            is_unseen[own.is_known] |= impossible
            log_shares[own.is_known, index] = shares
            log_shares[is_unseen, index] = 0.0
            tokens[:, index] = np.where(is_unseen, MASK, codes)
            unseen[:, index] = is_unseen
        return ScoredCells(tokens, unseen, log_shares, changed)

    def _log_shares(
        self, coded: CodedColumn, codes: np.ndarray, typed: Mapping[str, TypedColumn]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log of the share that the known values of a column have of their codes, given the numbers
        of the column whose numbers it may have; and which have none."""
        own = typed[coded.name]
        alone = coded.codec.log_shares(own.known, codes[own.is_known])
        equal, numeric = self._equal_to.get(coded.name), coded.codec.numeric
        if equal is None or numeric is None:
            return alone
        other = units_of(_numeric(self[equal.other]), typed[equal.other])[own.is_known]
        shares, impossible = alone
        mass = equal.mass(
            numeric,
            codes[own.is_known],
            numeric.grid.units(own.known),
            other,
            np.where(impossible, 0.0, np.exp(shares)),
        )
        return np.log(np.maximum(mass, 1e-300)), mass <= 0

    def check_columns(self, names: list[str], *, all_of_them: bool = True) -> None:
        """Refuse a table with columns that the model does not know, or without some it does."""
        check_names(names)
        for name in self.schema.names:
            if all_of_them and name not in names:
                raise UserError(
                    f"The table has no column {name!r}, which the model was fitted with; "
                    f"it has: {', '.join(names)}."
                )
        for name in names:
            if name not in self.schema.names:
                raise UserError(
                    f"The table has a column {name!r}, which the model was not fitted with; "
                    "remove it."
                )

    # --- tokens to tables ------------------------------------------------------------------

    def decode(
        self,
        tokens: np.ndarray,
        *,
        seed: int,
        first_row: int = 0,
        how: How = "inside",
        within: Mapping[str, Bounds] | None = None,
    ) -> pa.Table:
        """A table of the types that users get back, whose first row has the number `first_row`.

        `within` bounds the numbers of some columns, in units.
        """
        arrays: dict[str, pa.Array] = {}
        for coded in self._others_first:
            codes = np.zeros(len(tokens), np.int64)
            if coded.has_tokens:
                codes = tokens[:, self.token_index[coded.name]]
            rng = numpy_stream(seed, "decode", coded.name, first_row)
            bounds = None if within is None else within.get(coded.name)
            equal = self._equal_to.get(coded.name)
            if equal is not None and bounds is None and how == "inside":
                other = self[equal.other]
                typed = parse_column(pa.chunked_array([arrays[other.name]]), other.column)
                bounds = equal.draw(_numeric(coded), codes, units_of(_numeric(other), typed), rng)
            arrays[coded.name] = coded.decode(codes, Decoding(rng, how, bounds, first_row, seed))
        return pa.Table.from_arrays(
            [arrays[name] for name in self.schema.names], schema=self.schema.arrow
        )

    # --- on disk ---------------------------------------------------------------------------

    def check(self) -> None:
        """Decode every code of a codec that was read from a file: what cannot be sampled is found
        when it is loaded. Raises ValueError, or what Arrow raises."""
        if self.schema.source.pandas is not None:
            check_pandas(self.schema.source.pandas)
        decoding = Decoding(numpy_stream(0, "check"))
        for coded in self.coded:
            values = coded.decode(np.arange(coded.size if coded.has_tokens else 1), decoding)
            require(values.type == coded.column.type, f"column {coded.name!r} has another type")

    def to_parts(self) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Arrays and JSON that, together with the schema, are the codec."""
        arrays: dict[str, np.ndarray] = {}
        entries = []
        for index, coded in enumerate(self.coded):
            own, entry = coded.codec.to_parts()
            arrays |= {f"{index}.{key}": array for key, array in own.items()}
            if (equal := self._equal_to.get(coded.name)) is not None:
                arrays[f"{index}.{EQUAL_SHARES}"] = equal.shares
                entry = {**entry, EQUAL_TO: equal.other}
            entries.append(entry)
        return arrays, entries

    @classmethod
    def from_parts(
        cls, schema: Schema, arrays: Mapping[str, np.ndarray], entries: Any
    ) -> "TableCodec":
        """The inverse of `to_parts`. Raises ValueError if the parts do not fit together."""
        require(
            isinstance(entries, list) and len(entries) == len(schema.columns),
            "the codecs are not those of the columns",
        )
        check_names(schema.names)
        by_column: dict[str, dict[str, np.ndarray]] = {}
        for name, array in arrays.items():
            index, _, key = name.partition(".")
            by_column.setdefault(index, {})[key] = array
        coded: list[CodedColumn] = []
        equal = []
        for number, (column, entry) in enumerate(zip(schema.columns, entries, strict=True)):
            own = by_column.pop(str(number), {})
            if isinstance(entry, Mapping) and EQUAL_TO in entry:
                require(EQUAL_SHARES in own, "the shares of equal numbers are missing")
                equal.append(EqualNumbers(column.name, entry[EQUAL_TO], own.pop(EQUAL_SHARES)))
                entry = {key: value for key, value in entry.items() if key != EQUAL_TO}
            codec = codec_from_parts(own, entry)
            kind = "numeric" if column.kind == "datetime" else column.kind
            require(
                codec.kind == kind or codec.is_empty,  # of which nothing could be stored
                f"the codec of column {column.name!r} is of another kind",
            )
            coded.append(CodedColumn(column, codec))
        require(not by_column, "there are arrays of unknown columns")
        codec_of_table = cls(schema, tuple(coded), tuple(equal))
        codec_of_table._check_equal()
        return codec_of_table

    def _check_equal(self) -> None:
        """See that columns are equal to others of the same kind, and without a circle."""
        for one in self.equal:
            require(
                isinstance(one.other, str) and one.other in self.schema.names,
                "a column is equal to an unknown one",
            )
            own, other = self[one.column].codec.numeric, self[one.other].codec.numeric
            require(own is not None and other is not None, "equal columns are no numbers")
            assert own is not None and other is not None
            require(same_grid(own, other), "equal columns have different units")
            shares = one.shares
            require(shares.shape == (own.size,), "the shares of equal numbers do not fit")
            require(shares.dtype.kind == "f", "the shares of equal numbers are no numbers")
            require(bool(((shares >= 0) & (shares <= 1)).all()), "a share is not between 0 and 1")
            name, steps = one.other, 0
            while name in self._equal_to and steps <= len(self.equal):
                name, steps = self._equal_to[name].other, steps + 1
            require(steps <= len(self.equal), "equal columns form a circle")


def _numeric(coded: CodedColumn) -> NumericCodec:
    assert coded.codec.numeric is not None
    return coded.codec.numeric


def fit_column(typed: TypedColumn, config: CodecConfig, seed: int) -> CodedColumn:
    """The codec of one column of a table that is fitted with `seed`."""
    column: Column = typed.column
    return CodedColumn(column, fit_codec(typed, config, derive(seed, "codec", column.name)))


def log_protection(codec: "TableCodec", table: TypedTable, protect: int) -> None:
    """Say in how many columns rare values are not stored, and how many numbers are moved."""
    rare, moved = 0, []
    for coded in codec.coded:
        rare += coded.codec.has_rare
        if coded.codec.numeric is not None:
            moved.append(int(coded.encode(table.columns[coded.name])[1].sum()))
    log.info("protection: values in fewer than %d rows are not stored", protect)
    if rare:
        log.info("rare categories of %d column%s are not generated", rare, "s" * (rare != 1))
    if sum(moved):
        columns = sum(count > 0 for count in moved)
        log.info(
            "clipped %s rare extreme number%s in %d column%s",
            f"{sum(moved):,}",
            "s" * (sum(moved) != 1),
            columns,
            "s" * (columns != 1),
        )
