"""Numbers and dates that are written as text: recognise them, read them, write them back.

Text is read as numbers or dates only if *every* value is written back character for character, so
`00123`, a 20-digit number and `1,5` stay text. (The one exception is minus zero, which becomes
zero.) A column has one format:

    integer          1500
    fixed:2          1500.00
    shortest         1500.0, 1e-05    (as Python writes a float)
    plain            1500, 1e-05      (the same without a trailing .0)
    s:%Y-%m-%d       a date pattern, after the time unit that it resolves
    text             any text; only used together with a `missing_text`

Missing values are not handled here; see missing.py.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DATE_PATTERNS = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%d %H:%M",
    "%Y/%m/%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M",
)
FRACTIONS = {3: "ms", 6: "us", 9: "ns"}
MOST_FORMAT = 100  # characters of the name of a format
WHOLE = r"^(0|-?[1-9][0-9]{0,18})$"
POINT = r"^-?(0|[1-9][0-9]*)\.[0-9]+$"
MINUS_ZERO = r"^-(0\.0+)$"


@dataclass(frozen=True)
class TextFormat:
    name: str  # as listed above
    dtype: pa.DataType  # of the values that the text stands for
    description: str  # in the plural


def find_format(texts: pa.Array) -> TextFormat | None:
    """The format in which all of some distinct texts are written; None if there is none."""
    if len(texts) == 0:
        return None
    # Rounding writes small negative numbers as minus zero, which is not a number of its own.
    unsigned = pc.replace_substring_regex(texts, MINUS_ZERO, r"\1")
    found = _number_format(unsigned)
    if found is None:
        return _date_format(texts)
    changed = texts.filter(pc.not_equal(unsigned, texts))
    if len(changed) == 0:
        return found
    zero = f"{found.description}, {changed[0].as_py()!r} as zero"
    return TextFormat(found.name, found.dtype, zero)


def _number_format(texts: pa.StringArray) -> TextFormat | None:
    if pc.index(texts, "-0").as_py() >= 0:
        return None  # nothing rounds a whole number to minus zero, so it is a word
    if _all(pc.match_substring_regex(texts, WHOLE)):
        try:
            texts.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
        return TextFormat("integer", pa.int64(), "whole numbers")
    if _all(pc.match_substring_regex(texts, POINT)):
        decimals = pc.unique(pc.utf8_length(pc.replace_substring_regex(texts, r"^.*\.", "")))
        # float64 represents every decimal number of up to 15 digits
        short = _all(pc.less_equal(pc.utf8_length(texts), 16))
        if len(decimals) == 1 and short:
            digits = decimals[0].as_py()
            plural = "s" if digits != 1 else ""
            return TextFormat(
                f"fixed:{digits}", pa.float64(), f"numbers with {digits} decimal{plural}"
            )
    words = texts.to_pylist()
    for name in ("shortest", "plain"):
        if all(_is_float_text(word, name) for word in words):
            return TextFormat(name, pa.float64(), "numbers")
    return None


def _is_float_text(word: str, fmt: str) -> bool:
    try:
        value = float(word)
    except ValueError:
        return False
    return _write_float(value, fmt) == word


def _write_float(value: float, fmt: str) -> str:
    word = repr(value)
    return word.removesuffix(".0") if fmt == "plain" else word


def _date_format(texts: pa.StringArray) -> TextFormat | None:
    if not _all(pc.match_substring_regex(texts, r"^[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}")):
        return None
    fractions = pc.unique(pc.utf8_length(pc.replace_substring_regex(texts, r"^[^.]*\.?", "")))
    unit = FRACTIONS.get(fractions[0].as_py(), "s") if len(fractions) == 1 else "s"
    matching = [
        fmt
        for fmt in (f"{unit}:{pattern}" for pattern in DATE_PATTERNS)
        if _date_round_trips(texts, fmt)
    ]
    if not matching:
        return None
    pattern = matching[0].partition(":")[2]
    if not any(code in pattern for code in ("%H", "%S")):
        dtype = pa.date32()
    else:
        dtype = pa.timestamp(unit, tz="UTC" if pattern.endswith("Z") else None)
    also = f" ({matching[1].partition(':')[2]} would also fit)" if len(matching) > 1 else ""
    return TextFormat(matching[0], dtype, f"dates of the form {pattern}{also}")


def _date_round_trips(texts: pa.StringArray, fmt: str) -> bool:
    try:
        back = write(read(texts, fmt, pa.timestamp("us")), fmt)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return back.null_count == 0 and _all(pc.equal(back, texts))


def check_format(fmt: str) -> None:
    """Refuse a format of a file that no table can have led to. Raises ValueError."""
    # Numbers in it are counts of digits; a large one would fill the memory.
    if len(fmt) > MOST_FORMAT or re.search("[0-9]{3}", fmt):
        raise ValueError(f"{fmt[:20]!r} is not a format of text")


def read_type(fmt: str) -> pa.DataType:
    """The type in which text of a format is learned if its column stays text for the user."""
    if fmt == "integer":
        return pa.int64()
    if fmt == "text":
        return pa.string()
    if fmt in ("shortest", "plain") or fmt.startswith("fixed:"):
        return pa.float64()
    return pa.timestamp(fmt.partition(":")[0])


def read(texts: pa.Array, fmt: str, dtype: pa.DataType) -> pa.Array:
    """Texts as values of `dtype`; the inverse of `write`."""
    if fmt == "text":
        return texts
    unit, colon, pattern = fmt.partition(":")
    if not colon or unit == "fixed":
        return texts.cast(dtype)
    if unit == "s":
        stamps = pc.strptime(texts, format=pattern, unit="s")
    else:
        stamps = texts.cast(pa.timestamp(unit))
    if getattr(dtype, "tz", None):
        stamps = pc.assume_timezone(stamps, "UTC")
    return stamps.cast(dtype)


def write(values: pa.Array, fmt: str, missing_text: str | None = None) -> pa.Array:
    """Values as text in a format; nulls become `missing_text`, or stay null if there is none."""
    unit, _, pattern = fmt.partition(":")
    if fmt == "text":
        texts = values
    elif fmt == "integer":
        texts = values.cast(pa.int64()).cast(pa.string())
    elif unit == "fixed":
        texts = _write_each(values, lambda value: f"{value:.{int(pattern)}f}")
    elif fmt in ("shortest", "plain"):
        texts = _write_each(values, lambda value: _write_float(value, fmt))
    else:
        if getattr(values.type, "tz", None):
            values = values.cast(pa.timestamp(values.type.unit))
        # Arrow writes as many digits after the second as the unit has.
        texts = pc.strftime(values.cast(pa.timestamp(unit)), format=pattern)
    if missing_text is None:
        return texts
    return pc.if_else(pc.is_null(texts), pa.scalar(missing_text, texts.type), texts)


def _write_each(values: pa.Array, render: Callable[[float], str]) -> pa.Array:
    """Render each distinct float once: a column has far fewer of them than rows."""
    encoded = values.cast(pa.float64()).dictionary_encode()
    words = [render(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(words, pa.string()).take(encoded.indices)


def _all(flags: pa.Array) -> bool:
    return bool(np.all(flags.to_numpy(zero_copy_only=False)))
