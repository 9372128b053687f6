"""Identifiers are generated, never learned: new ones in the same format, each only once.

A format is a number of possible identifiers and a way to write each of them. Row i of a sample gets
identifier number (a * i + b) mod count, with a and b from the seed. This is a permutation that
needs no memory, so rows can be generated in chunks. Text of several lengths or shapes has several
patterns, which take turns as often as the shapes occur. A pattern is made only from a shape that
enough rows share, and allows many times as many identifiers as the table has, so that a new
identifier is hardly ever a real one.
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
from tabmt.fingerprint import fingerprint
from tabmt.seeds import derive, numpy_stream

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
MOST_ROOM = 10_000  # for each identifier of a shape that is not that of all
LEAST_SHARED = 5  # rows that must share a shape
TURNS = 64  # in which patterns take turns
RARELY_REAL = 10**8  # possible identifiers for each real one, of which a sample has hardly any
LEAST_FREE = 10**6  # identifiers that must be left if the real ones are left out
MOST_REMAINDERS, MOST_STORED = 2**16, 2**11
CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
SYLLABLE = (CONSONANTS, VOWELS)
CAPITAL = (CONSONANTS.upper(), VOWELS)
GENERAL = {  # for words whose shapes differ too much, or that are too short
    "email": (*SYLLABLE * 5, *"@example.org"),
    "name": (*CAPITAL, *SYLLABLE * 2, " ", *CAPITAL, *SYLLABLE * 3),
}
ROUND_DIGITS = 2  # of the ends of numbers that are stored


@dataclass(frozen=True)
class FreeNumbers:
    """Numbers of a pattern that no real identifier has: some remainders of a division.

    Only half of the remainders that no real identifier has are used, drawn at random, so that a
    number with another remainder is hardly more likely to be real.
    """

    divisor: int
    remainders: tuple[int, ...]

    @classmethod
    def find(cls, taken: np.ndarray, count: int, words: int, secret: str) -> "FreeNumbers | None":
        """None if new identifiers are hardly ever real ones anyway, or if too few would be left.

        `secret` depends on all identifiers, so that the draw cannot be repeated without them.
        """
        if count > RARELY_REAL * words:
            return None
        divisor = min(2 * words, MOST_REMAINDERS)
        unused = np.setdiff1d(np.arange(divisor), taken % divisor)
        used = numpy_stream(0, "free", secret).permutation(unused)[: len(unused) // 2]
        found = cls(divisor, tuple(np.sort(used[:MOST_STORED]).tolist()))
        return found if found.available(count) >= LEAST_FREE else None

    def available(self, count: int) -> int:
        return count // self.divisor * len(self.remainders)

    def number(self, index: int) -> int:
        times, which = divmod(index, len(self.remainders))
        return times * self.divisor + self.remainders[which]


@dataclass(frozen=True)
class Identifiers:
    """Text by a `pattern`, or whole numbers from `start` on."""

    start: int = 0
    count: int | None = None  # None: consecutive
    pattern: tuple[str, ...] = ()  # one entry per character: its alphabet, or the character itself
    prefix: str = ""  # text without a common pattern becomes prefix1, prefix2, ...
    skip: int | None = None  # the number of the identifier that would be a missing value
    patterns: tuple[tuple[str, ...], ...] = ()  # several patterns ...
    turns: tuple[int, ...] = ()  # ... and how many of TURNS each has
    free: tuple["FreeNumbers | None", ...] = ()  # of each pattern; None: all its numbers
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
        if pa.types.is_integer(values.type):  # rounding must not leave the type
            least, most = _ends(values.type)
            low, high = max(low, least), min(high, most)
        count = high - low + 1
        # Above the real ones, if the type has room there, so that none of them is repeated.
        start = high + 1 if _fits(high + count, values.type) else low
        return cls(start=start, count=count, skip=skip)

    @classmethod
    def _find_text(
        cls, name: str, values: pa.Array, missing: str | None, form: str | None
    ) -> "Identifiers":
        words = values.to_pylist()
        secret = fingerprint(sorted(words))
        if form not in ("card", "iban", "email") and len({len(word) for word in words}) == 1:
            pattern = tuple(_alphabet(set(letters)) for letters in zip(*words, strict=True))
            count = math.prod(len(letters) for letters in pattern)
            if all(pattern) and count >= ROOM * len(words):
                free = _find_free(words, pattern, form, secret)
                if free is not None and _read(missing, pattern) is None:
                    return cls(patterns=(pattern,), turns=(TURNS,), free=(free,))
                return cls(count=count, pattern=pattern, skip=_read(missing, pattern))
        patterns = _find_patterns(words, missing, form)
        if patterns:
            turns = _share_turns(list(patterns.values()))
            all_free = tuple(_find_free(words, pattern, form, secret) for pattern in patterns)
            return cls(patterns=tuple(patterns), turns=turns, free=all_free, form=form)
        stem = re.sub(r"\W+", "_", name).strip("_") or "id"
        return cls(start=1, prefix=f"{stem}_")

    def generate(
        self, first: int, rows: int, *, dtype: pa.DataType, seed: int, name: str
    ) -> pa.Array:
        if self.patterns:
            return pa.array([self._by_turn(first + i, seed) for i in range(rows)], dtype)
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
                f"Column {name!r}: {dtype} cannot hold {first + rows} distinct ids. Generate fewer "
                "rows, or give the column a wider type and fit again."
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
        order = [index for index, count in enumerate(self.turns) for _ in range(count)]
        # Spread, so that neighbouring rows differ: 37 and TURNS have no common divisor.
        order = [order[37 * turn % len(order)] for turn in range(len(order))]
        return [(index, order[:turn].count(index)) for turn, index in enumerate(order)]

    def _by_turn(self, row: int, seed: int) -> str:
        round_, turn = divmod(row, len(self._turn))
        chosen, earlier = self._turn[turn]
        pattern = self.patterns[chosen]
        count, free = _room(pattern), self.free[chosen]
        number = round_ * self.turns[chosen] + earlier
        available = count if free is None else free.available(count)
        repetition, number = divmod(number, available)
        number = _permuted(number, available, derive(seed, "pattern", chosen))
        number = number if free is None else free.number(number)
        return _with_checksum(_write(pattern, count, repetition * count + number), self.form)


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


def _room(pattern: tuple[str, ...]) -> int:
    """The number of identifiers that a pattern has."""
    return math.prod(len(alphabet) for alphabet in pattern)


def _find_free(
    words: list[str], pattern: tuple[str, ...], form: str | None, secret: str
) -> FreeNumbers | None:
    """The numbers of a pattern that are none of these words."""
    count = _room(pattern)
    if count >= 2**62:
        return None
    fixed = [index for index, alphabet in enumerate(pattern) if alphabet == "0"]
    taken = []
    for word in words:
        if form in ("card", "iban") and len(word) == len(pattern):  # check digits are computed
            word = "".join("0" if index in fixed else c for index, c in enumerate(word))
        if (number := _read(word, pattern)) is not None:
            taken.append(number)
    return FreeNumbers.find(np.array(taken, np.int64), count, len(words), secret)


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
    """Round down to this many significant digits."""
    step: int = 10 ** max(0, len(str(abs(number))) - digits)
    return number // step * step


# --- shapes ---------------------------------------------------------------------------------


def _find_patterns(
    words: list[str], missing: str | None, form: str | None
) -> dict[tuple[str, ...], int]:
    """The patterns of shapes that enough words share, the most frequent ones, with their counts."""
    domains = Counter(word.rpartition("@")[2] for word in words) if form == "email" else None
    by_shape = defaultdict(list)
    for word in words:
        if domains is not None:
            local, _, domain = word.rpartition("@")
            word = f"{local}@{domain if domains[domain] >= LEAST_SHARED else 'example.org'}"
        by_shape[_shape_of(word, form)].append(word)
    patterns: dict[tuple[str, ...], int] = {}
    for same in sorted(by_shape.values(), key=len, reverse=True):
        pattern = _pattern_of_shape(same, form)
        is_wide = _room(pattern) >= min(ROOM * len(words), MOST_ROOM * len(same))
        if len(same) >= LEAST_SHARED and is_wide and _read(missing, pattern) is None:
            patterns[pattern] = patterns.get(pattern, 0) + len(same)
        if len(patterns) == TURNS:
            break
    if not patterns and form in GENERAL:
        patterns[GENERAL[form]] = len(words)
    return patterns


def _shape_of(word: str, form: str | None) -> str:
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


def _pattern_of_shape(words: list[str], form: str | None) -> tuple[str, ...]:
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


def _ends(dtype: pa.DataType) -> tuple[int, int]:
    """The smallest and the largest number of a type of whole numbers."""
    limits = np.iinfo(dtype.to_pandas_dtype())
    return int(limits.min), int(limits.max)


def _alphabet(letters: set[str]) -> str:
    """The letter itself if it never changes, else the smallest alphabet; "" if there is none."""
    if len(letters) == 1:
        return letters.pop()
    return next((alphabet for alphabet in ALPHABETS if letters <= set(alphabet)), "")
