"""What a user asks of a column: a value, a set, a range, a gap or no gap; built or parsed.

    {"sex": "Female", "age": between(30, 40), "city": one_of("Oslo", "Bergen"), "income": missing()}
    sex = Female      age in 30..40      city in {Oslo, Bergen}      income is missing

Only what was asked, in the user's words. prompts.py holds it against a column's codes.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tabmt.errors import UserError

FORMS = (
    "COLUMN = VALUE, COLUMN >= VALUE (or > <= <), COLUMN in LOW..HIGH, COLUMN in {VALUE, VALUE}, "
    "COLUMN is missing, COLUMN is not missing"
)
# A name with one of the signs in it, or with a quote at its start, stands in quotes.
NAME = r"""\s*("[^"]*"|'[^']*'|`[^`]*`|[^\s"'`=<>!][^=<>!]*?)"""
COMPARED = re.compile(NAME + r"\s*(>=|<=|==|=|>|<)\s*(.*?)\s*", re.S)
GAP = re.compile(NAME + r"\s+is\s+(not\s+)?missing\s*", re.S | re.I)
WITHIN = re.compile(NAME + r"\s+in\s+(.+?)\s*\.\.\s*(.+?)\s*", re.S)
AMONG = re.compile(NAME + r"\s+in\s*\{(.*)\}\s*", re.S)
ITEM = re.compile(r"""\s*("[^"]*"|'[^']*'|[^,]*?)\s*(?:,|$)""")


@dataclass(frozen=True)
class Condition:
    """What one column shall be. Values are as the user gave them: numbers, dates or text."""

    values: tuple[Any, ...] | None = None  # one of these
    low: Any = None
    high: Any = None
    low_open: bool = False  # the bound itself is not allowed
    high_open: bool = False
    gap: bool | None = None  # True: a gap; False: no gap


def between(low: Any = None, high: Any = None, *, closed: str = "both") -> Condition:
    """From `low` to `high`; either may be left out. `closed` is both, left, right or neither."""
    if closed not in ("both", "left", "right", "neither"):
        raise UserError(f"closed is {closed!r}, but must be one of: both, left, right, neither.")
    if low is None and high is None:
        raise UserError("between() needs a low or a high bound.")
    return Condition(
        low=low,
        high=high,
        low_open=closed in ("right", "neither"),
        high_open=closed in ("left", "neither"),
        gap=False,
    )


def one_of(*values: Any) -> Condition:
    """Any of some values."""
    if not values:
        raise UserError("one_of() needs a value.")
    return Condition(values=values, gap=False)


def missing() -> Condition:
    """A gap."""
    return Condition(gap=True)


def known() -> Condition:
    """Anything but a gap."""
    return Condition(gap=False)


def conditions(where: Mapping[str, Any] | Iterable[str] | str | None) -> dict[str, Condition]:
    """What a user gave as `where`: a mapping of columns, or sentences as on the command line."""
    if where is None:
        return {}
    if isinstance(where, Mapping):
        for name, given in where.items():
            if isinstance(given, Iterable) and not isinstance(given, str | bytes):
                raise UserError(
                    f"Column {name!r} is asked to be {given!r}; one_of(...) asks for any of "
                    "several values, between(low, high) for a range."
                )
        return {
            str(name): given if isinstance(given, Condition) else one_of(given)
            for name, given in where.items()
        }
    if not isinstance(where, Iterable):
        raise UserError(
            f"where is {where!r}, but must map columns to conditions, or be sentences: {FORMS}."
        )
    found: dict[str, Condition] = {}
    for sentence in [where] if isinstance(where, str) else where:
        name, condition = parse(sentence)
        found[name] = _both(name, found[name], condition) if name in found else condition
    return found


def parse(sentence: str) -> tuple[str, Condition]:
    """A column and its condition, from a sentence such as `age in 30..40`."""
    if match := GAP.fullmatch(sentence):
        return _unquoted(match[1]), known() if match[2] else missing()
    if match := AMONG.fullmatch(sentence):
        values = [_unquoted(item[1]) for item in ITEM.finditer(match[2]) if item[1]]
        return _unquoted(match[1]), one_of(*values)
    if match := WITHIN.fullmatch(sentence):
        return _unquoted(match[1]), between(_unquoted(match[2]), _unquoted(match[3]))
    if match := COMPARED.fullmatch(sentence):
        name, value = _unquoted(match[1]), _unquoted(match[3])
        match match[2]:
            case "=" | "==":
                return name, one_of(value)
            case ">=" | ">":
                return name, between(low=value, closed="both" if match[2] == ">=" else "neither")
            case _:
                return name, between(high=value, closed="both" if match[2] == "<=" else "neither")
    raise UserError(f"The condition {sentence!r} cannot be read. It can be: {FORMS}.")


def _unquoted(word: str) -> str:
    if len(word) >= 2 and word[0] == word[-1] and word[0] in "\"'`":
        return word[1:-1]
    return word


def _both(name: str, one: Condition, other: Condition) -> Condition:
    """Two sentences about one column: a lower and an upper bound, or `not missing` with another."""
    if known() in (one, other) and not (one.gap or other.gap):
        return other if one == known() else one
    lower, upper = (one, other) if one.high is None else (other, one)
    if None in (lower.low, upper.high) or lower.high is not None or upper.low is not None:
        raise UserError(
            f"Column {name!r} is asked for twice. Give one condition; only a lower and an upper "
            "bound go together."
        )
    return dataclasses.replace(lower, high=upper.high, high_open=upper.high_open)
