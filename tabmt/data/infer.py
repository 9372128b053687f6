"""Find out what each column of a table is, and say why.

A column passes these steps: how is its text read, what kind is it, how fine are its values, what
happens to its missing values. What users set in a schema is applied, and checked, on the way.
Very large tables are inferred from some of their rows; then all rows are scanned for what differs.
"""

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt import parallel
from tabmt.config import CodecConfig
from tabmt.data import text_formats
from tabmt.data.arrow_types import (
    check_learnable,
    check_times,
    is_number,
    is_text,
    is_time,
    plain_array,
    value_type,
)
from tabmt.data.dataset import Dataset
from tabmt.data.missing import (
    contains,
    missing_scalar,
    missing_texts_in,
    nan_to_null,
    read_text,
    to_null,
)
from tabmt.data.overrides import EDITABLE, Overrides, parse_overrides
from tabmt.data.personal import find_form, is_named_like_key
from tabmt.data.protection import ValueCounts, can_be_stored, least_rows, most_needed
from tabmt.data.relations.find import find_rules
from tabmt.data.schema import MOST_TEXT, Column, Kind, Schema, SchemaRules, check_names
from tabmt.data.typed_columns import TypedColumn, declared_categories, parse_column
from tabmt.data.units import (
    find_decimals,
    local_time,
    raw_values,
    time_step,
    time_too_wide,
    too_wide,
)
from tabmt.errors import UserError

log = logging.getLogger(__name__)

ROWS_PER_VALUE = 5  # whole numbers with few distinct values are categories, if each is so frequent
MOST_RARE_TEXT = 0.5  # share of the rows that may hold rare text before it is generated anew
LEAST_ID_ROWS = 20  # in fewer rows, unique or consecutive values may be chance
SAMPLED_ROWS = 2**25  # by which a larger table is inferred: such a column of text is a gigabyte


def infer_schema(
    table: Any,
    *,
    config: CodecConfig | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Schema:
    """The schema of a table of any size, with a reason for each column.

    `overrides` is the content of a schema file: its columns may be few, and of each only what
    differs has to be given.
    """
    dataset = Dataset.open(table)
    inference = Inference.of(dataset, config or CodecConfig(), overrides)
    columns = {typed.column.name: typed.column for typed in inference.columns(dataset)}
    if is_sampled(dataset):
        for name in scan(dataset, columns, inference.overrides).differing:
            columns[name] = inference.column(name, dataset.column(name)).column
    schema = Schema(tuple(columns.values()), dataset.source)
    return schema.with_rules(inference.rules(dataset, columns))


@dataclass(frozen=True)
class Inference:
    """How the columns of one table are inferred."""

    untyped: bool  # whether the table comes from a CSV file, whose columns are all text
    config: CodecConfig  # what applies unless a user says otherwise of a column
    overrides: Overrides

    @classmethod
    def of(
        cls, dataset: Dataset, config: CodecConfig, overrides: Mapping[str, Any] | None
    ) -> "Inference":
        check_not_empty(dataset)
        parsed = parse_overrides(overrides, dataset.column_names)
        if dataset.num_rows < least_rows(config.protect):  # which `fit` refuses
            config = dataclasses.replace(config, protect=0)
        return cls(dataset.source.kind == "csv", config, parsed)

    def columns(self, dataset: Dataset) -> Iterator[TypedColumn]:
        """One column after the other, so that only one has to be in memory; of a very large table,
        by some of its rows."""
        some = dataset.sample(SAMPLED_ROWS)
        for name in dataset.column_names:
            array = some.column(name)
            if is_sampled(dataset) and self._contradicts_schema_file(name, array):
                array = dataset.column(name)
            yield self.column(name, array)

    def rules(self, dataset: Dataset, columns: Mapping[str, Column]) -> SchemaRules:
        """The rules that a user has set, otherwise the relations that the table has."""
        if self.overrides.rules is not None:
            return self.overrides.rules
        return (
            find_rules(dataset, columns, self.config) if self.config.find_rules else SchemaRules()
        )

    def column(self, name: str, array: pa.ChunkedArray) -> TypedColumn:
        return _infer_column(name, array, self, self.overrides.of(name))

    def _contradicts_schema_file(self, name: str, array: pa.ChunkedArray) -> bool:
        """Whether some rows of a column differ from what `tabmt schema` wrote about all of them."""
        entries = self.overrides.of(name)
        if "reason" not in entries:
            return False
        chosen = {key: entries[key] for key in entries.get("set_by_user", ()) if key in entries}
        column = _infer_column(name, array, self, chosen).column
        return any(entries.get(key) != getattr(column, key) for key in ("kind", "dtype", "format"))


def is_sampled(dataset: Dataset) -> bool:
    """Whether a table is so large that it is inferred from some of its rows."""
    return dataset.sample(SAMPLED_ROWS).num_rows < dataset.num_rows


def check_not_empty(dataset: Dataset) -> None:
    if dataset.num_columns == 0:
        raise UserError("The table has no columns.")
    if dataset.num_rows == 0:
        raise UserError("The table has no rows, so there is nothing to learn.")
    check_names(dataset.column_names)


# --- one column ----------------------------------------------------------------------------


def _infer_column(
    name: str, array: pa.ChunkedArray, inference: Inference, entries: Mapping[str, Any]
) -> TypedColumn:
    _check_length(name, array)
    check_times(name, array)
    reading = _find_reading(name, array, entries, inference.overrides.missing_text)
    entries = _without_outdated(name, array, inference, entries, reading)
    check_learnable(name, array.type)
    values, nan_note = _read_values(array, reading, inference.untyped)
    known = values.drop_null()
    inferred = _find_kind(
        name, known, values.null_count, pa.types.is_dictionary(array.type), inference.config
    )
    kind, reason = _apply_kind(name, entries, inferred, known, values.null_count)
    decimals, step, precision_reason = _find_precision(name, kind, known, entries)
    _check_missing_text_outside(name, kind, reading, known, decimals)
    keeps_text = not inference.untyped or text_formats.is_styled(reading.format)
    if reading.format and keeps_text and kind not in ("numeric", "datetime"):
        reading = reading.as_plain_text()
        values, nan_note = _read_values(array, reading, inference.untyped)
        known = values.drop_null()
    keeps_text = not inference.untyped or text_formats.is_styled(reading.format)
    dtype = array.type if reading.format is None or keeps_text else values.type
    column = Column(
        name=name,
        kind=kind,
        dtype=str(dtype),
        missing=_missing_mode(name, entries, inference.config.missing, known, values.null_count),
        decimals=decimals,
        time_step=step,
        format=reading.format,
        missing_text=reading.missing_text,
        quantizer=entries.get("quantizer"),
        max_bins=entries.get("max_bins"),
        reason=reading.reason + reason + precision_reason + nan_note + reading.note,
    )
    note = _protection_note(kind, known, inference.config.protect)
    column = dataclasses.replace(column, reason=column.reason + note)
    _check_fixed_entries(column, entries, FIXED if kind == inferred[0] else ("dtype",))
    chosen = {
        "kind": kind != inferred[0],
        "missing": column.missing not in ("none", inference.config.missing),
        "missing_text": reading.set_by_user and not reading.also_automatic,
        "decimals": bool(precision_reason),
        "quantizer": column.quantizer is not None,
        "max_bins": column.max_bins is not None,
    }
    before = entries.get("set_by_user", ())
    set_by_user = tuple(key for key in EDITABLE if chosen[key] or key in before)
    column = dataclasses.replace(column, set_by_user=set_by_user)
    return TypedColumn(column, values, declared_categories(array, values.type))


def _protection_note(kind: Kind, known: pa.Array, protect: int) -> str:
    """What of a column is not stored because too few rows share it."""
    if protect == 0:
        return ""
    if can_be_stored(kind, known, protect):
        if kind not in ("numeric", "datetime"):
            return ""
        raw = raw_values(known)
        rare = any((raw == end).sum() < protect for end in (raw.min(), raw.max()))
        return f"; extreme values in fewer than {protect} rows are clipped" if rare else ""
    if kind == "categorical":
        why = "hardly any value occurs in enough rows"
    else:
        why = f"only {len(known)} rows have a value, and {least_rows(protect)} are needed"
    return f"; {why} (protect {protect}), so none is stored and all are generated as missing"


def _check_length(name: str, array: pa.ChunkedArray) -> None:
    """Refuse text that no sample could hold many times."""
    if is_text(value_type(array.type)):
        lengths = pc.binary_length(array.cast(pa.large_string()))  # views have no such function
        if (longest := pc.max(lengths).as_py() or 0) > MOST_TEXT:
            raise UserError(
                f"Column {name!r} has a cell of {longest:,} bytes; TabMT learns text of up to "
                f"{MOST_TEXT:,}. Shorten the cells, or remove the column."
            )


FIXED = ("dtype", "time_step", "format")  # a schema file repeats them, but cannot change them


def _check_fixed_entries(
    column: Column, entries: Mapping[str, Any], fixed: tuple[str, ...]
) -> None:
    """Refuse to change what follows from the table."""
    for key in fixed:
        if key in entries and entries[key] != getattr(column, key):
            raise UserError(
                f"The {key} of column {column.name!r} cannot be changed (schema: {entries[key]!r}, "
                f"table: {getattr(column, key)!r}). Editable entries: {', '.join(EDITABLE)}."
            )


# --- how text is read ----------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """How the text of a column is read. Columns of other types have no format."""

    format: str | None = None
    dtype: pa.DataType | None = None
    missing_text: str | None = None
    set_by_user: bool = False  # whether a user named the missing_text ...
    also_automatic: bool = False  # ... although it would have been recognised anyway
    reason: str = ""
    hint: str = ""

    @property
    def note(self) -> str:
        """The hint, unless the text that it is about was recognised as missing."""
        return self.hint if self.missing_text is None or self.set_by_user else ""

    def as_plain_text(self) -> "Reading":
        """For a column that stays text: only a missing_text that a user named still counts."""
        if self.set_by_user:
            return dataclasses.replace(self, format="text", also_automatic=False)
        return Reading(hint=self.hint)


def recognise(texts: pa.Array | pa.ChunkedArray, missing_text: str | None = None) -> Reading | None:
    """How texts are read as numbers or dates, all of them; None if they are plain text.

    A user's `missing_text` is a missing value, and every missing value is written so.
    """
    words = pc.unique(texts).cast(pa.string())
    has_nulls = words.null_count > 0
    words = words.drop_null()
    set_by_user = missing_text is not None
    if not set_by_user:
        spellings = missing_texts_in(words)
        if len(spellings) + has_nulls > 1:
            return None  # two spellings of a missing value could not both be written back
        missing_text = spellings[0] if spellings else None
    if missing_text is not None:
        words = words.filter(pc.not_equal(words, missing_text))
    found = text_formats.find_format(words)
    user_note = ""
    if set_by_user:
        also = f"; empty cells too, and they are returned as {missing_text!r}" if has_nulls else ""
        user_note = f"{missing_text!r} is missing, set in the schema{also}; "
    if found is None:
        if not set_by_user:
            return None
        return Reading("text", pa.string(), missing_text, set_by_user, reason=user_note)
    automatic = missing_text is not None and not set_by_user
    marker = f", {missing_text!r} as missing" if automatic else ""
    reason = f"text read as {found.description}{marker}; {user_note}"
    return Reading(found.name, found.dtype, missing_text, set_by_user, reason=reason)


def _find_reading(
    name: str,
    array: pa.ChunkedArray,
    entries: Mapping[str, Any],
    table_missing_text: str | None,
) -> Reading:
    """How a column is read: by its own `missing_text`, by the table's, or by what it contains."""
    missing_text = entries.get("missing_text")
    if "missing_text" in entries:
        table_missing_text = None
    if not is_text(value_type(array.type)):
        return _reading_of_values(name, array, missing_text, table_missing_text)
    words = pc.unique(array).cast(pa.string())
    if table_missing_text is not None and contains(words, table_missing_text):
        missing_text = table_missing_text
    if pa.types.is_dictionary(array.type):
        if missing_text is None:
            return Reading()
        raise UserError(
            f"missing_text ({missing_text!r}) is for text columns, but column {name!r} has a "
            "categorical type. Convert it to text, or set its missing_text to null."
        )
    if missing_text is not None:
        return _reading_by_user(name, words, missing_text)
    reading = recognise(words) or Reading()
    if not (spellings := missing_texts_in(words)):
        return reading
    hint = f"; {spellings[0]!r} is a word here, unless missing_text says that it is missing"
    return dataclasses.replace(reading, hint=hint)


def _reading_by_user(name: str, words: pa.Array, missing_text: str) -> Reading:
    by_itself = recognise(words)
    if by_itself is not None and by_itself.missing_text is not None:
        if by_itself.missing_text != missing_text:
            raise _two_spellings(name, by_itself.missing_text, missing_text)
        return dataclasses.replace(by_itself, set_by_user=True, also_automatic=True)
    reading = recognise(words, missing_text)
    assert reading is not None
    if reading.format == "text":
        spellings = missing_texts_in(words)
        rest = words.filter(pc.invert(pc.is_in(words, pa.array(spellings, pa.string()))))
        if spellings and missing_text not in spellings and len(rest.drop_null()) > 1:
            without = recognise(rest, missing_text)
            if without is not None and without.format != "text":
                raise _two_spellings(name, spellings[0], missing_text)
    if contains(words, missing_text):
        return reading
    hint = f"; no row contains {missing_text!r}, the missing_text of the schema"
    return dataclasses.replace(reading, hint=hint)


def _two_spellings(name: str, found: str, missing_text: str) -> UserError:
    return UserError(
        f"Column {name!r} contains {found!r} for missing values, but the schema sets missing_text "
        f"to {missing_text!r}. Use one spelling in the table, or set missing_text of this column "
        "to null."
    )


def _reading_of_values(
    name: str, array: pa.ChunkedArray, missing_text: str | None, table_missing_text: str | None
) -> Reading:
    """A column that is not text, in which missing values are not written as text."""
    if missing_text is not None:
        raise UserError(
            f"The schema sets missing_text of column {name!r} to {missing_text!r}, but its values "
            f"are {array.type}; missing_text is for text. Leave these cells empty in the table."
        )
    dtype = value_type(array.type)
    value = missing_scalar(dtype, None, table_missing_text)
    if value is None or not contains(pc.unique(array.cast(dtype)), value):
        return Reading()
    return Reading(hint=f"; {table_missing_text!r} is a value here: missing_text is for text")


def _read_values(array: pa.ChunkedArray, reading: Reading, untyped: bool) -> tuple[pa.Array, str]:
    """The values that a column stands for, with nulls for missing values, and a note on NaN."""
    values = plain_array(array)
    if reading.format is not None:
        dtype = reading.dtype if untyped else text_formats.read_type(reading.format)
        assert dtype is not None
        values = read_text(values, reading.format, dtype, reading.missing_text)
    without_nan = nan_to_null(values)
    count = without_nan.null_count - values.null_count
    return without_nan, f"; {count} NaN are read as missing" if count else ""


def _without_outdated(
    name: str,
    array: pa.ChunkedArray,
    inference: Inference,
    entries: Mapping[str, Any],
    reading: Reading,
) -> Mapping[str, Any]:
    """Entries that a schema file only repeats from before its missing_text was set.

    `tabmt schema` writes every entry. When a user then adds a missing_text, the others still say
    what was inferred without it, which is no choice of the user's.
    """
    chosen = entries.get("set_by_user", ())
    if not reading.set_by_user or "reason" not in entries or "missing_text" in chosen:
        return entries
    plain = dataclasses.replace(inference, overrides=Overrides())
    before = dataclasses.asdict(_infer_column(name, array, plain, {}).column)
    return {key: value for key, value in entries.items() if key in chosen or value != before[key]}


def _check_missing_text_outside(
    name: str, kind: Kind, reading: Reading, known: pa.Array, decimals: int | None
) -> None:
    """A number between the others could be generated, and would then be missing."""
    if not reading.set_by_user or reading.format is None or kind not in ("numeric", "datetime"):
        return
    missing = missing_scalar(known.type, reading.format, reading.missing_text)
    if missing is None:
        return
    ends = pc.min_max(known).as_py()
    low, high = ends["min"], ends["max"]
    if decimals is not None:
        low, high = round(low, decimals), round(high, decimals)
    if low <= missing.as_py() <= high:
        raise UserError(
            f"The schema sets missing_text of column {name!r} to {reading.missing_text!r}, which "
            "lies within the range of the column, so a generated value could be mistaken for a "
            "missing one. Leave these cells empty, or set its kind to categorical."
        )


# --- what kind of column it is -------------------------------------------------------------


def _find_kind(
    name: str, known: pa.Array, missing_count: int, is_dictionary: bool, config: CodecConfig
) -> tuple[Kind, str]:
    """The kind of a column by its known values, and why."""
    if len(known) == 0:
        return "constant", "every value is missing"
    distinct = pc.count_distinct(known).as_py()
    if distinct == 1 and missing_count == 0:
        return "constant", "the same value in every row"
    if is_dictionary:
        note = _rare_note(ValueCounts.of(known), config.protect)
        if is_text(known.type) and not can_be_stored("categorical", known, config.protect):
            return "id", f"declared as categories, {distinct} in use{_regenerated(config.protect)}"
        return "categorical", f"declared as categories, {distinct} in use{note}"
    if pa.types.is_boolean(known.type):
        return "categorical", "booleans"
    if is_text(known.type):
        return _kind_of_text(name, known, distinct, config)
    if is_time(known.type):
        return _kind_of_times(known)
    return _kind_of_numbers(name, known, distinct, config)


def _kind_of_text(
    name: str, known: pa.Array, distinct: int, config: CodecConfig
) -> tuple[Kind, str]:
    # PAPER-DIFF find_ids: the paper knows no ids. The values of a key would be learned by heart.
    form = find_form(name, pc.unique(known)) if config.find_ids else None
    if form is not None and form.key != "name":
        return "id", f"{form.description}: new ones are generated"
    if config.find_ids and distinct == len(known) and len(known) >= LEAST_ID_ROWS:
        return "id", "text that is unique in every row"
    counts = ValueCounts.of(known)
    few = counts.rare_share(config.protect) > MOST_RARE_TEXT and config.find_ids
    if few or not can_be_stored("categorical", known, config.protect):
        what = "text" if form is None else form.description
        return "id", f"{what} with {distinct} distinct values{_regenerated(config.protect)}"
    many = distinct > len(known) / 2 and distinct >= LEAST_ID_ROWS
    hint = "; almost all are unique: with kind id, new ones would be generated" if many else ""
    note = _rare_note(counts, config.protect)
    return "categorical", f"text with {distinct} distinct values{note}{hint}"


def _regenerated(protect: int) -> str:
    return f", most of them in fewer than {protect} rows: new ones are generated"


def _rare_note(counts: ValueCounts, protect: int) -> str:
    rare = int((counts.counts < protect).sum())
    return f"; {rare} of them in fewer than {protect} rows, so not stored" if rare else ""


def _kind_of_times(known: pa.Array) -> tuple[Kind, str]:
    if time_too_wide(raw_values(known), known.type):
        return "categorical", "times with more digits than float64 has"
    if pa.types.is_duration(known.type):
        return "numeric", "durations"
    return "datetime", f"values of type {known.type}"


def _kind_of_numbers(
    name: str, known: pa.Array, distinct: int, config: CodecConfig
) -> tuple[Kind, str]:
    raw = raw_values(known)
    whole = _all_whole(raw, known.type)
    finite = raw[np.isfinite(raw)] if raw.dtype.kind == "f" else raw
    if len(finite) == 0:
        return "categorical", "only infinite values"
    unique = distinct == len(known) == len(finite)
    if config.find_ids and whole and unique and not pa.types.is_decimal(known.type):
        enough = len(known) >= LEAST_ID_ROWS
        if is_named_like_key(name):
            named = "a column named like a key" if name else "a column without a name"
            return "id", f"unique whole numbers in {named}"
        if enough and int(raw.max()) - int(raw.min()) == len(raw) - 1:
            return "id", "consecutive whole numbers"
        if enough and too_wide(raw):
            return "id", "unique whole numbers, spread over more than 2^53"
    if raw.dtype.kind != "f" and (raw.dtype == object or too_wide(raw)):
        return "categorical", "numbers with more digits than float64 has"
    # PAPER-DIFF few_values: the paper orders every number. Few of them are often names of classes.
    per_value = max(ROWS_PER_VALUE, most_needed(config.protect))  # one of them is frequent then
    few = distinct <= config.few_values and len(known) >= per_value * distinct
    if whole and few:
        note = _rare_note(ValueCounts.of(known), config.protect)
        return "categorical", f"{distinct} distinct whole numbers: treated as categories{note}"
    infinite = len(raw) - len(finite)
    also = "; infinite values have bins of their own" if infinite else ""
    what = "whole numbers" if whole else "numbers"
    return "numeric", f"{what} with {distinct} distinct values{also}"


def _all_whole(raw: np.ndarray, dtype: pa.DataType) -> bool:
    if raw.dtype.kind != "f":
        return not pa.types.is_decimal(dtype) or dtype.scale <= 0
    finite = raw[np.isfinite(raw)]
    return bool(np.all(finite == np.floor(finite)))


def _apply_kind(
    name: str,
    entries: Mapping[str, Any],
    inferred: tuple[Kind, str],
    known: pa.Array,
    missing_count: int,
) -> tuple[Kind, str]:
    """The kind that a user has set, if the values allow it, or the inferred one."""
    kind, reason = inferred
    wanted = entries.get("kind")
    if wanted is None or wanted == kind:
        return kind, reason
    possible = _possible_kinds(known)
    if wanted not in possible:
        raise UserError(
            f"The schema sets kind of column {name!r} to {wanted!r}, but its values are "
            f"{known.type}{' with missing values' if missing_count else ''}; it can be: "
            f"{', '.join(possible)}."
        )
    return wanted, f"set in the schema (inferred: {kind}, {reason})"


def _possible_kinds(known: pa.Array) -> list[str]:
    if len(known) == 0:
        return ["constant"]
    possible = ["categorical"]
    if is_text(known.type):
        possible += ["id"]
    elif is_time(known.type):
        if not time_too_wide(raw_values(known), known.type):
            possible += ["numeric"] if pa.types.is_duration(known.type) else ["datetime"]
    elif is_number(known.type):
        raw = raw_values(known)
        finite = raw.dtype.kind != "f" or bool(np.isfinite(raw).all())
        if raw.dtype.kind == "f" or not (raw.dtype == object or too_wide(raw)):
            possible += ["numeric"]
        if finite and _all_whole(raw, known.type) and not pa.types.is_decimal(known.type):
            possible += ["id"]
    return possible


def _check_time_zone(name: str, values: pa.Array) -> None:
    """A Parquet file may name any zone; Arrow looks it up only when it computes with the times."""
    try:
        local_time(values[:1])
    except pa.ArrowInvalid as error:
        raise UserError(
            f"Column {name!r} has the time zone {str(values.type.tz)[:80]!r}, which is unknown "
            "here; convert its times to UTC or to a zone of the IANA time zone database."
        ) from error


def _find_precision(
    name: str, kind: Kind, known: pa.Array, entries: Mapping[str, Any]
) -> tuple[int | None, str | None, str]:
    """Decimals of numbers, time step of times, and a reason if a user has set the decimals."""
    if kind == "datetime" or (kind == "numeric" and pa.types.is_duration(known.type)):
        _check_time_zone(name, known)
        return None, time_step(known), ""
    if kind != "numeric":
        return None, None, ""
    decimals = find_decimals(raw_values(known), known.type)
    wanted = entries.get("decimals")
    if wanted is None or wanted == decimals:
        return decimals, None, ""
    if not pa.types.is_floating(known.type):
        raise UserError(
            f"The schema sets decimals of column {name!r} to {wanted}, but its values are "
            f"{known.type}; only floats can be rounded."
        )
    return wanted, None, f"; decimals set in the schema (inferred: {decimals})"


def _missing_mode(
    name: str, entries: Mapping[str, Any], default: str, known: pa.Array, missing_count: int
) -> Any:
    if not missing_count or len(known) == 0:
        return "none"
    # PAPER-DIFF missing: the paper masks missing values and never generates them.
    mode = entries.get("missing", default)
    if mode == "none":
        raise UserError(
            f"The schema says that column {name!r} has no missing values, but it has "
            f"{missing_count}. Set missing to learned or masked."
        )
    return mode


# --- very large tables ---------------------------------------------------------------------


@dataclass(frozen=True)
class Scan:
    """What all rows of a large table say about columns that were inferred from some of them."""

    differing: list[str]  # columns that have to be inferred from all their rows
    categories: Mapping[str, ValueCounts]  # all values of categorical columns


@dataclass(frozen=True)
class ColumnScan:
    """What one fragment of a table holds of a column."""

    missing_count: int = 0
    counts: ValueCounts | None = None  # of categorical and constant columns
    same_format: bool = True


def scan(dataset: Dataset, columns: Mapping[str, Column], overrides: Overrides) -> Scan:
    """Read all rows: kinds and bins come from a sample, but a category that is left out could
    never be learned, and a column may turn out to be different."""
    log.info(
        "inferring kinds and bins from %s of %s rows, and categories from all rows",
        f"{dataset.sample(SAMPLED_ROWS).num_rows:,}",
        f"{dataset.num_rows:,}",
    )
    differing: set[str] = set()
    categories: dict[str, ValueCounts] = {}
    work = ScanFragment(columns, overrides)
    for scanned in parallel.each(work, dataset.fragments(), workers=parallel.cores()):
        for name, result in scanned.items():
            if not result.same_format or (result.missing_count and columns[name].missing == "none"):
                differing.add(name)
            if (counts := result.counts) is not None:
                before = categories.get(name)
                categories[name] = counts if before is None else before.with_more(counts)
    differing |= {
        name
        for name, counts in categories.items()
        if columns[name].kind == "constant" and len(counts.values) > 1
    }
    ordered = [name for name in columns if name in differing]
    for name in ordered:
        log.info("column %r differs outside the sampled rows; reading the whole column", name)
    return Scan(
        ordered,
        {
            name: counts
            for name, counts in categories.items()
            if columns[name].kind == "categorical" and name not in differing
        },
    )


@dataclass(frozen=True)
class ScanFragment:
    columns: Mapping[str, Column]
    overrides: Overrides

    def __call__(self, fragment: Dataset) -> dict[str, ColumnScan]:
        return {
            name: self._scan(fragment.column(name), column) for name, column in self.columns.items()
        }

    def _scan(self, array: pa.ChunkedArray, column: Column) -> ColumnScan:
        by_user = self._missing_text_by_user(column.name)
        if by_user not in (None, column.missing_text) and is_text(value_type(array.type)):
            words = pc.unique(array).cast(pa.string())
            if contains(words, by_user):
                return ColumnScan(same_format=False)
        if not self._same_format(array, column, by_user):
            return ColumnScan(same_format=False)
        typed = parse_column(array, column)
        counts = None
        if column.kind in ("categorical", "constant"):
            counts = ValueCounts.of(typed.known)
        return ColumnScan(typed.missing_count, counts)

    def _missing_text_by_user(self, name: str) -> str | None:
        entries = self.overrides.of(name)
        if "missing_text" in entries:
            text: str | None = entries["missing_text"]
            return text
        return self.overrides.missing_text

    def _same_format(self, array: pa.ChunkedArray, column: Column, by_user: str | None) -> bool:
        """Whether text is of the format that the sampled rows have."""
        if column.format in (None, "text") or not is_text(array.type):
            return True
        known = to_null(plain_array(array), column.format, column.missing_text)
        if known.null_count == len(known):
            return True
        found = recognise(array, by_user if by_user == column.missing_text else None)
        return (
            found is not None
            and found.format == column.format
            and found.missing_text in (None, column.missing_text)  # None: nothing is missing here
        )
