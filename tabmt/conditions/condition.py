"""What users ask of a column: a value, a set, a range, a missing value or none; built or parsed.

    {"sex": "Female", "age": between(30, 40), "city": one_of("Oslo", "Bergen"), "income": missing()}
    sex = Female      age in 30..40      city in {Oslo, Bergen}      income is missing

Only the request, in the user's words; selections.py applies it to the codes of a column.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import re2

from tabmt.errors import UserError

FORMS = (
    "COLUMN = VALUE, COLUMN >= VALUE (or > <= <), COLUMN in LOW..HIGH, COLUMN in {VALUE, VALUE}, "
    "COLUMN is missing, COLUMN is not missing"
)
MOST_CHARACTERS = 10_000  # of a condition
# RE2 needs time in proportion to the length of a sentence, whatever it says.
# A name that contains one of the signs, or begins with a quote, has to be quoted.
NAME = r"""\s*("[^"]*"|'[^']*'|`[^`]*`|[^\s"'`=<>!][^=<>!]*?)"""
COMPARISON = re2.compile("(?s)" + NAME + r"\s*(>=|<=|==|=|>|<)\s*(.*?)\s*")
MISSING = re2.compile("(?si)" + NAME + r"\s+is\s+(not\s+)?missing\s*")
RANGE = re2.compile("(?s)" + NAME + r"\s+in\s+(.+?)\s*\.\.\s*(.+?)\s*")
SET = re2.compile(  # brackets as in rules, too
    "(?s)" + NAME + r"\s+in\s*(?:\{(.*)\}|\((.*)\)|\[(.*)\])\s*"
)
ITEM = re2.compile(r"""\s*("[^"]*"|'[^']*'|[^,]*?)\s*(?:,|$)""")


@dataclass(frozen=True)
class Condition:
    """What is asked of one column. Values are as the user gave them: numbers, dates or text."""

    values: tuple[Any, ...] | None = None  # one of these
    low: Any = None
    high: Any = None
    excludes_low: bool = False  # whether the bound itself is not allowed
    excludes_high: bool = False
    missing: bool | None = None  # True: missing; False: not missing


def between(low: Any = None, high: Any = None, *, closed: str = "both") -> Condition:
    """From `low` to `high`; either may be left out. `closed` is both, left, right or neither.

    Example:
        >>> model.sample(100, where={"age": between(30, 40), "income": between(low=1000)})
    """
    if closed not in ("both", "left", "right", "neither"):
        raise UserError(f"closed is {closed!r}, but must be one of: both, left, right, neither.")
    if low is None and high is None:
        raise UserError("between() needs a low or a high bound.")
    return Condition(
        low=low,
        high=high,
        excludes_low=closed in ("right", "neither"),
        excludes_high=closed in ("left", "neither"),
        missing=False,
    )


def one_of(*values: Any) -> Condition:
    """Any of some values.

    Example:
        >>> model.sample(100, where={"city": one_of("Oslo", "Bergen")})
    """
    if not values:
        raise UserError("one_of() needs a value.")
    return Condition(values=values, missing=False)


def missing() -> Condition:
    """A missing value.

    Example:
        >>> model.sample(100, where={"income": missing()})
    """
    return Condition(missing=True)


def known() -> Condition:
    """Any value that is not missing.

    Example:
        >>> model.sample(100, where={"income": known()})
    """
    return Condition(missing=False)


def parse_conditions(where: Mapping[str, Any] | Iterable[str] | str | None) -> dict[str, Condition]:
    """What users pass as `where`: a mapping of columns, or sentences as on the command line."""
    if where is None:
        return {}
    if isinstance(where, Mapping):
        for name, wanted in where.items():
            if isinstance(wanted, Iterable) and not isinstance(wanted, str | bytes):
                raise UserError(
                    f"The condition on column {name!r} is {wanted!r}; use one_of(...) for one of "
                    "several values, or between(low, high) for a range."
                )
        return {
            str(name): wanted if isinstance(wanted, Condition) else one_of(wanted)
            for name, wanted in where.items()
        }
    if not isinstance(where, Iterable):
        raise UserError(
            f"`where` must be a dict of conditions or text such as 'age >= 18', got {where!r}. "
            f"Allowed forms: {FORMS}."
        )
    conditions: dict[str, Condition] = {}
    for sentence in [where] if isinstance(where, str) else where:
        name, condition = parse_sentence(sentence)
        if name in conditions:
            condition = _combine(name, conditions[name], condition)
        conditions[name] = condition
    return conditions


def parse_sentence(sentence: str) -> tuple[str, Condition]:
    """A column and its condition, from a sentence such as `age in 30..40`."""
    if not isinstance(sentence, str):
        raise UserError(
            f"Each condition must be text, got {type(sentence).__name__}. Allowed forms: {FORMS}."
        )
    if not _is_text(sentence):
        raise UserError("A condition has half of a surrogate pair, which is not valid Unicode.")
    if len(sentence) > MOST_CHARACTERS:
        raise UserError(
            f"A condition has {len(sentence):,} characters; at most {MOST_CHARACTERS:,} are "
            "allowed."
        )
    if match := MISSING.fullmatch(sentence):
        return _unquoted(match[1]), known() if match[2] else missing()
    if match := SET.fullmatch(sentence):
        content = next(group for group in match.groups()[1:] if group is not None)
        values = [_unquoted(item[1]) for item in ITEM.finditer(content) if item[1]]
        return _unquoted(match[1]), one_of(*values)
    if match := RANGE.fullmatch(sentence):
        return _unquoted(match[1]), between(_unquoted(match[2]), _unquoted(match[3]))
    if match := COMPARISON.fullmatch(sentence):
        name, sign, value = _unquoted(match[1]), match[2], _unquoted(match[3])
        match sign:
            case "=" | "==":
                return name, one_of(value)
            case ">=" | ">":
                return name, between(low=value, closed="both" if sign == ">=" else "neither")
            case _:
                return name, between(high=value, closed="both" if sign == "<=" else "neither")
    raise UserError(f"The condition {sentence!r} is not valid. Allowed forms: {FORMS}.")


def _is_text(sentence: str) -> bool:
    try:
        sentence.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unquoted(word: str) -> str:
    if len(word) >= 2 and word[0] == word[-1] and word[0] in "\"'`":
        return word[1:-1]
    return word


def _combine(name: str, first: Condition, second: Condition) -> Condition:
    """Two sentences about one column: a lower and an upper bound, or `is not missing` and any."""
    if known() in (first, second) and not (first.missing or second.missing):
        return second if first == known() else first
    lower, upper = (first, second) if first.high is None else (second, first)
    if None in (lower.low, upper.high) or lower.high is not None or upper.low is not None:
        raise UserError(
            f"Column {name!r} has two conditions. Give one; only a lower and an upper bound can be "
            "combined."
        )
    return dataclasses.replace(lower, high=upper.high, excludes_high=upper.excludes_high)
