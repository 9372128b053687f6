"""What each column of a table is, and why: inferred, shown as JSON, edited by people, passed back.

    numeric      whole numbers and floats, quantised and learned in order
    datetime     dates, times and timestamps, likewise
    categorical  text, booleans and few-valued codes
    constant     one value (or nothing but gaps): returned as it is
    id           regenerated, never learned

Knows Arrow columns, not files, and nothing of codes: codecs.py turns this into tokens.
"""

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.config import Gaps, Quantizer
from tabmt.data import missing as spelling
from tabmt.data import text_formats as text
from tabmt.data.units import (
    find_decimals,
    is_number,
    is_time,
    raw_values,
    time_too_wide,
    too_wide,
)
from tabmt.data.units import time_step as time_step_of
from tabmt.errors import UserError, read_json

Kind = Literal["numeric", "datetime", "categorical", "constant", "id"]
SourceKind = Literal["pandas", "polars", "arrow", "csv", "parquet", "ipc"]

FEW_VALUES = 10  # whole numbers with so few distinct values are codes ...
ROWS_PER_VALUE = 5  # ... if each is seen so often on average
LEAST_ID_ROWS = 20  # in fewer rows, being unique or consecutive may be chance
KEY_NAME = re.compile(
    r"(?i:(^|[\W_])(id|key|uuid|guid|index|idx|row_?number|row_?id|unnamed: \d+)$)"
    r"|[a-z](Id|ID|Key|Number)$"
    r"|^$|^__index_level_\d+__$"  # how pandas writes an index into a file
)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. `dtype` is the type the caller gets back, written as Arrow writes it."""

    name: str
    kind: Kind
    dtype: str
    gaps: Literal["none", "learned", "masked"] = "none"
    decimals: int | None = None  # numeric: digits behind the point, negative for tens; None: any
    time_step: str | None = None  # datetime: every value is a multiple of this
    format: str | None = None  # how the values look as text (text.py)
    gap_text: str | None = None  # how a gap is spelled in that text
    quantizer: Quantizer | None = None  # None: as configured for the whole table
    max_bins: int | None = None
    reason: str = ""

    @property
    def type(self) -> pa.DataType:
        return parse_type(self.dtype)


class Columnar(Protocol):
    """What is asked of a table that is learned: an Arrow table, or one read column by column."""

    @property
    def num_rows(self) -> int: ...

    @property
    def num_columns(self) -> int: ...

    @property
    def column_names(self) -> list[str]: ...

    def column(self, name: str, /) -> pa.ChunkedArray: ...


@dataclass(frozen=True)
class Source:
    """Where a table came from, so that the same kind of table can be given back."""

    kind: SourceKind
    pandas: str | None = None  # pandas' own description of its dtypes (JSON)


@dataclass(frozen=True)
class Schema:
    columns: tuple[Column, ...]
    source: Source = Source("arrow")
    rules: Mapping[str, str] = field(default_factory=dict)  # name -> rule (rules.py)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the tables that come back."""
        metadata = None if self.source.pandas is None else {"pandas": self.source.pandas}
        fields = [pa.field(column.name, column.type) for column in self.columns]
        return pa.schema(fields, metadata=metadata)

    def to_json(self) -> dict[str, Any]:
        columns = []
        for column in self.columns:
            entries = dataclasses.asdict(column).items()
            always = ("name", "kind", "dtype", "gaps", "reason")
            columns.append({k: v for k, v in entries if k in always or v is not None})
        found = {"columns": columns, "source": dataclasses.asdict(self.source)}
        return found | ({"rules": dict(self.rules)} if self.rules else {})

    def edits(self) -> dict[str, Any]:
        """As overrides of `infer`, for tables of these types: what a person could have set."""
        columns = []
        for one in self.columns:
            set_ = {key: value for key in EDITABLE if (value := getattr(one, key)) is not None}
            if not text.is_text(one.type):
                set_.pop("gap_text", None)  # of these types, numbers and dates have been read
            columns.append({"name": one.name, **set_})
        return {"columns": columns, "rules": dict(self.rules)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Schema":
        """Read what `to_json` wrote; for a person's edits see `infer(overrides=...)`."""
        columns = tuple(Column(**entry) for entry in data["columns"])
        for column in columns:
            assert column.kind in get_args(Kind)
            parse_type(column.dtype)
        return cls(columns, Source(**data["source"]), dict(data.get("rules", {})))


def plain_schema(arrow: pa.Schema) -> Schema:
    """A schema for tables of our own making, which nobody learns."""
    return Schema(
        tuple(Column(name=one.name, kind="categorical", dtype=str(one.type)) for one in arrow)
    )


def parse_type(text_: str) -> pa.DataType:
    """The Arrow type that prints as `text_`. Covers the flat types that tables hold."""
    if match := re.fullmatch(r"dictionary<values=(.+), indices=(u?int\d+), ordered=([01])>", text_):
        return pa.dictionary(parse_type(match[2]), parse_type(match[1]), match[3] == "1")
    if match := re.fullmatch(r"timestamp\[(s|ms|us|ns)(?:, tz=(.+))?\]", text_):
        return pa.timestamp(match[1], tz=match[2])
    if match := re.fullmatch(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)", text_):
        return getattr(pa, f"decimal{match[1]}")(int(match[2]), int(match[3]))
    try:
        return pa.type_for_alias(
            {"date32[day]": "date32", "date64[ms]": "date64"}.get(text_, text_)
        )
    except ValueError as error:
        raise UserError(f"{text_!r} is not a column type that TabMT knows.") from error


EDITABLE = ("kind", "gaps", "gap_text", "decimals", "quantizer", "max_bins")


def infer(
    table: Columnar,
    source: Source = Source("arrow"),
    *,
    gaps: Gaps = "learned",
    overrides: Mapping[str, Any] | None = None,
) -> Schema:
    """The schema of a table, with a reason for each column.

    `overrides` is a schema as JSON: its columns may be few, and of each only what differs need
    be given (kind, gaps, gap_text, decimals, quantizer, max_bins). A `gap_text` beside the columns
    is that of every text column that holds it.
    """
    check_table(table)
    edits = _edits(overrides, table.column_names)
    spelled = None if overrides is None else overrides.get("gap_text")
    columns = [
        _infer_column(name, table.column(name), source.kind == "csv", gaps, edits[name], spelled)
        for name in table.column_names
    ]
    return Schema(tuple(columns), source, _rules(overrides))


def read_overrides(schema: Any) -> Mapping[str, Any] | None:
    """What a person set: the path of a JSON file, its content, or nothing."""
    return read_json(str(schema), "schema") if isinstance(schema, str | Path) else schema


def _rules(overrides: Mapping[str, Any] | None) -> dict[str, str]:
    rules = {} if overrides is None else overrides.get("rules", {})
    if not isinstance(rules, Mapping) or not all(isinstance(rule, str) for rule in rules.values()):
        raise UserError('The rules of a schema are of the form {"rules": {"name": "rule", ...}}.')
    return {str(name): rule for name, rule in rules.items()}


def check_table(table: Columnar) -> None:
    if table.num_columns == 0:
        raise UserError("The table has no columns.")
    if table.num_rows == 0:
        raise UserError("The table has no rows, so there is nothing to learn.")
    check_names(table.column_names)


def check_names(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        listed = ", ".join(repr(name) for name in twice)
        raise UserError(f"Column names must differ, but these stand twice: {listed}. Rename them.")


def _edits(overrides: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    if overrides is None:
        return {name: {} for name in names}
    entries = overrides.get("columns", []) if isinstance(overrides, Mapping) else None
    if not isinstance(entries, list) or not all(
        isinstance(entry, Mapping) and isinstance(entry.get("name"), str) for entry in entries
    ):
        raise UserError(
            'A schema is JSON of the form {"columns": [{"name": ..., "kind": ...}, ...]}; '
            "`tabmt schema TABLE` writes one to start from."
        )
    for key in overrides:
        if key not in ("columns", "source", "rules", "gap_text"):
            raise UserError(
                f"The schema has an entry {key!r}; it can have: columns, rules, gap_text."
            )
    _check_text(overrides, "the table")
    known = {item.name for item in dataclasses.fields(Column)}
    for entry in entries:
        name = entry["name"]
        if name not in names:
            raise UserError(f"The schema has a column {name!r}, {but_the_table_has(name, names)}")
        for key in entry:
            if key not in known:
                raise UserError(
                    f"The schema of column {name!r} has an entry {key!r}; "
                    f"you can set: {', '.join(EDITABLE)}."
                )
        _check_choice(entry, "kind", get_args(Kind))
        _check_choice(entry, "gaps", ("none", *get_args(Gaps)))
        _check_choice(entry, "quantizer", (None, *get_args(Quantizer)))
        _check_text(entry, f"column {name!r}")
        _check_whole(entry, "decimals", -6, 10)
        _check_whole(entry, "max_bins", 2, 2**31)
    by_name = {entry["name"]: dict(entry) for entry in entries}
    return {name: by_name.get(name, {}) for name in names}


def but_the_table_has(name: str, names: Sequence[str]) -> str:
    """The end of a sentence about a column that does not exist."""
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"but the table has: {', '.join(names)}.{hint}"


def _check_choice(entry: Mapping[str, Any], key: str, choices: tuple[Any, ...]) -> None:
    if key in entry and entry[key] not in choices:
        allowed = ", ".join(choice for choice in choices if choice is not None)
        raise UserError(
            f"The schema sets {key} of column {entry['name']!r} to {entry[key]!r}; "
            f"it must be one of: {allowed}."
        )


def _check_text(entry: Mapping[str, Any], of: str) -> None:
    if not isinstance(entry.get("gap_text", ""), str | None):
        raise UserError(
            f"The schema sets gap_text of {of} to {entry['gap_text']!r}; it must be a text, "
            'such as "NA".'
        )


def _check_whole(entry: Mapping[str, Any], key: str, low: int, high: int) -> None:
    value = entry.get(key)
    if value is not None and not (type(value) is int and low <= value <= high):
        raise UserError(
            f"The schema sets {key} of column {entry['name']!r} to {value!r}; "
            f"it must be a whole number from {low} to {high}."
        )


def _infer_column(
    name: str,
    column: pa.ChunkedArray,
    untyped: bool,
    gaps: Gaps,
    edit: dict[str, Any],
    spelled: str | None,
) -> Column:
    given, dtype, fmt, gap_text, read_as = column, column.type, None, None, ""
    found, told, hint = spelling.look(name, column, edit, spelled)
    if told is not None and "reason" in edit:
        # A schema that was taken down before the spelling was told says what held without it.
        before = dataclasses.asdict(_infer_column(name, column, untyped, gaps, {}, None))
        if edit["reason"] == before["reason"]:
            edit = {key: value for key, value in edit.items() if value != before[key]}
    if found is not None:
        column = text.read(combine(column), found.format, found.dtype, found.gap_text)
        column = pa.chunked_array([column])
        fmt, gap_text, read_as = found.format, found.gap_text, found.reason + "; "
    wanted = edit.get("kind")
    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (
        is_number(value_type)
        or is_time(value_type)
        or text.is_text(value_type)
        or pa.types.is_boolean(value_type)
        or pa.types.is_null(value_type)
    ):
        raise UserError(
            f"Column {name!r} has type {value_type}, but TabMT learns numbers, text, booleans, "
            "dates and times. Turn it into text, or leave the column out."
        )
    values, found_gaps, nan_note = known_values(column)
    kind, reason = _kind(name, values, found_gaps, pa.types.is_dictionary(column.type))
    follow: tuple[str, ...] = ("dtype", "time_step", "format")  # a person may only repeat them
    if wanted is not None and wanted != kind:
        follow = ("dtype",)  # the others follow from the kind too
        _check_kind(name, wanted, values, found_gaps)
        kind, reason = wanted, f"set in the schema (inferred: {kind}, {reason})"
    decimals = time_step = None
    if kind == "numeric":
        if pa.types.is_duration(values.type):
            time_step = time_step_of(values)
        else:
            decimals = find_decimals(raw_values(values), values.type)
        if edit.get("decimals") is not None and edit["decimals"] != decimals:
            if not pa.types.is_floating(values.type):
                raise UserError(
                    f"The schema sets decimals of column {name!r} to {edit['decimals']}, but its "
                    f"values are {values.type}; only floats can be rounded."
                )
            reason += f"; decimals set in the schema (inferred: {decimals})"
            decimals = edit["decimals"]
    elif kind == "datetime":
        time_step = time_step_of(values)
    if told is not None and fmt is not None and kind in ("numeric", "datetime"):
        spelling.check_outside(name, told, fmt, values, decimals)
    if fmt is not None:
        if untyped:
            dtype = column.type  # a CSV file has no types of its own
        elif kind not in ("numeric", "datetime"):
            # It stays text, and NA a word like others unless a person says that it is a gap.
            if told is None:
                fmt, gap_text, read_as = None, None, ""
                values, found_gaps, nan_note = known_values(given)
            else:
                fmt = "text"
    mode: Any = "none"
    if found_gaps and len(values):
        mode = edit.get("gaps", gaps)
        if mode == "none":
            raise UserError(
                f"The schema says column {name!r} has no gaps, but it has {found_gaps}. "
                "Set gaps to learned or masked."
            )
    inferred = Column(
        name=name,
        kind=kind,
        dtype=str(dtype),
        gaps=mode,
        decimals=decimals,
        time_step=time_step,
        format=fmt,
        gap_text=gap_text,
        quantizer=edit.get("quantizer"),
        max_bins=edit.get("max_bins"),
        reason=read_as + reason + nan_note + (hint if gap_text is None or told is not None else ""),
    )
    for key in follow:
        if key in edit and edit[key] != getattr(inferred, key):
            raise UserError(
                f"The schema sets {key} of column {name!r} to {edit[key]!r}, but the table has "
                f"{getattr(inferred, key)!r}; you can set: {', '.join(EDITABLE)}."
            )
    return inferred


def known_values(column: pa.ChunkedArray) -> tuple[pa.Array, int, str]:
    """The values of a column without its gaps, the number of gaps, and a note on NaN."""
    array = combine(column)
    gaps, note = array.null_count, ""
    values = array.drop_null()
    if pa.types.is_floating(values.type):
        nan = pc.is_nan(values)
        found = pc.sum(nan).as_py() or 0
        if found:
            values = values.filter(pc.invert(nan))
            gaps += found
            note = f"; {found} NaN are read as gaps"
    return values, gaps, note


def combine(column: pa.ChunkedArray) -> pa.Array:
    """One plain array, dictionaries and string views decoded."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type) or (
        pa.types.is_string(column.type) and column.nbytes >= 2**31  # too long for one such array
    ):
        column = column.cast(pa.large_string())
    chunks = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    # combine_chunks leaves a ChunkedArray where it takes the chunks for too many
    return pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks


def _kind(name: str, values: pa.Array, gaps: int, is_dictionary: bool) -> tuple[Kind, str]:
    if len(values) == 0:
        return "constant", "nothing but gaps"
    distinct = pc.count_distinct(values).as_py()
    if distinct == 1 and gaps == 0:
        return "constant", "one value in every row"
    unique = distinct == len(values) and len(values) >= LEAST_ID_ROWS
    if is_dictionary:
        return "categorical", f"declared as categories, {distinct} in use"
    if pa.types.is_boolean(values.type):
        return "categorical", "booleans"
    if text.is_text(values.type):
        if unique:
            return "id", "text that differs in every row"
        many = distinct > len(values) / 2 and distinct >= LEAST_ID_ROWS
        hint = "; nearly all differ: kind id would regenerate them" if many else ""
        return "categorical", f"text with {distinct} distinct values{hint}"
    raw = raw_values(values)
    if is_time(values.type):
        if time_too_wide(raw, values.type):
            return "categorical", "times with more digits than float64 can tell apart"
        if pa.types.is_duration(values.type):
            return "numeric", "durations"
        return "datetime", f"values of type {values.type}"
    whole = _all_whole(raw, values.type)
    finite = raw[np.isfinite(raw)] if raw.dtype.kind == "f" else raw
    if len(finite) == 0:
        return "categorical", "nothing but infinities"
    decimal = pa.types.is_decimal(values.type)
    if whole and distinct == len(values) and len(finite) == len(values) and not decimal:
        if KEY_NAME.search(name):
            called = "under the name of a key" if name else "without a name, as an index"
            return "id", f"whole numbers that differ in every row, {called}"
        if unique and int(raw.max()) - int(raw.min()) == len(raw) - 1:
            return "id", "consecutive whole numbers, one to a row"
        if unique and too_wide(raw):
            return "id", "whole numbers that differ in every row, spread beyond 2^53"
    if raw.dtype.kind != "f" and (raw.dtype == object or too_wide(raw)):
        return "categorical", "numbers with more digits than float64 can tell apart"
    if whole and distinct <= FEW_VALUES and len(values) >= ROWS_PER_VALUE * distinct:
        return "categorical", f"{distinct} distinct whole numbers: taken for codes"
    infinite = len(raw) - len(finite)
    also = f"; {infinite} infinities keep codes of their own" if infinite else ""
    what = "whole numbers" if whole else "numbers"
    return "numeric", f"{what} with {distinct} distinct values{also}"


def _all_whole(raw: np.ndarray, dtype: pa.DataType) -> bool:
    if raw.dtype.kind != "f":
        return not pa.types.is_decimal(dtype) or dtype.scale <= 0
    finite = raw[np.isfinite(raw)]
    return bool(np.all(finite == np.floor(finite)))


def _check_kind(name: str, kind: str, values: pa.Array, gaps: int) -> None:
    """Refuse a kind that a person set but the values cannot have."""
    can: list[str] = ["categorical"]
    if len(values) == 0:
        can = ["constant"]
    elif text.is_text(values.type):
        can += ["id"]
    elif is_time(values.type):
        if not time_too_wide(raw_values(values), values.type):
            can += ["numeric"] if pa.types.is_duration(values.type) else ["datetime"]
    elif is_number(values.type):
        raw = raw_values(values)
        finite = raw.dtype.kind != "f" or bool(np.isfinite(raw).all())
        if raw.dtype.kind == "f" or not (raw.dtype == object or too_wide(raw)):
            can += ["numeric"]
        decimal = pa.types.is_decimal(values.type)
        if finite and _all_whole(raw, values.type) and not decimal:
            can += ["id"]
    if kind not in can:
        raise UserError(
            f"The schema calls column {name!r} {kind}, but its values are {values.type}"
            f"{' with gaps' if gaps else ''}; it can be: {', '.join(can)}."
        )
