"""Identifiers are generated, never learned: new ones in the same format, each only once.

A format is a number of possible identifiers and a way to write each of them. Row i of a sample gets
identifier number (a * i + b) mod count, with a and b from the seed. This is a permutation that
needs no memory, so rows can be generated in chunks. Text of several lengths or looks has several
patterns, which take turns as often as the looks occur. A pattern is made only of looks that enough
rows share, and has room for many times as many identifiers as the table has, so that a new one is
hardly ever a real one.
"""

import math
import re
import string
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt.data.arrow_types import is_text
from tabmt.data.personal import iban_check_digits, luhn_digit
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
MOST_ROOM = 10_000  # of a look that is not that of all identifiers
LEAST_LOOK = 5  # rows that must share a look
TURNS = 64  # in which patterns take turns
CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
ROUND_DIGITS = 2  # of the ends of numbers that are stored


@dataclass(frozen=True)
class Identifiers:
    """Text by a `pattern`, or whole numbers from `start` on."""

    start: int = 0
    count: int | None = None  # None: consecutive
    pattern: tuple[str, ...] = ()  # one entry per character: its alphabet, or the character itself
    prefix: str = ""  # text without a common pattern becomes prefix1, prefix2, ...
    skip: int | None = None  # the number of the identifier that would be a missing value
    looks: tuple[tuple[str, ...], ...] = ()  # several patterns ...
    turns: tuple[int, ...] = ()  # ... and how many of TURNS each has
    form: str | None = None  # of personal data (data/personal.py), whose checksum is computed

    @classmethod
    def find(
        cls, name: str, values: pa.Array, missing: Any = None, form: str | None = None
    ) -> "Identifiers":
        """`missing` is the value that stands for a missing one; it is never generated."""
        if is_text(values.type):
            return cls._find_text(name, values, missing, form)
        raw = raw_values(values)
        low, high = int(raw.min()), int(raw.max())
        skip = int(missing) if missing is not None and float(missing).is_integer() else None
        if high - low == len(raw) - 1:
            return cls(start=_rounded(low, 1), skip=skip)
        # The ends are two real identifiers, so they are stored rounded.
        low, high = _rounded(low, ROUND_DIGITS), -_rounded(-high, ROUND_DIGITS)
        count = high - low + 1
        # Above the real ones, if the type has room there, so that none of them is repeated.
        start = high + 1 if _fits(high + count, values.type) else low
        start = start if _fits(start, values.type) else int(raw.min())
        return cls(start=start, count=count, skip=skip)

    @classmethod
    def _find_text(
        cls, name: str, values: pa.Array, missing: str | None, form: str | None
    ) -> "Identifiers":
        words = values.to_pylist()
        if form not in ("card", "iban", "email") and len({len(word) for word in words}) == 1:
            pattern = tuple(_alphabet(set(letters)) for letters in zip(*words, strict=True))
            count = math.prod(len(letters) for letters in pattern)
            if all(pattern) and count >= ROOM * len(words):
                return cls(count=count, pattern=pattern, skip=_read(missing, pattern))
        looks = _find_looks(words, missing, form)
        if looks:
            return cls(looks=tuple(looks), turns=_share_turns(list(looks.values())), form=form)
        stem = re.sub(r"\W+", "_", name).strip("_") or "id"
        return cls(start=1, prefix=f"{stem}_")

    def generate(
        self, first: int, rows: int, *, dtype: pa.DataType, seed: int, name: str
    ) -> pa.Array:
        if self.looks:
            return pa.array([self._look(first + i, seed) for i in range(rows)], dtype)
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
                number = self.start + _permuted(row, possible, seed)
        is_past_skipped = self.skip is not None and number >= self.skip >= self.start
        return number + is_past_skipped

    def _write(self, number: int) -> str:
        assert self.count is not None
        return _write(self.pattern, self.count, number)

    @cached_property
    def _turn(self) -> list[tuple[int, int]]:
        """The pattern of each turn, and how many earlier turns have the same."""
        order = [look for look, count in enumerate(self.turns) for _ in range(count)]
        # Spread, so that neighbouring rows differ: 37 and TURNS have no common divisor.
        order = [order[37 * turn % len(order)] for turn in range(len(order))]
        return [(look, order[:turn].count(look)) for turn, look in enumerate(order)]

    def _look(self, row: int, seed: int) -> str:
        round_, turn = divmod(row, len(self._turn))
        look, earlier = self._turn[turn]
        pattern = self.looks[look]
        count = math.prod(len(alphabet) for alphabet in pattern)
        number = round_ * self.turns[look] + earlier
        if number < count:
            number = _permuted(number, count, derive(seed, "look", look))
        return _with_checksum(_write(pattern, count, number), self.form)


def _permuted(number: int, count: int, seed: int) -> int:
    """The image of a number below `count` under a permutation that depends on the seed."""
    factor = derive(seed, "id", "factor") % count or 1
    while math.gcd(factor, count) != 1:
        factor += 1
    return (factor * number + derive(seed, "id", "shift")) % count


def _write(pattern: tuple[str, ...], count: int, number: int) -> str:
    repetition, number = divmod(number, count)
    letters = [f"-{repetition}"] if repetition else []
    for alphabet in reversed(pattern):
        number, index = divmod(number, len(alphabet))
        letters.append(alphabet[index])
    return "".join(reversed(letters))


def _with_checksum(word: str, form: str | None) -> str:
    """A word with the check digits that its form asks for; other characters stay as they are."""
    if form == "card":
        digits = re.sub(r"\D", "", word)
        last = max(index for index, letter in enumerate(word) if letter.isdigit())
        return word[:last] + luhn_digit(digits[:-1]) + word[last + 1 :]
    if form == "iban":
        compact = word.replace(" ", "")
        return word[:2] + iban_check_digits(compact[:2], compact[4:]) + word[4:]
    return word


def _rounded(number: int, digits: int) -> int:
    """Down to so many significant digits."""
    step = 10 ** max(0, len(str(abs(number))) - digits)
    return number // step * step


# --- looks ---------------------------------------------------------------------------------


def _find_looks(
    words: list[str], missing: str | None, form: str | None
) -> dict[tuple[str, ...], int]:
    """The patterns of looks that enough words share, the most frequent ones, with their counts."""
    domains = Counter(word.rpartition("@")[2] for word in words) if form == "email" else None
    by_look = defaultdict(list)
    for word in words:
        if domains is not None:
            local, _, domain = word.rpartition("@")
            word = f"{local}@{domain if domains[domain] >= LEAST_LOOK else 'example.org'}"
        by_look[_look_of(word, form)].append(word)
    looks: dict[tuple[str, ...], int] = {}
    for same in sorted(by_look.values(), key=len, reverse=True):
        pattern = _pattern_of_look(same, form)
        room = math.prod(len(alphabet) for alphabet in pattern)
        is_wide = room >= min(ROOM * len(words), MOST_ROOM * len(same))
        if len(same) >= LEAST_LOOK and is_wide and _read(missing, pattern) is None:
            looks[pattern] = looks.get(pattern, 0) + len(same)
        if len(looks) == TURNS:
            break
    return looks


def _look_of(word: str, form: str | None) -> str:
    """What identifiers of one pattern have in common: the kinds of their characters."""
    keep = len(word.rpartition("@")[0]) if form == "email" else len(word)
    kinds = [_kind_of(letter) for letter in word[:keep]]
    if form == "iban":  # with the country
        kinds[:2] = word[:2]
    return "".join(kinds) + word[keep:]


def _kind_of(letter: str) -> str:
    if letter.isdigit():
        return "0"
    if letter.isalpha():
        return "A" if letter.isupper() else "a"
    return letter


def _pattern_of_look(words: list[str], form: str | None) -> tuple[str, ...]:
    """The alphabet of each character; in words, consonants and vowels alternate."""
    pattern, run = [], 0
    keep = len(words[0].rpartition("@")[0]) if form == "email" else len(words[0])
    for index, letters in enumerate(zip(*words, strict=True)):
        distinct, kind = set(letters), _kind_of(letters[0])
        run = run + 1 if kind in "Aa" else 0
        if index >= keep or len(distinct) == 1:
            pattern.append(letters[0])
        elif kind == "0":
            pattern.append(string.digits)
        else:
            alphabet = CONSONANTS if run % 2 else VOWELS
            pattern.append(alphabet.upper() if kind == "A" else alphabet)
    if form == "card":
        last = max(index for index, letter in enumerate(words[0]) if letter.isdigit())
        pattern[last] = "0"  # computed from the others
    if form == "iban":
        pattern[2:4] = "00"
    return tuple(pattern)


def _share_turns(counts: list[int]) -> tuple[int, ...]:
    """TURNS turns in proportion to the counts, at least one for each."""
    turns = [max(1, int(TURNS * count / sum(counts))) for count in counts]
    while sum(turns) > TURNS:
        turns[int(np.argmax(turns))] -= 1
    turns[0] += TURNS - sum(turns)
    return tuple(turns)


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
