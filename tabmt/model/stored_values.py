"""Which real values a model file contains: a description, and a search for those it must not have.

The search takes the view of an attacker who has the file. It looks for the values of a table that
occur in fewer than a number of rows: as text anywhere in the file, as numbers among those stored
for their column, and by solving: if an edge or a knot were half-way between two neighbouring
values, or a centre an exact mean, then a known value would give the next one (2 * edge - known).
The table helps the attacker at every step. On a fine grid many solved numbers are correct by
chance; so solved values count only if there are more of them than the same search finds with
stored numbers that are moved slightly at random.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt.codec.columns import CategoricalCodec, CodedColumn, IdCodec, NumericCodec
from tabmt.data.arrow_types import is_text
from tabmt.data.dataset import Dataset
from tabmt.data.protection import ValueCounts
from tabmt.data.typed_columns import TypedColumn, parse_column
from tabmt.model.fitted_model import FittedModel
from tabmt.model.model_file import load_model, read_file
from tabmt.seeds import numpy_stream

LEAST_LETTERS = 6  # of a text that is searched among all bytes; shorter ones occur by chance
LEAST_DIGITS = 6  # of a number that is searched so ...
LEAST_BYTES = 5  # ... and bytes that are not zero
CONTROLS = 20  # searches with stored numbers that are moved ...
MARGIN = 2  # ... and how many times as many values as the luckiest of them count
NEAREST = 3  # stored numbers on each side with which a known value is mirrored
ROUNDS = 200  # in which solved values solve others
LEAST_CHANCE = 0.05  # exact means that there may be by chance at least ...
MOST_LUCK = 1e-3  # ... and the probability of so many, below which they count


def describe(model: FittedModel) -> dict[str, str]:
    """By column: which of its real values the model contains."""
    protect = model.card.settings.codec.protect
    return {coded.name: _describe(coded, protect) for coded in model.codec.coded}


def _describe(coded: CodedColumn, protect: int) -> str:
    codec = coded.codec
    frequent = f", each in at least {protect} rows" if protect else ", however rare"
    if isinstance(codec, IdCodec):
        return "no value, only the format of the ids"
    if isinstance(codec, NumericCodec):
        atoms, bins = int(codec.codes.atom.sum()), int((~codec.codes.atom).sum())
        single = f"{atoms:,} individual number{'s' * (atoms != 1)}{frequent}"
        origin = f"averages of at least {protect} rows" if protect else "exact ends and midpoints"
        ranges = f"{bins:,} bin{'s' * (bins != 1)} stored as {origin}"
        return "; ".join(text for text, count in ((single, atoms), (ranges, bins)) if count)
    if isinstance(codec, CategoricalCodec):
        size = len(codec.values)
        words = f"{size:,} categor{'y' if size == 1 else 'ies'}{frequent}"
        return words + ("; rare ones only together, as one value" if codec.has_rare else "")
    return "no value" if codec.is_empty else "one value, in every row"


@dataclass(frozen=True)
class FoundValues:
    """How many rare values of a column a search has found, by where."""

    column: str
    rare: int  # distinct values that too few rows hold
    text: int = 0  # in the bytes of the file
    stored: int = 0  # among the values of the column
    solved: int = 0  # more than by chance

    @property
    def found(self) -> int:
        return self.text + self.stored + self.solved


@dataclass(frozen=True)
class FileScan:
    """What a search has found in a file: values by column, and combinations by rule."""

    protect: int
    columns: tuple[FoundValues, ...]
    combinations: Mapping[str, int]

    @property
    def found(self) -> int:
        return sum(one.found for one in self.columns) + sum(self.combinations.values())


def scan_file(path: Path, table: Any, protect: int) -> FileScan:
    """Search a model file for values of a table that fewer than `protect` rows hold."""
    model, dataset = load_model(path), Dataset.open(table)
    model.codec.check_columns(dataset.column_names)
    typed = {
        coded.name: parse_column(dataset.column(coded.name), coded.column)
        for coded in model.codec.coded
    }
    content = FileContent(path, {name: ValueCounts.of(own.known) for name, own in typed.items()},
                          protect)  # fmt: skip
    columns = [
        _scan_column(coded, typed[coded.name], content, index)
        for index, coded in enumerate(model.codec.coded)
    ]
    return FileScan(protect, tuple(columns), _rare_combinations(model, typed, protect))


@dataclass(frozen=True)
class FileContent:
    """A model file as bytes and as texts, and what the columns of a table may show in it."""

    path: Path
    counts: Mapping[str, ValueCounts]
    protect: int

    def rare(self, name: str) -> pa.Array:
        """The distinct values of a column that too few rows hold."""
        counts = self.counts[name]
        return counts.values.filter(pa.array(counts.counts < self.protect))

    @cached_property
    def _file(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return read_file(self.path, "model")

    @property
    def metadata(self) -> dict[str, Any]:
        return self._file[0]

    @cached_property
    def _shares(self) -> np.ndarray:
        """Shares of mass below knots, of round numbers and of equal ones: they are no values."""
        ends = ("knot_share", "round_shares", "equal_shares")
        shares = [t.numpy() for name, t in self._file[1].items() if name.endswith(ends)]
        return np.concatenate(shares) if shares else np.zeros(0)

    @cached_property
    def _bytes(self) -> bytes:
        # JSON in JSON, as the header has it, is also searched without its escapes.
        plain = json.dumps(self.metadata, ensure_ascii=False).encode()
        return self.path.read_bytes() + b"\n" + plain

    @cached_property
    def _frequent_text(self) -> str:
        """All text that may be in the file: column names, and values that enough rows hold."""
        words = list(self.counts)
        for counts in self.counts.values():
            if is_text(counts.values.type):
                frequent = counts.values.filter(pa.array(counts.counts >= self.protect))
                words += frequent.to_pylist()
        return "\n".join(words)

    def contains_text(self, word: str) -> bool:
        """Whether a text is in the file that is no part of what may be there."""
        if len(word) < LEAST_LETTERS or word in self._frequent_text:
            return False
        escaped = json.dumps(word)[1:-1]
        return any(form.encode() in self._bytes for form in {word, escaped})

    @cached_property
    def _words(self) -> list[np.ndarray]:
        """All bytes as 64-bit words, from each of the first eight bytes on."""
        raw = self.path.read_bytes()
        return [np.frombuffer(raw, np.int64, (len(raw) - start) // 8, start) for start in range(8)]

    def contains_numbers(self, name: str, numbers: np.ndarray) -> int:
        """How many numbers with many digits are in the bytes of the file, as float64 or int64."""
        everywhere = [
            np.asarray(own.values.cast(pa.float64(), safe=False).to_numpy())
            for other, own in self.counts.items()
            if other != name and _is_plain_number(own.values.type)
        ]
        long = numbers[[_digits(number) >= LEAST_DIGITS for number in numbers.tolist()]]
        for others in (*everywhere, self._shares):  # which may be stored for something else
            long = long[~np.isin(long, others)]
        whole = np.where((long == np.floor(long)) & (np.abs(long) < 2.0**62), long, 0.0)
        found = np.zeros(len(long), bool)
        for form in (long.astype(np.float64).view(np.int64), whole.astype(np.int64)):
            by_chance = (form.reshape(-1, 1).view(np.uint8) != 0).sum(1) < LEAST_BYTES
            for words in self._words:
                found |= np.isin(form, words) & ~by_chance
        return int(found.sum())


def _is_plain_number(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype))


def _digits(number: float) -> int:
    """Significant digits, without trailing zeros."""
    if not np.isfinite(number):
        return 0
    mantissa = f"{number:.17g}".split("e")[0]
    return len(mantissa.replace(".", "").replace("-", "").strip("0"))


def _scan_column(
    coded: CodedColumn, typed: TypedColumn, content: FileContent, index: int
) -> FoundValues:
    name = coded.name
    rare = content.rare(name)
    if len(rare) == 0:
        return FoundValues(name, 0)
    own = content.metadata["codecs"][index]
    if isinstance(coded.codec, NumericCodec):
        return _scan_numbers(coded.codec, typed, rare, content, name)
    words = rare.cast(pa.string()).to_pylist() if not pa.types.is_null(rare.type) else []
    known = set(_strings(own))
    for values in (coded.codec.categories, getattr(coded.codec, "dictionary", None)):
        if values is not None:
            known |= set(values.cast(pa.string()).to_pylist())
    stored = {word for word in words if word in known}
    text = {word for word in words if word not in stored and content.contains_text(word)}
    numbers = [number for number in _numbers(own) if _digits(number) > 2]
    if _is_plain_number(rare.type):
        values = rare.cast(pa.float64(), safe=False).to_numpy()
        stored |= {str(value) for value in values[np.isin(values, numbers)]}
    return FoundValues(name, len(rare), text=len(text), stored=len(stored))


def _strings(content: Any) -> Iterator[str]:
    """All texts in JSON content."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for item in content.values():
            yield from _strings(item)
    elif isinstance(content, list):
        for item in content:
            yield from _strings(item)


def _numbers(content: Any) -> Iterator[float]:
    if isinstance(content, int | float) and not isinstance(content, bool):
        yield float(content)
    elif isinstance(content, Mapping | list):
        for item in content.values() if isinstance(content, Mapping) else content:
            yield from _numbers(item)


# --- numbers -------------------------------------------------------------------------------


def _scan_numbers(
    codec: NumericCodec, typed: TypedColumn, rare: pa.Array, content: FileContent, name: str
) -> FoundValues:
    codes, units = codec.codes, codec.grid.units(typed.known)
    secret = np.unique(codec.grid.units(rare))
    stored = np.concatenate([codes.centres, codes.edges, codes.knot_value])
    offset = float(codec.grid.offset)
    exact = np.isin(secret, stored) | (offset != 0 and np.isin(secret, [0.0]))
    raw = content.contains_numbers(name, secret[~exact & np.isfinite(secret)])
    left = secret[~exact & np.isfinite(secret)]
    rng = numpy_stream(0, "scan", name)
    solved = 0
    stored = np.unique(stored[np.isfinite(stored)])
    if len(left) and len(stored):
        finite = np.sort(units[np.isfinite(units)])
        frequent = np.setdiff1d(finite, secret)
        mirrored = _Mirror(left, frequent, codec.grid.continuous)
        others = np.setdiff1d(stored, frequent)  # frequent values are no secret
        controls = [mirrored.solve(_moved(others, rng)).sum() for _ in range(CONTROLS)]
        most = MARGIN * max(controls) + CONTROLS / 4
        found = mirrored.solve(others)
        found = found if found.sum() > most else np.zeros(len(left), bool)
        solved = int((found | _exact_means(codec, finite, left)).sum())
    return FoundValues(name, len(rare), text=raw, stored=int(exact.sum()), solved=solved)


def _moved(stored: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ascending numbers, each moved by up to half of the way to a neighbour."""
    if len(stored) < 2:
        width = np.maximum(1.0, np.abs(stored))
        return np.asarray(stored + rng.uniform(-0.5, 0.5, len(stored)) * width)
    step = np.diff(stored)
    below, above = np.append(step[0], step), np.append(step, step[-1])
    return np.asarray(stored + rng.uniform(-0.5, 0.5, len(stored)) * np.minimum(below, above))


@dataclass(frozen=True)
class _Mirror:
    """Solves `2 * stored - known` for secret values, with the frequent values known."""

    secret: np.ndarray  # ascending
    frequent: np.ndarray
    continuous: bool

    def solve(self, stored: np.ndarray) -> np.ndarray:
        """(n,) bool: the secret values found, each of which helps to find others."""
        found = np.zeros(len(self.secret), bool)
        new = np.concatenate([self.frequent, stored])
        for _ in range(ROUNDS if len(stored) else 0):
            hits = self._hits(self._mirror(stored, new)) & ~found
            if not hits.any():
                break
            found |= hits
            new = self.secret[hits]
        return found

    def _mirror(self, stored: np.ndarray, known: np.ndarray) -> np.ndarray:
        at = np.searchsorted(stored, known)
        guesses = [
            2 * stored[(at + shift).clip(0, len(stored) - 1)] - known
            for shift in range(-NEAREST, NEAREST)
        ]
        return np.concatenate(guesses)

    def _hits(self, guesses: np.ndarray) -> np.ndarray:
        guesses = guesses if self.continuous else np.round(guesses)
        tolerance = 1e-9 * np.abs(guesses) if self.continuous else 0.0
        at = np.searchsorted(self.secret, guesses)
        hit = np.zeros(len(self.secret), bool)
        for side in (at - 1, at):
            side = side.clip(0, len(self.secret) - 1)
            near = np.abs(self.secret[side] - guesses) <= tolerance
            hit[side[near]] = True
        return hit


def _exact_means(codec: NumericCodec, finite: np.ndarray, secret: np.ndarray) -> np.ndarray:
    """(n,) bool: the secret values that follow from the centre of their bin and its other values.

    They count if more bins than by chance have a centre that is the mean of their values.
    """
    codes = codec.codes
    own, _ = codes.encode(finite)
    solved, exact, chance = np.zeros(len(secret), bool), 0, LEAST_CHANCE
    for code in np.flatnonzero(~codes.atom):
        members = finite[own == code]
        inside = np.isin(secret, members)
        if not inside.any() or members[0] == members[-1]:
            continue
        tolerance = 1e-6 * float(np.ptp(members)) if codec.grid.continuous else 0.5
        error = abs(codes.centres[code] - members.mean()) * len(members)
        width = float(members.std() * np.sqrt(len(members)))  # of such errors of random means
        chance += min(1.0, 0.8 * tolerance / width)
        if error < tolerance:
            exact += 1
            solved |= inside
    return solved if _luck(exact, chance) < MOST_LUCK else np.zeros(len(secret), bool)


def _luck(count: int, expected: float) -> float:
    """The probability of so many, or more, where so many are expected (Poisson)."""
    term, below = math.exp(-expected), 0.0
    for index in range(count):
        below += term
        term *= expected / (index + 1)
    return 1 - below


# --- combinations --------------------------------------------------------------------------


def _rare_combinations(
    model: FittedModel, typed: Mapping[str, TypedColumn], protect: int
) -> dict[str, int]:
    """By rule: the combinations that it stores and that some, but too few rows hold."""
    rare = {}
    codec = model.codec
    for rule in model.rules.rules:
        if not rule.is_combination:
            continue
        names = [name for name in rule.columns if name in codec.token_index]
        codes = np.stack([codec[name].encode(typed[name])[0] for name in names], axis=1)
        rows, counts = np.unique(codes, axis=0, return_counts=True)
        few = {tuple(row) for row in rows[counts < protect].tolist()}
        known = [[c.item() < codec[n].codec.size for c, n in zip(row, names, strict=True)]
                 for row in model.rules.combinations[rule.name]]  # fmt: skip
        stored = {
            tuple(row)
            for row, is_known in zip(
                model.rules.combinations[rule.name].tolist(), known, strict=True
            )
            if all(is_known)
        }
        rare[rule.name] = len(few & stored)
    return rare
