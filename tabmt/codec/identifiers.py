"""Identifiers are generated, never learned: new ones in the same format, each only once.

A format is a number of possible identifiers and a way to write each of them. Row i of a sample gets
identifier number (a * i + b) mod count, with a and b from the seed. This is a permutation that
needs no memory, so rows can be generated in chunks.
"""

import math
import re
import string
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt.data.arrow_types import is_text
from tabmt.data.units import raw_values
from tabmt.errors import UserError
from tabmt.seeds import derive

ALPHABETS = (
    string.digits,
    string.digits + "abcdef",
    string.digits + "ABCDEF",
    string.ascii_lowercase,
    string.ascii_uppercase,
    string.ascii_letters,
    string.ascii_letters + string.digits,
)
ROOM = 10  # a pattern must allow this many times the number of identifiers in the table


@dataclass(frozen=True)
class Identifiers:
    """Text by a `pattern`, or whole numbers from `start` on."""

    start: int = 0
    count: int | None = None  # None: consecutive
    pattern: tuple[str, ...] = ()  # one entry per character: its alphabet, or the character itself
    prefix: str = ""  # text without a common pattern becomes prefix1, prefix2, ...
    skip: int | None = None  # the number of the identifier that would be a missing value

    @classmethod
    def find(cls, name: str, values: pa.Array, missing: Any = None) -> "Identifiers":
        """`missing` is the value that stands for a missing one; it is never generated."""
        if is_text(values.type):
            return cls._find_text(name, values, missing)
        raw = raw_values(values)
        low, high = int(raw.min()), int(raw.max())
        skip = int(missing) if missing is not None and float(missing).is_integer() else None
        if high - low == len(raw) - 1:
            return cls(start=low, skip=skip)
        count = high - low + 1
        # Above the real ones, if the type has room there, so that none of them is repeated.
        start = high + 1 if _fits(high + count, values.type) else low
        return cls(start=start, count=count, skip=skip)

    @classmethod
    def _find_text(cls, name: str, values: pa.Array, missing: str | None) -> "Identifiers":
        words = values.to_pylist()
        if len({len(word) for word in words}) == 1:
            pattern = tuple(_alphabet(set(letters)) for letters in zip(*words, strict=True))
            count = math.prod(len(letters) for letters in pattern)
            if all(pattern) and count >= ROOM * len(words):
                return cls(count=count, pattern=pattern, skip=_read(missing, pattern))
        stem = re.sub(r"\W+", "_", name).strip("_") or "id"
        return cls(start=1, prefix=f"{stem}_")

    def generate(
        self, first: int, rows: int, *, dtype: pa.DataType, seed: int, name: str
    ) -> pa.Array:
        numbers = [self._number(first + i, seed) for i in range(rows)]
        if self.pattern:
            return pa.array([self._write(number) for number in numbers], dtype)
        if self.prefix:
            return pa.array([f"{self.prefix}{number}" for number in numbers], dtype)
        try:
            if pa.types.is_floating(dtype):
                return pa.array(np.array(numbers, np.float64)).cast(dtype)
            return pa.array(numbers, dtype)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise UserError(
                f"Column {name!r} is an id of type {dtype}, which cannot number {first + rows} "
                "rows. Sample fewer rows, or give the column a wider type."
            ) from error

    def _number(self, row: int, seed: int) -> int:
        number = self.start + row
        if self.count is not None:
            skips_one = self.skip is not None and 0 <= self.skip - self.start < self.count
            possible = self.count - skips_one
            if row < possible:
                factor = derive(seed, "id", "factor") % possible or 1
                while math.gcd(factor, possible) != 1:
                    factor += 1
                number = self.start + (factor * row + derive(seed, "id", "shift")) % possible
        is_past_skipped = self.skip is not None and number >= self.skip >= self.start
        return number + is_past_skipped

    def _write(self, number: int) -> str:
        assert self.count is not None
        repetition, number = divmod(number, self.count)
        letters = [f"-{repetition}"] if repetition else []
        for alphabet in reversed(self.pattern):
            number, index = divmod(number, len(alphabet))
            letters.append(alphabet[index])
        return "".join(reversed(letters))


def _read(word: str | None, pattern: tuple[str, ...]) -> int | None:
    """The number of an identifier; None if the pattern does not fit."""
    if word is None or len(word) != len(pattern):
        return None
    number = 0
    for letter, alphabet in zip(word, pattern, strict=True):
        if letter not in alphabet:
            return None
        number = number * len(alphabet) + alphabet.index(letter)
    return number


def _fits(number: int, dtype: pa.DataType) -> bool:
    if pa.types.is_floating(dtype):
        return number < 2**53
    try:
        pa.scalar(number, dtype)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def _alphabet(letters: set[str]) -> str:
    """The letter itself if it never changes, else the smallest alphabet; "" if there is none."""
    if len(letters) == 1:
        return letters.pop()
    return next((alphabet for alphabet in ALPHABETS if letters <= set(alphabet)), "")
