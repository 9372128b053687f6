"""Numbers and dates that are written as text: recognise them, read them, write them back.

A text column is read as numbers or dates only if *every* value comes back letter for letter
(`00123`, a 20-digit number and `1,5` therefore stay text; the one exception is minus zero, which
comes back as zero). What is recognised is one short `format` per column:

    integer          1500
    fixed:2          1500.00
    shortest         1500.0, 1e-05    (as Python writes a float)
    plain            1500, 1e-05      (the same without a trailing .0)
    s:%Y-%m-%d       a date pattern, behind the time unit it is exact to
    text             any text; only where a person says how a gap is spelled

and at most one spelling of a gap (`gap_text`), such as NA. In text NA may be a word like others (a
country, a grade), so there a person has to say that it is none.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

GAP_TEXTS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-", ".")
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
WHOLE = r"^(0|-?[1-9][0-9]{0,18})$"
POINT = r"^-?(0|[1-9][0-9]*)\.[0-9]+$"
MINUS_ZERO = r"^-(0\.0+)$"


@dataclass(frozen=True)
class Recognised:
    format: str
    dtype: pa.DataType
    gap_text: str | None
    reason: str


def is_text(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_string_view(dtype)
    )


def recognise(column: pa.Array | pa.ChunkedArray, gap_text: str | None = None) -> Recognised | None:
    """The format in which every value of a text column round-trips, or None: it is plain text.

    With `gap_text` that text is a gap, and every gap is written so.
    """
    texts = pc.unique(column).cast(pa.string())
    has_gaps = texts.null_count > 0
    texts = texts.drop_null()
    told = gap_text is not None
    if not told:
        spelled = spelled_gaps(texts)
        if len(spelled) + has_gaps > 1:
            return None  # two spellings of a gap could not both be written back
        gap_text = spelled[0] if spelled else None
    if gap_text is not None:
        texts = texts.filter(pc.not_equal(texts, gap_text))
    # Minus zero is how rounding writes small negative numbers; it is no number of its own.
    unsigned = pc.replace_substring_regex(texts, MINUS_ZERO, r"\1")
    found = (_number(unsigned) or _date(texts)) if len(texts) else None
    if found is None:
        return (
            Recognised("text", pa.string(), gap_text, _told(gap_text, has_gaps)) if told else None
        )
    fmt, dtype, what = found
    but = "" if gap_text is None else f" but {gap_text!r} (read as a gap)"
    changed = texts.filter(pc.not_equal(unsigned, texts))
    zero = f"; {changed[0].as_py()!r} is read as zero" if len(changed) else ""
    also = f"; {_told(gap_text, has_gaps)}" if told else ""
    return Recognised(fmt, dtype, gap_text, f"every text{but} is {what}{zero}{also}")


def spelled_gaps(texts: pa.Array) -> list[str]:
    """What among texts may be a gap that somebody spelled out."""
    return [text for text in GAP_TEXTS if pc.index(texts, text).as_py() >= 0]


def _told(gap_text: str | None, has_gaps: bool) -> str:
    also = ", and so are empty cells, which come back as it" if has_gaps else ""
    return f"{gap_text!r} is a gap, set in the schema{also}"


def _number(texts: pa.StringArray) -> tuple[str, pa.DataType, str] | None:
    if pc.index(texts, "-0").as_py() >= 0:
        return None  # nothing rounds a whole number to minus zero: it is a word
    if _all(pc.match_substring_regex(texts, WHOLE)):
        try:
            texts.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
        return "integer", pa.int64(), "a whole number"
    if _all(pc.match_substring_regex(texts, POINT)):
        decimals = pc.unique(pc.utf8_length(pc.replace_substring_regex(texts, r"^.*\.", "")))
        # float64 holds every decimal number of up to 15 digits
        short = _all(pc.less_equal(pc.utf8_length(texts), 16))
        if len(decimals) == 1 and short:
            digits = decimals[0].as_py()
            return (
                f"fixed:{digits}",
                pa.float64(),
                f"a number with {digits} decimal{'s' * (digits != 1)}",
            )
    words = texts.to_pylist()
    for fmt in ("shortest", "plain"):
        if all(_float_text(word, fmt) for word in words):
            return fmt, pa.float64(), "a number"
    return None


def _float_text(word: str, fmt: str) -> bool:
    try:
        value = float(word)
    except ValueError:
        return False
    return _write_float(value, fmt) == word


def _write_float(value: float, fmt: str) -> str:
    word = repr(value)
    return word.removesuffix(".0") if fmt == "plain" else word


def _date(texts: pa.StringArray) -> tuple[str, pa.DataType, str] | None:
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
    also = f" ({matching[1].partition(':')[2]} would fit too)" if len(matching) > 1 else ""
    return matching[0], dtype, f"a date of the form {pattern}{also}"


def _date_round_trips(texts: pa.StringArray, fmt: str) -> bool:
    try:
        back = write(read(texts, fmt, pa.timestamp("us")), fmt)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return back.null_count == 0 and _all(pc.equal(back, texts))


def read(texts: pa.Array, fmt: str, dtype: pa.DataType, gap_text: str | None = None) -> pa.Array:
    """Texts as values of `dtype`; the inverse of `write`."""
    if fmt != "text":  # words may be too many for that type
        texts = texts.cast(pa.string())
    texts = without_gap(texts, fmt, gap_text)
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


def gap_value(dtype: pa.DataType, fmt: str | None, gap_text: str | None) -> pa.Scalar | None:
    """The spelled gap as a value of a type, if it can be one: -999 also stands among integers."""
    if gap_text is None:
        return None
    if is_text(dtype):
        return pa.scalar(gap_text, dtype)
    if pa.types.is_float16(dtype):
        return None  # Arrow compares none of them
    try:
        value = read(pa.array([gap_text]), "plain" if fmt in (None, "text") else fmt, dtype)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
        return None  # a word
    not_a_number = pa.types.is_floating(dtype) and value.as_py() != value.as_py()
    return None if not_a_number else value  # which is a gap in itself


def without_gap(values: pa.Array, fmt: str | None, gap_text: str | None) -> pa.Array:
    """Values of any type in which what spells a gap is one."""
    gap = gap_value(values.type, fmt, gap_text)
    if gap is None:
        return values
    return pc.if_else(pc.equal(values, gap), pa.scalar(None, values.type), values)


def write(values: pa.Array, fmt: str, gap_text: str | None = None) -> pa.Array:
    """Values as text in `fmt`; gaps become `gap_text`, or stay gaps if there is none."""
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
        # Arrow writes as many digits behind the second as the unit has.
        texts = pc.strftime(values.cast(pa.timestamp(unit)), format=pattern)
    if gap_text is None:
        return texts
    return pc.if_else(pc.is_null(texts), pa.scalar(gap_text, texts.type), texts)


def _write_each(values: pa.Array, render: Callable[[float], str]) -> pa.Array:
    """Render each distinct float once: a column has far fewer than it has rows."""
    encoded = values.cast(pa.float64()).dictionary_encode()
    words = [render(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(words, pa.string()).take(encoded.indices)


def _all(flags: pa.Array) -> bool:
    return bool(np.all(flags.to_numpy(zero_copy_only=False)))
