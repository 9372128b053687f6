"""What the cells of a column look like: public classes, of which each cell has exactly one.

Noisy counts of these classes take the place of what `data/infer.py` finds in a table: whether text
stands for numbers or dates, how many decimals numbers have, how fine times are, how missing values
are written and how many there are.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data import text_formats
from tabmt.data.arrow_types import is_text, is_time, plain_array, value_type
from tabmt.data.missing import MISSING_TEXTS, nan_to_null
from tabmt.data.text_formats import DATE_PATTERNS
from tabmt.data.units import TIME_STEPS, local_time, raw_values

MOST_DECIMALS = 10
LEAST_SHARE = 0.95  # of the known cells of a text column must be of a format for it to be read so
RARELY = 0.01  # a class that fewer of the known cells have says nothing about the column
SURE = 3.0  # standard deviations of the noise above which a count is there

NULL = "null"
MISSING = (NULL, *(f"missing {text}" for text in MISSING_TEXTS))
SCIENTIFIC, WORD = "scientific", "word"
DIGITS = tuple(f"decimals {count}" for count in range(MOST_DECIMALS + 1))
SIMPLE_DATES = tuple(p for p in DATE_PATTERNS if "%d/%m" not in p and "%m/%d" not in p)
SLASHED = {"": ("%d/%m/%Y", "%m/%d/%Y"), " %H:%M": ("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M")}
EITHER = {f"either{end}": patterns for end, patterns in SLASHED.items()}
TEXT_CLASSES = (*MISSING, *DIGITS, SCIENTIFIC, *DATE_PATTERNS, *EITHER, WORD)
FLOAT_CLASSES = (NULL, *DIGITS, SCIENTIFIC)
TIME_CLASSES = (NULL, *TIME_STEPS)
OTHER_CLASSES = (NULL, "known")
ZERO_PADDED = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}")


def classes_of(dtype: pa.DataType) -> tuple[str, ...]:
    """The classes that a cell of a column of this type may have."""
    plain = value_type(dtype)
    if is_text(plain) and not pa.types.is_dictionary(dtype):
        return TEXT_CLASSES
    if pa.types.is_floating(plain):
        return FLOAT_CLASSES
    return TIME_CLASSES if is_time(plain) else OTHER_CLASSES


def count_classes(array: pa.ChunkedArray, missing_text: str | None) -> np.ndarray:
    """How many cells of a real column have each of its classes."""
    classes = classes_of(array.type)
    index = {name: position for position, name in enumerate(classes)}
    counts = np.zeros(len(classes))
    values = nan_to_null(plain_array(array))
    counts[0] = values.null_count
    known = values.drop_null()
    if classes is TEXT_CLASSES:
        counted = pc.value_counts(known)
        words = counted.field("values").to_pylist()
        for word, count in zip(words, counted.field("counts").to_pylist(), strict=True):
            counts[index[class_of_text(word, missing_text)]] += count
    elif classes is FLOAT_CLASSES:
        numbers = np.asarray(known.to_numpy(zero_copy_only=False), np.float64)
        counts[0] += np.isinf(numbers).sum()
        found = _decimals(numbers[np.isfinite(numbers)], str(known.type))
        counts[1:] += np.bincount(found, minlength=len(classes) - 1)
    elif classes is TIME_CLASSES:
        for name, count in _steps(known).items():
            counts[index[name]] += count
    else:
        counts[1] = len(known)
    return counts


def class_of_text(word: str, missing_text: str | None) -> str:
    """The class of one text."""
    if word == missing_text:
        return NULL
    if word in MISSING_TEXTS:
        return f"missing {word}"
    if re.fullmatch(text_formats.WHOLE, word):
        return DIGITS[0]
    if re.fullmatch(text_formats.POINT, word) and len(word) <= 16:
        decimals = len(word.partition(".")[2])
        return DIGITS[decimals] if decimals <= MOST_DECIMALS else SCIENTIFIC
    if is_number_text(word):
        return SCIENTIFIC
    return _class_of_date(word) if ZERO_PADDED.match(word) else WORD


def is_number_text(word: str) -> bool:
    """Whether Python writes some finite number so."""
    try:
        number = float(word)
    except ValueError:
        return False
    return np.isfinite(number) and repr(number).removesuffix(".0") == word.removesuffix(".0")


def _class_of_date(word: str) -> str:
    fitting = [pattern for pattern in DATE_PATTERNS if _is_date(word, pattern)]
    for name, patterns in EITHER.items():
        if set(fitting) == set(patterns):
            return name
    return fitting[0] if fitting else WORD


def _is_date(word: str, pattern: str) -> bool:
    try:
        return time.strftime(pattern, time.strptime(word, pattern)) == word
    except ValueError:
        return False


def _decimals(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """The decimals that each number needs, MOST_DECIMALS + 1 if it needs more."""
    found = np.full(len(numbers), MOST_DECIMALS + 1)
    kind = np.dtype({"halffloat": "float16", "float": "float32"}.get(dtype, "float64"))
    own = numbers.astype(kind)
    for decimals in reversed(range(MOST_DECIMALS + 1)):
        with np.errstate(over="ignore", invalid="ignore"):
            back = (np.round(numbers * 10.0**decimals) / 10.0**decimals).astype(kind)
        found[(back == own) & (np.abs(numbers) < 2.0**53 / 10.0**decimals)] = decimals
    return found


def _steps(known: pa.Array) -> dict[str, int]:
    """How many times are whole days, whole hours but no days, and so on."""
    raw = raw_values(local_time(known)).astype(np.int64)
    left = np.ones(len(raw), bool)
    counts = {}
    for name in TIME_STEPS:
        whole = left & (raw % step_of(known.type, name) == 0)
        counts[name] = int(whole.sum())
        left &= ~whole
    return counts


def step_of(dtype: pa.DataType, name: str) -> int:
    """A step of time in the units in which a type stores times."""
    if pa.types.is_date32(dtype):
        return 1
    unit = "ms" if pa.types.is_date64(dtype) else dtype.unit
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return max(1, TIME_STEPS[name] * per_second // 10**9)


# --- what noisy counts say -------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """How a column is read, by noisy counts of its classes."""

    kind: str  # numbers, times, words
    missing: float  # cells
    known: float
    format: str | None = None  # of text that stands for numbers or times
    missing_text: str | None = None
    decimals: int | None = None
    time_step: str | None = None


def decide(dtype: pa.DataType, noisy: np.ndarray, scale: float, entries: Mapping[str, Any]) -> Form:
    """The form of a column of some type. `entries` are what a user has set in the schema."""
    classes = classes_of(dtype)
    counts = dict(zip(classes, np.where(noisy > SURE * scale, noisy, 0.0).tolist(), strict=True))
    missing = sum(count for name, count in counts.items() if name in MISSING)
    known = sum(count for name, count in counts.items() if name not in MISSING)
    plain = value_type(dtype)
    if entries.get("kind") == "categorical" or pa.types.is_dictionary(dtype):
        return _words(counts, missing, known, entries)
    if classes is TEXT_CLASSES:
        return _decide_text(counts, missing, known, entries)
    if classes is FLOAT_CLASSES:
        decimals = _most_decimals(counts, known) if known else 0
        decimals = entries.get("decimals", decimals)
        return Form("numbers", missing, known, decimals=decimals)
    if classes is TIME_CLASSES:
        steps = [name for name in TIME_STEPS if counts[name] > RARELY * known]
        step = steps[-1] if steps else "nanosecond"
        return Form("times", missing, known, time_step=step)
    if pa.types.is_boolean(plain) or pa.types.is_null(plain):
        return _words(counts, missing, known, entries)
    decimals = plain.scale if pa.types.is_decimal(plain) else 0
    return Form("numbers", missing, known, decimals=decimals)


def _words(
    counts: Mapping[str, float], missing: float, known: float, entries: Mapping[str, Any]
) -> Form:
    """Text stays as it is, and so do the usual spellings of a missing value, but for the one that
    a user has named."""
    null = counts[NULL]
    return Form("words", null, known + missing - null, missing_text=entries.get("missing_text"))


def _most_decimals(counts: Mapping[str, float], known: float) -> int | None:
    """The decimals of numbers; None if many need more than can be counted."""
    if counts[SCIENTIFIC] > RARELY * known:
        return None
    return max((d for d, name in enumerate(DIGITS) if counts[name] > RARELY * known), default=0)


def _decide_text(
    counts: Mapping[str, float], missing: float, known: float, entries: Mapping[str, Any]
) -> Form:
    spelling = entries.get("missing_text")
    if spelling is None:
        found = max(MISSING, key=lambda name: counts[name])
        has_spelling = counts[found] > 0 and found != NULL
        spelling = found.removeprefix("missing ") if has_spelling else None
    numbers = sum(counts[name] for name in (*DIGITS, SCIENTIFIC))
    if known > 0 and numbers >= LEAST_SHARE * known:
        decimals = _most_decimals(counts, known)
        used = [d for d, name in enumerate(DIGITS) if counts[name] > RARELY * known]
        if decimals is not None and len(used) <= 1:
            fmt = "integer" if decimals == 0 else f"fixed:{decimals}"
        else:
            fmt = "plain" if 0 in used else "shortest"
        decimals = entries.get("decimals", decimals)
        return Form("numbers", missing, known, fmt, spelling, decimals)
    for pattern in DATE_PATTERNS:
        either = sum(counts[name] for name, patterns in EITHER.items() if pattern in patterns)
        rivals = [p for patterns in EITHER.values() if pattern in patterns for p in patterns]
        is_best = all(counts[pattern] >= counts[rival] for rival in rivals)
        if known > 0 and counts[pattern] + either >= LEAST_SHARE * known and is_best:
            step = "second" if "%S" in pattern else "minute" if "%H" in pattern else "day"
            return Form("times", missing, known, f"s:{pattern}", spelling, None, step)
    return _words(counts, missing, known, entries)
