"""Numbers that are often equal in two columns: a lot as large as those around it, a date of
delivery that is the date of the order.

The network learns how often two columns fall into the same bin, but numbers that are drawn
independently inside their bins would hardly ever be equal. So a column may have a partner: with
some probability it takes the number of that column, if it lies in its own bin. The probability of
a number is then a mixture of both cases, so that likelihoods agree with the draws.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tabmt.codec.columns import Bounds, CodedColumn, NumericCodec
from tabmt.codec.round_numbers import neighbours
from tabmt.data.arrow_types import is_time
from tabmt.data.typed_columns import TypedColumn

log = logging.getLogger(__name__)

LEAST_EQUAL = 50  # rows in which two columns are equal ...
LEAST_EQUAL_SHARE = 0.01  # ... and the share of the rows, beyond chance, for it to matter
MOST_COLUMNS = 300  # of numbers that are compared with each other: the pairs grow with the square
PAIRS_AT_ONCE = 4096  # of codes, to bound the memory
PRIOR_ROWS = 50  # with the shares of all bins, which are added to those of each code

Units = np.ndarray  # (rows,) float64, NaN where missing


@dataclass(frozen=True)
class EqualNumbers:
    """How often a column has the number of another one, by its own code."""

    column: str
    other: str
    shares: np.ndarray  # (K,) of the drawn numbers of the other column that lie in the code's bin

    def draw(
        self, codec: NumericCodec, codes: np.ndarray, other: Units, rng: np.random.Generator
    ) -> Bounds:
        """Bounds that make some numbers equal to those of the other column, and free the others."""
        equal = rng.random(len(codes)) < np.where(
            lies_in_bin(codec, codes, other), self.shares[np.minimum(codes, codec.size - 1)], 0.0
        )
        return np.where(equal, other, -np.inf), np.where(equal, other, np.inf)

    def mass(
        self, codec: NumericCodec, codes: np.ndarray, units: Units, other: Units, alone: np.ndarray
    ) -> np.ndarray:
        """Share of its code's mass that a number has, (n,); `alone` is that without the other."""
        shares = np.where(lies_in_bin(codec, codes, other), self.shares[codes], 0.0)
        return np.asarray(shares * (units == other) + (1 - shares) * alone)


def lies_in_bin(codec: NumericCodec, codes: np.ndarray, units: Units) -> np.ndarray:
    """(n,) bool: which numbers belong to the bins of some codes; none does to an atom, to which
    they are equal anyway."""
    known = np.isfinite(units)
    own, outside = codec.codes.encode(np.where(known, units, 0.0))
    is_bin = codec.is_bin[np.minimum(codes, codec.size - 1)] & (codes < codec.size)
    return np.asarray(known & ~outside & is_bin & (own == codes))


def units_of(codec: NumericCodec, typed: TypedColumn) -> Units:
    units = np.full(len(typed.is_known), np.nan)
    units[typed.is_known] = codec.grid.units(typed.known)
    return units


def find_equal_numbers(
    coded: Iterable[CodedColumn],
    typed: Callable[[str], TypedColumn],
    leave: Collection[str],
) -> tuple[EqualNumbers, ...]:
    """The columns that are often equal to another one; those in `leave` may only be the other one,
    because rules decide their numbers."""
    columns = {one.name: one.codec.numeric for one in coded}
    codecs = {name: own for name, own in columns.items() if own is not None and own.is_bin.any()}
    every = {name: own for name, own in columns.items() if own is not None}
    if len(every) > MOST_COLUMNS:
        log.info(
            "more than %d numeric columns: not searching for columns that often equal each other",
            MOST_COLUMNS,
        )
        return ()
    partners = {
        name: [other for other, its in every.items() if other != name and same_grid(own, its)]
        for name, own in codecs.items()
        if name not in leave
    }
    needed = {name for name, others in partners.items() if others}
    needed |= {other for name in needed for other in partners[name]}
    units = {name: units_of(every[name], typed(name)) for name in every if name in needed}
    found: list[tuple[float, EqualNumbers]] = []
    for name, others in partners.items():
        for other in others:
            excess, equal = _compare(name, other, every, units)
            if equal is not None:
                found.append((excess, equal))
    return tuple(_strongest(found))


def same_grid(one: NumericCodec, other: NumericCodec) -> bool:
    """Whether equal units are equal values."""
    a, b = one.grid, other.grid
    if is_time(a.dtype) or is_time(b.dtype) or a.continuous != b.continuous:
        return a == b
    return (a.decimals, a.step, a.offset) == (b.decimals, b.step, b.offset)


def _compare(
    name: str, other: str, codecs: Mapping[str, NumericCodec], units: Mapping[str, Units]
) -> tuple[float, EqualNumbers | None]:
    """In how many rows two columns are equal beyond chance, and how often by code."""
    codec, its_codec, own, its = codecs[name], codecs[other], units[name], units[other]
    if (own == its).sum() < LEAST_EQUAL:
        return 0.0, None
    known = np.flatnonzero(np.isfinite(own) & np.isfinite(its))
    own, its = own[known], its[known]
    codes, _ = codec.codes.encode(own)
    inside = lies_in_bin(codec, codes, its)
    equal = inside & (own == its)
    chance = np.where(inside, codec.codes.point_shares(its, codes), 0.0)
    excess = float(equal.sum() - chance.sum())
    least = max(LEAST_EQUAL, LEAST_EQUAL_SHARE * len(units[name]))
    if excess < least or equal.sum() < 2 * chance.sum():
        return 0.0, None
    # The other number is drawn again inside its own bin, of which a part lies in this one.
    possible = _probability_inside(codec, codes, its_codec, its_codec.codes.encode(its)[0])
    by_code = np.bincount(codes, equal - chance, codec.size)
    possible_by_code = np.bincount(codes, possible, codec.size)
    usual = excess / possible.sum()
    shares = np.zeros(codec.size)
    bins = np.flatnonzero(codec.is_bin)
    for group in neighbours(possible_by_code[bins]):
        here = bins[group]
        share = by_code[here].sum() + PRIOR_ROWS * usual
        shares[here] = np.clip(share / (possible_by_code[here].sum() + PRIOR_ROWS), 0.0, 1.0)
    return excess, EqualNumbers(name, other, shares)


def _probability_inside(
    codec: NumericCodec, codes: np.ndarray, its_codec: NumericCodec, its_codes: np.ndarray
) -> np.ndarray:
    """The probability that a number drawn from one code lies in the bin of another, (n,)."""
    ends, of_codes = codec.codes.ends()
    low, high = np.full(codec.size, np.inf), np.full(codec.size, -np.inf)  # nothing, for atoms
    half = len(ends) // 2
    low[of_codes[:half]], high[of_codes[half:]] = ends[:half], ends[half:]
    pairs, rows = np.unique(codes * its_codec.size + its_codes, return_inverse=True)
    own, its = np.divmod(pairs, its_codec.size)
    inside = np.zeros(len(pairs))
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        some = slice(start, start + PAIRS_AT_ONCE)
        shares = its_codec.codes.shares(low[own[some]], high[own[some]])  # (pairs, K)
        inside[some] = shares[np.arange(len(shares)), its[some]]
    inside[~codec.is_bin[own]] = 0.0
    return np.asarray(inside[rows])


def _strongest(found: list[tuple[float, EqualNumbers]]) -> Iterator[EqualNumbers]:
    """For each column the one that it is equal to most often, without cycles."""
    other_of: dict[str, str] = {}
    for _, equal in sorted(found, key=lambda one: -one[0]):
        last = equal.other
        while last in other_of and last != equal.column:
            last = other_of[last]
        if equal.column not in other_of and last != equal.column:
            other_of[equal.column] = equal.other
            yield equal
