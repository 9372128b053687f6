"""The weekly CSV files of CIDDS-001: text to typed flows, and back to files of the same form.

The published files pad their cells, write ports with decimals (`445.0`; for ICMP the type and code,
`3.1`), and counts of a million or more as `  1.2 M`.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data.dataset import Dataset
from tabmt.data.files import write_file
from tabmt.data.schema import Schema
from tabmt.errors import UserError

BATCH_ROWS = 65_536
MILLIS = pa.timestamp("ms")
FLOWS = pa.schema(
    [
        ("Date first seen", MILLIS),
        ("Duration", pa.float64()),
        ("Proto", pa.string()),
        ("Src IP Addr", pa.string()),
        ("Src Pt", pa.string()),
        ("Dst IP Addr", pa.string()),
        ("Dst Pt", pa.string()),
        ("Packets", pa.int64()),
        ("Bytes", pa.int64()),
        ("Flows", pa.int64()),
        ("Flags", pa.string()),
        ("Tos", pa.int64()),
        ("class", pa.string()),
        ("attackType", pa.string()),
        ("attackID", pa.string()),
        ("attackDescription", pa.string()),
    ]
)
PORTS = ("Src Pt", "Dst Pt")
COUNTS = ("Packets", "Bytes")
# nfdump's abbreviations are decimal: a flow of 1.2 M has 1,200,000 bytes.
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
SHORT = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMG])$")
PORT = r"^([0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])(\.\d{1,3})?$"


def read_flows(paths: Iterable[str | Path]) -> Iterator[pa.Table]:
    """The flows of weekly files, one after the other, in bounded tables of the types FLOWS."""
    for path in paths:
        row = 2  # the first after the header
        for table in Dataset.open(path).batches(BATCH_ROWS):
            yield _typed(table, str(path), row)
            row += table.num_rows


def _typed(table: pa.Table, path: str, row: int) -> pa.Table:
    missing = [name for name in FLOWS.names if name not in table.column_names]
    if missing:
        raise UserError(
            f"{path!r} has no column {missing[0]!r}; a CIDDS-001 file has the columns "
            f"{', '.join(FLOWS.names)}."
        )
    columns = []
    for field in FLOWS:
        values = table.column(field.name).combine_chunks()
        if pa.types.is_timestamp(values.type):  # a copy that is no longer text
            with contextlib.suppress(pa.ArrowInvalid):
                values = values.cast(MILLIS)
        text = pc.utf8_trim_whitespace(values.cast(pa.string()))
        columns.append(_column(text, field, path, row))
    return pa.Table.from_arrays(columns, schema=FLOWS)


def _column(text: pa.Array, field: pa.Field, path: str, row: int) -> pa.Array:
    if field.name in PORTS:
        good = pc.match_substring_regex(text, PORT)
        _check(good, text, field.name, path, row, "a port from 0 to 65535")
        return pc.replace_substring_regex(text, r"\.0+$", "")
    if field.type == pa.string():
        _check(pc.not_equal(text, ""), text, field.name, path, row, "a word")
        return text
    if field.name in COUNTS:
        text = _in_full(text)
    what, cast = {
        MILLIS: ("a time such as 2017-03-15 00:01:16.632", _timestamps),
        pa.float64(): ("a number of seconds", _floats),
        pa.int64(): ("a whole number", _integers),
    }[field.type]
    try:
        values = cast(text)
    except pa.ArrowInvalid:
        good = pa.array([_fits(cast, value) for value in text.to_pylist()])
        _check(good, text, field.name, path, row, what)
        raise
    good = values.is_valid()
    if field.type != MILLIS:
        good = pc.and_(good, pc.fill_null(pc.greater_equal(values, 0), False))  # no NaN either
    _check(good, text, field.name, path, row, what)
    return values


def _timestamps(text: pa.Array) -> pa.Array:
    return text.cast(MILLIS)


def _floats(text: pa.Array) -> pa.Array:
    return text.cast(pa.float64())


def _integers(text: pa.Array) -> pa.Array:
    return text.cast(pa.int64())


def _fits(cast: Callable[[pa.Array], pa.Array], value: str | None) -> bool:
    try:
        return bool(cast(pa.array([value], pa.string())).is_valid()[0].as_py())
    except pa.ArrowInvalid:
        return False


def _check(good: pa.Array, text: pa.Array, name: str, path: str, row: int, what: str) -> None:
    bad = pc.index(pc.fill_null(good, False), False).as_py()
    if bad >= 0:
        raise UserError(
            f"Row {row + bad} of {path!r} has {text[bad].as_py()!r} in column {name!r}, where "
            f"{what} is expected; correct the row or remove it."
        )


def _in_full(text: pa.Array) -> pa.Array:
    """`1.2 M` as `1200000`."""
    if not pc.any(pc.match_substring_regex(text, "[KMG]$")).as_py():
        return text

    def full(value: str | None) -> str | None:
        match = SHORT.match(value or "")
        return str(round(float(match[1]) * UNITS[match[2]])) if match else value

    return pa.array([full(value) for value in text.to_pylist()], pa.string())


def write_flows(path: str | Path, flows: Iterable[pa.Table]) -> None:
    """Write typed flows as a weekly file that `read_flows` can read; nothing is left behind if that
    fails halfway."""
    texts = pa.schema([(name, pa.string()) for name in FLOWS.names])

    def tables() -> Iterator[pa.Table]:
        row = 2
        for table in flows:
            text = _as_text(table, texts)
            _typed(text, str(path), row)
            row += table.num_rows
            yield text

    write_file(path, Schema.of_table(texts), tables())


def _as_text(table: pa.Table, texts: pa.Schema) -> pa.Table:
    columns = []
    for field in FLOWS:
        column = table.column(field.name).combine_chunks()
        if field.type == MILLIS:
            column = pc.strftime(column, "%Y-%m-%d %H:%M:%S")
        elif field.type == pa.float64():
            column = pa.array([None if x is None else f"{x:.3f}" for x in column.to_pylist()])
        elif field.name in COUNTS:
            column = pa.array([_short(count) for count in column.to_pylist()])
        elif field.name == "Dst Pt":
            # As published: the type and code of ICMP share the column, so it has decimals.
            whole = pc.invert(pc.match_substring(column, "."))
            column = pc.if_else(whole, pc.binary_join_element_wise(column, "0", "."), column)
        columns.append(column.cast(pa.string()))
    return pa.Table.from_arrays(columns, schema=texts)


def _short(count: int | None) -> str | None:
    """A count in the files' short form, if that is exact."""
    if count is None or count < UNITS["M"] or count % (UNITS["M"] // 10):
        return None if count is None else str(count)
    return f"{count / UNITS['M']:.1f} M"
