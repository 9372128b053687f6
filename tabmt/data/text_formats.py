"""Numbers and dates that are written as text: recognise them, read them, write them back.

Text is read as numbers or dates only if *every* value is written back character for character, so
`00123`, a 20-digit number and `1,5` stay text. (The one exception is minus zero, which becomes
zero.) A column has one format:

    integer          1500
    fixed:2          1500.00
    shortest         1500.0, 1e-05    (as Python writes a float)
    plain            1500, 1e-05      (the same without a trailing .0)
    s:%Y-%m-%d       a date pattern, after the time unit that it resolves
    zone:Europe/Oslo:%Y-%m-%dT%H:%M:%S   the same with the offset of a time zone (+01:00) after it
    styled:$|,|2|    $1,500.00: a sign before, what separates thousands, decimals, a sign after
    text             any text; only used together with a `missing_text`

Missing values are not handled here; see missing.py.
"""

import re
import zoneinfo
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
CURRENCY = r"[$€£¥₹₩₽]|[A-Z]{1,2}\$|USD|EUR|GBP|CHF|NOK|SEK|DKK|JPY|kr"
STYLED = re.compile(
    rf"(-?)((?:(?:{CURRENCY})[ \u00a0]?)?)(\d{{1,3}}(?:,\d{{3}})+|\d+)(\.\d+)?"
    rf"((?:[ \u00a0]?(?:{CURRENCY}|%|‰))?)"
)
OFFSET = r"[+-][0-9]{2}:[0-9]{2}$"
FIRST_ZONES = (  # tried first, as several zones have the same offsets
    "Europe/London", "Europe/Berlin", "Europe/Oslo", "Europe/Helsinki", "America/New_York",
    "America/Chicago", "America/Denver", "America/Los_Angeles", "Australia/Sydney",
)  # fmt: skip
MOST_TRIED = 1000  # texts with which zones are tried before all are


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
        return _date_format(texts) or _styled_format(texts)
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


def _styled_format(texts: pa.StringArray) -> TextFormat | None:
    """Numbers with a currency, a percent sign or separated thousands, all in the same way."""
    match = STYLED.fullmatch(texts[0].as_py())
    if match is None:
        return None
    _, before, _, fraction, after = match.groups()
    grouped = _any(pc.match_substring(texts, ","))
    if not (before or after or grouped):
        return None
    decimals = len(fraction) - 1 if fraction else 0
    fmt = f"styled:{before}|{',' if grouped else ''}|{decimals}|{after}"
    try:
        back = write(read(texts, fmt, read_type(fmt)), fmt)
    except (pa.ArrowInvalid, OverflowError):
        return None
    # float64 represents every decimal number of up to 15 digits
    if not _all(pc.less_equal(pc.utf8_length(texts), 20)) or not _all(pc.equal(back, texts)):
        return None
    like = (
        f"{before}{'1,234' if grouped else '12'}{'.' + '0' * decimals if decimals else ''}{after}"
    )
    return TextFormat(fmt, read_type(fmt), f"numbers written like {like}")


def is_styled(fmt: str | None) -> bool:
    """Whether numbers stay text for the user, who would otherwise lose how they are written."""
    if fmt is None:
        return False
    return fmt.startswith(("styled:", "zone:")) or re.search(OFFSET, fmt) is not None


def _read_styled(texts: pa.Array, fmt: str, dtype: pa.DataType) -> pa.Array:
    before, _, decimals, after = fmt.removeprefix("styled:").split("|")
    plain = pc.replace_substring(texts, ",", "")
    fraction = rf"\.[0-9]{{{decimals}}}" if int(decimals) else ""
    pattern = rf"^(-?){re.escape(before)}([0-9]+{fraction}){re.escape(after)}$"
    if not _all(pc.fill_null(pc.match_substring_regex(plain, pattern), True)):
        raise pa.ArrowInvalid("text is written in another way")
    return pc.replace_substring_regex(plain, pattern, r"\1\2").cast(dtype)


def _write_styled(values: pa.Array, fmt: str) -> pa.Array:
    before, group, decimals, after = fmt.removeprefix("styled:").split("|")

    def render(value: float) -> str:
        digits = f"{abs(value):{group}.{int(decimals)}f}"
        return f"{'-' if value < 0 else ''}{before}{digits}{after}"

    return _write_each(values, render)


def _zone_format(texts: pa.StringArray) -> TextFormat | None:
    """Times with offsets that are those of one time zone, in summer and in winter."""
    if not _all(pc.match_substring_regex(texts, OFFSET)):
        return None
    some = texts[:MOST_TRIED]
    zones = [*FIRST_ZONES, *sorted(zoneinfo.available_timezones() - set(FIRST_ZONES))]
    for pattern in (f"%Y-%m-%d{letter}%H:%M:%S" for letter in "T "):
        fixed = pc.unique(pc.utf8_slice_codeunits(texts, -6, 2**31 - 1))
        if len(fixed) == 1:  # always the same offset, which need not belong to a zone
            fmt = f"s:{pattern}{fixed[0].as_py()}"
            if _date_round_trips(texts, fmt):
                return TextFormat(fmt, pa.timestamp("s"), f"dates of the form {fmt[2:]}")
        for zone in zones if _is_moment(texts[:1], pattern) else ():
            fmt = f"zone:{zone}:{pattern}"
            if _zone_round_trips(some, fmt) and _zone_round_trips(texts, fmt):
                return TextFormat(fmt, read_type(fmt), f"times of the zone {zone}")
    return None


def _is_moment(texts: pa.StringArray, pattern: str) -> bool:
    try:
        pc.strptime(pc.utf8_slice_codeunits(texts, 0, -6), format=pattern, unit="s")
    except pa.ArrowInvalid:
        return False
    return True


def _zone_round_trips(texts: pa.StringArray, fmt: str) -> bool:
    try:
        return _all(pc.equal(write(read(texts, fmt, read_type(fmt)), fmt), texts))
    except (pa.ArrowInvalid, OverflowError):
        return False


def _read_zoned(texts: pa.Array, fmt: str) -> pa.Array:
    """Moments: the local time minus its offset."""
    _, zone, pattern = fmt.split(":", 2)
    if not _all(pc.fill_null(pc.match_substring_regex(texts, OFFSET), True)):
        raise pa.ArrowInvalid("a time has no offset")
    local = pc.strptime(pc.utf8_slice_codeunits(texts, 0, -6), format=pattern, unit="s")
    parts = [pc.utf8_slice_codeunits(texts, *at).cast(pa.int64()) for at in ((-5, -3), (-2, None))]
    seconds = pc.add(pc.multiply(parts[0], 3600), pc.multiply(parts[1], 60))
    is_west = pc.equal(pc.utf8_slice_codeunits(texts, -6, -5), "-")
    seconds = pc.if_else(is_west, pc.negate(seconds), seconds).cast(pa.duration("s"))
    return pc.subtract(local, seconds).cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("s", zone))


def _write_zoned(values: pa.Array, fmt: str) -> pa.Array:
    _, zone, pattern = fmt.split(":", 2)
    moments = values.cast(pa.timestamp("s", zone))
    texts = pc.strftime(moments, format=f"{pattern}%z")
    return pc.replace_substring_regex(texts, r"([0-9]{2})$", r":\1")


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
        return _zone_format(texts)
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
    if fmt.startswith("styled:"):
        return pa.float64() if int(fmt.split("|")[2]) else pa.int64()
    if fmt.startswith("zone:"):
        return pa.timestamp("s", fmt.split(":")[1])
    if fmt in ("shortest", "plain") or fmt.startswith("fixed:"):
        return pa.float64()
    return pa.timestamp(fmt.partition(":")[0])


def read(texts: pa.Array, fmt: str, dtype: pa.DataType) -> pa.Array:
    """Texts as values of `dtype`; the inverse of `write`."""
    if fmt == "text":
        return texts
    unit, colon, pattern = fmt.partition(":")
    if unit == "styled":
        return _read_styled(texts, fmt, dtype)
    if unit == "zone":
        return _read_zoned(texts, fmt).cast(dtype)
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
    elif unit == "styled":
        texts = _write_styled(values, fmt)
    elif unit == "zone":
        texts = _write_zoned(values, fmt)
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


def _any(flags: pa.Array) -> bool:
    return bool(np.any(flags.to_numpy(zero_copy_only=False)))
