"""How gaps are spelled in a column of text: what a person says of it, and what the text holds."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data import text_formats as text
from tabmt.errors import UserError


class Look(NamedTuple):
    found: text.Recognised | None  # what the text stands for; None: plain text, or no text at all
    told: str | None = None  # the spelling of a gap, if a person told it
    hint: str = ""  # for the column's reason


def look(
    name: str, column: pa.ChunkedArray, edit: Mapping[str, Any], everywhere: str | None
) -> Look:
    """`edit` is what a person set of the column, `everywhere` the spelling of the whole table."""
    told = edit.get("gap_text")
    everywhere = None if "gap_text" in edit else everywhere
    categories = pa.types.is_dictionary(column.type)
    value_type = column.type.value_type if categories else column.type
    if not text.is_text(value_type):
        return _look_at_values(name, column, told, everywhere)
    words = pc.unique(column).cast(pa.string())
    if everywhere is not None and _holds(words, everywhere):
        told = everywhere
    if categories:
        if told is None:
            return Look(None)
        raise UserError(
            f"The schema makes {told!r} a gap, but column {name!r} is not text: it is declared as "
            "categories. Turn it into text, or set its gap_text to null."
        )
    found = text.recognise(words)
    if told is None:
        spelled = text.spelled_gaps(words)
        hint = "; {!r} is a word here, unless gap_text says that it is a gap"
        return Look(found, None, hint.format(spelled[0]) if spelled else "")
    hint = "" if _holds(words, told) else f"; no row holds {told!r}, the gap_text of the schema"
    if found is not None and found.gap_text is not None:
        if found.gap_text != told:
            raise _spelled_twice(name, found.gap_text, told)
        return Look(found, told)
    found = text.recognise(words, told)
    assert found is not None
    if found.format == "text":
        spelled = text.spelled_gaps(words)
        rest = words.filter(pc.invert(pc.is_in(words, pa.array(spelled, pa.string()))))
        if spelled and told not in spelled and len(rest.drop_null()) > 1:
            read = text.recognise(rest, told)
            if read is not None and read.format != "text":
                raise _spelled_twice(name, spelled[0], told)
    return Look(found, told, hint)


def _look_at_values(
    name: str, column: pa.ChunkedArray, told: str | None, everywhere: str | None
) -> Look:
    """A column of another type than text, in which nothing is spelled."""
    if told is not None:
        raise UserError(
            f"The schema sets gap_text of column {name!r} to {told!r}, but its values are "
            f"{column.type}; only gaps of text are spelled. Leave these cells empty in the table."
        )
    categories = pa.types.is_dictionary(column.type)
    dtype = column.type.value_type if categories else column.type
    value = text.gap_value(dtype, None, everywhere)
    if value is None:
        return Look(None)
    values = pc.unique(column.cast(dtype))
    if pc.index(values, value).as_py() < 0:
        return Look(None)
    return Look(None, None, f"; {everywhere!r} is a value here: only gaps of text are spelled")


def _holds(words: pa.Array, word: str) -> bool:
    return bool(pc.index(words, word).as_py() >= 0)


def _spelled_twice(name: str, one: str, other: str) -> UserError:
    return UserError(
        f"Column {name!r} spells gaps as {one!r}, but the schema sets gap_text to {other!r}. "
        "Spell them alike, or set gap_text of this column to null."
    )


def check_outside(name: str, told: str, fmt: str, values: pa.Array, decimals: int | None) -> None:
    """A number between the others would be drawn, and then be a gap."""
    gap = text.gap_value(values.type, fmt, told)
    if gap is None:
        return
    ends = pc.min_max(values).as_py()
    low, high = ends["min"], ends["max"]
    if decimals is not None:
        low, high = round(low, decimals), round(high, decimals)
    if low <= gap.as_py() <= high:
        raise UserError(
            f"The schema sets gap_text of column {name!r} to {told!r}, which lies among its values "
            f"({low} to {high}): drawn, it would be a gap. Leave these cells empty, or set its "
            "kind to categorical."
        )
