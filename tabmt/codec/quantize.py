"""Quantise a column of numbers into few codes, and draw numbers back from inside a code.

A value that is frequent by itself (0, 99999, 40 hours) is an *atom* with a code of its own; the
other values fall into bins. A bin stores the shape of its values as a few knots of their cumulative
distribution. With protection (data/protection.py), atoms are values that occur in enough rows, and
every other number that is stored is an average over as many rows, so that none can be solved for;
rare numbers beyond the ends are clipped. Without it, knots and inner edges are half-way between two
neighbouring values, and the ends are exact. How round the numbers of a bin are is in
round_numbers.py. Works on the units of data/units.py, without types and missing values.
"""

import dataclasses
import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from tabmt.codec.round_numbers import RoundNumbers, find_round_numbers
from tabmt.config import Decode, Quantizer
from tabmt.data.protection import Protection, has_single_values

Members = list[tuple[np.ndarray, np.ndarray]]  # the values of each bin, and how many rows hold them
# "centre" is the exact centre where the column's type can hold it, "rounded" its nearest grid
# value.
How = Decode | Literal["rounded"]

KNOTS = 8  # intervals between the knots of a bin, each with the same share of its values
KMEANS_POINTS = 10_000  # K-Means sees at most this many weighted points
MOST_ROUNDS = 300  # of plain K-Means; it settles sooner
LEAST_BINS = 10  # reserved for values that are not atoms
SHARED_ROWS = 20  # a value that so many rows share may be an atom ...
MOST_SHARED = 900  # ... unless there would be more than this ...
STANDS_OUT = 4.0  # ... if it has this many times the rows of the values around it
LEAST_ATOM_ROWS = 5  # a value that fewer rows hold shares a bin with others
EVEN_POINTS = 200  # of a bin's distribution, which say how round it is by itself
BIN_ROWS = 2  # times `protect`: the rows that a protected bin has at least
TAIL = (
    3.5  # how far a protected end may lie beyond the rows of its average, in typical excesses ...
)
REACH = 0.6  # ... of which it goes a random share from here to 1


@dataclass(frozen=True)
class Quantized:
    """The codes of one column of numbers, in the order of their centres.

    Code k is the single value `centres[k]` where `atom[k]`. The other codes are the bins
    [edges[b], edges[b + 1]) in ascending order; the last bin includes its upper edge.
    """

    centres: np.ndarray  # (K,) float64
    atom: np.ndarray  # (K,) bool
    edges: np.ndarray  # (bins + 1,) float64, empty without bins
    knot_bin: np.ndarray  # (knots,) int64: the bin of each knot, ascending
    knot_share: np.ndarray  # (knots,) float64: share of the bin's mass below the knot, 0 to 1
    knot_value: np.ndarray  # (knots,) float64, ascending within a bin
    round_steps: np.ndarray  # (S,) float64, of RoundNumbers; empty if none are rounder
    round_shares: np.ndarray  # (bins * S,) float64
    continuous: bool

    @property
    def size(self) -> int:
        return len(self.centres)

    @property
    def ratios(self) -> np.ndarray:
        """The paper's r (eq. 4), in [0, 1]; infinite values lie at the ends."""
        finite = self.centres[np.isfinite(self.centres)]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
        with np.errstate(over="ignore"):
            spread = high - low
        # Halves keep the difference of two huge floats finite.
        if not np.isfinite(spread):
            ratios = (np.clip(self.centres, low, high) / 2 - low / 2) / (high / 2 - low / 2)
        elif spread > 0:
            ratios = (np.clip(self.centres, low, high) - low) / spread
        else:
            ratios = np.where(self.centres > high, 1.0, 0.0)
        return np.asarray(np.clip(ratios, 0.0, 1.0))

    @property
    def extent(self) -> tuple[float, float]:
        """The smallest and the largest number that the codes can represent."""
        points = np.concatenate([self.centres[self.atom], self.edges])
        low, high = float(points.min()), float(points.max())
        return (low, high) if self.continuous else (float(np.ceil(low)), float(np.floor(high)))

    def centres_only(self, *, exact: bool) -> "Quantized":
        """The same codes, each of which stands for its centre alone, `exact` or on the grid."""
        centres = self.centres if exact or self.continuous else np.floor(self.centres + 0.5)
        none = np.zeros(0)
        return Quantized(
            centres=centres,
            atom=np.ones(self.size, bool),
            edges=none,
            knot_bin=none.astype(np.int64),
            knot_share=none,
            knot_value=none,
            round_steps=none,
            round_shares=none,
            continuous=self.continuous,
        )

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last number of each bin, and the codes of these bins."""
        codes = np.flatnonzero(~self.atom)
        bins = np.arange(len(codes))
        sides = [
            self._keep_in_bin(edge, bins, None, None) for edge in (self.edges[:-1], self.edges[1:])
        ]
        return np.concatenate(sides), np.concatenate([codes, codes])

    def encode(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The code of each number, and which numbers the codes cannot represent (these get the
        nearest code)."""
        atom_codes, bin_codes = np.flatnonzero(self.atom), np.flatnonzero(~self.atom)
        atoms = self.centres[atom_codes]
        if len(atoms) == 0:
            is_atom = np.zeros(len(units), bool)
            codes = np.zeros(len(units), np.int64)
        else:
            right = np.searchsorted(atoms, units).clip(0, len(atoms) - 1)
            left = np.maximum(right - 1, 0)
            # Infinity minus infinity is resolved by `is_atom`, and an overflow is far enough.
            with np.errstate(invalid="ignore", over="ignore"):
                nearer = np.abs(atoms[left] - units) < np.abs(atoms[right] - units)
            nearest = np.where(nearer, left, right)
            is_atom = atoms[right] == units
            codes = atom_codes[np.where(is_atom, right, nearest)]
        if len(bin_codes) == 0:
            return codes, ~is_atom
        bins = np.searchsorted(self.edges[1:-1], units, side="right")
        codes = np.where(is_atom, codes, bin_codes[bins])
        outside = ~is_atom & ((units < self.edges[0]) | (units > self.edges[-1]))
        return codes, outside

    def is_beyond(self, units: np.ndarray) -> np.ndarray:
        """Which numbers lie beyond the ends of the bins: never drawn, but decoded if they are
        asked for, because other cells of their row give them."""
        if len(self.edges) == 0:
            return np.zeros(len(units), bool)
        return np.asarray((units < self.edges[0]) | (units > self.edges[-1]))

    def shares(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Share of each code's mass from `low` to `high`, both included: (n,) -> (n, K)."""
        inside = (low[:, None] <= self.centres) & (self.centres <= high[:, None])
        shares = inside.astype(np.float64)
        begin, end = self._positions(low, high)
        bins = np.arange(max(len(self.edges) - 1, 0))
        below, above = (np.clip(at[:, None] - bins, 0.0, 1.0) for at in (begin, end))
        shares[:, ~self.atom] = np.maximum(above - below, 0.0)
        return shares

    def point_shares(self, units: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Share of its code's mass that a number has: (n,) and (n,) -> (n,).

        Continuous numbers have the mass of the millionth of the range around them.
        """
        shares = np.ones(len(units))
        drawn = np.flatnonzero(~self.atom[codes])
        if len(drawn) == 0:
            return shares
        bins = self._bin_of_code[codes[drawn]]
        half = (self.edges[-1] / 2 - self.edges[0] / 2) * 1e-6 if self.continuous else 0.0
        begin, end = self._positions(units[drawn] - half, units[drawn] + half)
        shares[drawn] = np.clip(end - bins, 0.0, 1.0) - np.clip(begin - bins, 0.0, 1.0)
        return shares

    @property
    def _bin_of_code(self) -> np.ndarray:
        return np.asarray(np.cumsum(~self.atom) - 1)

    @cached_property
    def round_numbers(self) -> RoundNumbers | None:
        """How round the numbers of each bin are; None if no more than by chance."""
        if len(self.round_steps) == 0:
            return None
        first, last = zip(*_grid_ends(self.edges), strict=True)
        return RoundNumbers(
            steps=self.round_steps,
            shares=self.round_shares.reshape(-1, len(self.round_steps)),
            first=np.array(first),
            last=np.array(last),
            atoms=self.centres[self.atom],
        )

    def _positions(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where intervals begin and end, as bin + share of the bin's mass below."""
        if len(self.knot_value) == 0:
            return np.zeros(len(low)), np.zeros(len(low))
        if (rounded := self.round_numbers) is not None:
            begin, end = (np.searchsorted(self.edges[1:-1], at, side="right") for at in (low, high))
            return (
                begin + rounded.mass_below(begin, low, self._below, included=False),
                end + rounded.mass_below(end, high, self._below, included=True),
            )
        if not self.continuous:  # a grid value stands for the interval of half a step around it
            low, high = np.ceil(low) - 0.5, np.floor(high) + 0.5
        return self._position(low, "left"), self._position(high, "right")

    def _below(self, points: np.ndarray) -> np.ndarray:
        return self._position(points, "left")

    def _position(self, points: np.ndarray, side: Literal["left", "right"]) -> np.ndarray:
        # Several knots of one value are a jump: "left" is below it, "right" above.
        value, position = self.knot_value, self.knot_bin + self.knot_share
        right = np.searchsorted(value, points, side=side).clip(1, len(value) - 1)
        left = right - 1
        width = value[right] / 2 - value[left] / 2  # halves, so that nothing overflows
        with np.errstate(invalid="ignore"):  # infinite points, handled by the clip
            share = (points / 2 - value[left] / 2) / np.where(width > 0, width, 1.0)
        jump = float(side == "right")
        share = np.where(width > 0, np.clip(np.nan_to_num(share, nan=jump), 0.0, 1.0), jump)
        found = position[left] * (1 - share) + position[right] * share
        found = np.where(points < value[0], 0.0, found)
        return np.asarray(np.where(points > value[-1], position[-1], found))

    def decode(
        self,
        codes: np.ndarray,
        rng: np.random.Generator,
        how: How,
        within: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> np.ndarray:
        """A number for each code: drawn inside its bin, or its centre on the grid.

        `within` bounds each number, low and high (n,), both included; its code must have mass
        there.
        """
        units: np.ndarray = self.centres[codes].copy()
        drawn = np.flatnonzero(~self.atom[codes])
        if len(drawn) == 0:
            return units
        bins = self._bin_of_code[codes[drawn]]
        low, high = (None, None) if within is None else (within[0][drawn], within[1][drawn])
        if how != "inside":
            values = units[drawn] if self.continuous else np.floor(units[drawn] + 0.5)
            values = values if low is None else np.clip(values, low, high)
            units[drawn] = self._keep_in_bin(values, bins, low, high)
            return units
        # PAPER-DIFF decode: the paper returns cluster centres (section 3). We draw inside the bin,
        # because a table of centres is easily told from a real one.
        draws, steps = self._draw_positions(bins, rng, low, high)
        values = self._values_at(draws)
        if self.round_numbers is not None:
            values = self.round_numbers.snap(values, bins, steps)
        elif not self.continuous:
            values = np.floor(values + 0.5)
        units[drawn] = self._keep_in_bin(values, bins, low, high)
        return units

    def _values_at(self, positions: np.ndarray) -> np.ndarray:
        """The points at some positions, given as bin + share of the bin's mass below."""
        position = self.knot_bin + self.knot_share
        right = np.searchsorted(position, positions, side="right")
        right = np.minimum(right, len(position) - 1)
        left = right - 1
        width = position[right] - position[left]
        share = np.where(width > 0, (positions - position[left]) / np.where(width > 0, width, 1), 0)
        return np.asarray(self.knot_value[left] * (1 - share) + self.knot_value[right] * share)

    def _draw_positions(
        self,
        bins: np.ndarray,
        rng: np.random.Generator,
        low: np.ndarray | None,
        high: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where each number lies, as bin + share of the bin's mass below, and its step."""
        rounded, steps = self.round_numbers, np.zeros(len(bins), np.int64)
        begin, end = bins.astype(np.float64), bins + 1.0
        if low is not None and high is not None:
            if rounded is not None:
                steps, begin, end = rounded.draw_steps_within(bins, low, high, self._below, rng)
            else:
                begin, end = (at.clip(bins, bins + 1) for at in self._positions(low, high))
        elif rounded is not None:
            steps = rounded.draw_steps(bins, rng)
        return begin + rng.random(len(bins)) * np.maximum(end - begin, 0.0), steps

    def _keep_in_bin(
        self,
        values: np.ndarray,
        bins: np.ndarray,
        least: np.ndarray | None,
        most: np.ndarray | None,
    ) -> np.ndarray:
        """Move numbers off atoms and inside the edges, so that encoding returns the same code."""
        low, high = self.edges[bins], self.edges[bins + 1]
        last = bins == len(self.edges) - 2
        if self.continuous:
            high = np.where(last, high, np.nextafter(high, -np.inf))
        else:
            low, high = np.ceil(low), np.where(last, np.floor(high), np.ceil(high) - 1)
        if least is not None and most is not None:
            # What is asked for may lie beyond the ends (`is_beyond`).
            low = np.where((bins == 0) & (most < low), most, low)
            high = np.where(last & (least > high), least, high)
            low, high = np.maximum(low, least), np.minimum(high, most)
        values = np.clip(values, low, high)
        atoms = self.centres[self.atom]
        # Draws avoid atoms by construction; rounding, or a centre, may still hit one. A bin that is
        # full of atoms, as only a damaged file has it, leaves a number where it is.
        for step in range(1, len(atoms) + 2):
            if not (hit := np.isin(values, atoms)).any():
                break
            for sign in (1, -1):
                moved = values + sign * step * (np.spacing(values) if self.continuous else 1)
                take = hit & (moved >= low) & (moved <= high) & ~np.isin(moved, atoms)
                values = np.where(take, moved, values)
                hit &= ~take
        return np.asarray(values)


def quantize(
    units: np.ndarray,
    *,
    quantizer: Quantizer,
    max_bins: int,
    continuous: bool,
    seed: int,
    protect: int = 0,
    shared: bool = False,
    find_round: bool = False,
) -> Quantized:
    """Find the codes of a column of numbers without missing values; infinities become atoms.

    With `protect`, only what so many rows share is stored; there must be twice as many of them.
    With `shared`, values that many rows share are atoms beyond `max_bins`. With `find_round`,
    numbers are drawn as round as those of the column; zero must be a unit.
    """
    values, counts = np.unique(units, return_counts=True)
    # PAPER-DIFF protect: the paper stores what K-Means finds, however few rows have it.
    protection = Protection.of(protect, seed, values, counts)
    frequent = np.ones(len(values), bool)
    if protection is not None:
        frequent = protection.is_frequent(counts)
    finite = np.isfinite(values)
    is_few = quantizer == "none" or finite.sum() <= max_bins
    if is_few and frequent.any() and has_single_values(counts, protect):
        return _assemble(values, counts, frequent, [], continuous, protection)
    atom = ~finite & frequent
    if quantizer == "plain-kmeans":
        groups = _plain_kmeans(values, counts, max_bins, seed)
    else:
        atom |= _frequent_numbers(counts, finite & frequent, max_bins)
        bins = max(1, max_bins - int(atom[finite].sum()))
        if shared:
            atom |= _shared(values, counts, finite & frequent & ~atom, continuous)
        groups = _bins(values, counts, np.flatnonzero(finite & ~atom), quantizer, bins, seed)
    if protection is not None:
        groups = _join_small(groups, counts, BIN_ROWS * protect)
    if quantizer != "plain-kmeans":
        for group in groups:
            if len(group) == 1 and frequent[group[0]]:
                atom[group] = True
        groups = [group for group in groups if not atom[group[0]]]
    between_centres = quantizer == "plain-kmeans"
    return _assemble(
        values,
        counts,
        atom,
        groups,
        continuous,
        protection,
        between_centres=between_centres,
        find_round=find_round and not continuous,
    )


def _frequent_numbers(counts: np.ndarray, usable: np.ndarray, max_bins: int) -> np.ndarray:
    """(n,) bool: the values that are atoms in addition to bins."""
    atom = np.zeros(len(counts), bool)
    frequent = np.flatnonzero(usable & (counts * max_bins >= counts.sum()))
    most = max(0, max_bins - LEAST_BINS)
    atom[frequent[np.argsort(-counts[frequent], kind="stable")[:most]]] = True
    return atom


def _bins(
    values: np.ndarray,
    counts: np.ndarray,
    rest: np.ndarray,
    quantizer: Quantizer,
    bins: int,
    seed: int,
) -> list[np.ndarray]:
    """The values at the indices `rest`, which are not atoms, in bins: ascending groups."""
    if len(rest) <= bins or quantizer == "none":
        return list(rest[:, None])
    label = _cut(values[rest], counts[rest], quantizer, bins, seed)
    starts = np.flatnonzero(np.diff(label, prepend=label[0] - 1))
    return _join_rare(np.split(rest, starts[1:]), counts)


def _join_small(groups: list[np.ndarray], counts: np.ndarray, least: int) -> list[np.ndarray]:
    """Join bins of fewer rows with a neighbour; without enough rows for one bin, there is none."""
    joined: list[np.ndarray] = []
    for group in groups:
        if joined and counts[joined[-1]].sum() < least:
            joined[-1] = np.concatenate([joined[-1], group])
        else:
            joined.append(group)
    if joined and counts[joined[-1]].sum() < least:
        last = joined.pop()
        if joined:
            joined[-1] = np.concatenate([joined[-1], last])
    return joined


def _shared(
    values: np.ndarray, counts: np.ndarray, usable: np.ndarray, continuous: bool
) -> np.ndarray:
    """(n,) bool: which values many rows share although they lie where values are rare.

    PAPER-DIFF shared_values: the paper has clusters only. A page has one number of likes in all of
    its rows, a price ends in 99; drawn from inside a bin, such numbers would be lost.
    """
    rows = int(counts.sum())
    often = usable & (counts >= max(SHARED_ROWS, rows / MOST_SHARED))
    if continuous:
        return np.asarray(often)
    # As many grid values as hold so many rows on either side have this many rows on average.
    side = rows / 200
    below = np.cumsum(counts)
    left = values[np.searchsorted(below, below - counts - side)]
    right = values[np.searchsorted(below, below + side).clip(max=len(values) - 1)]
    with np.errstate(over="ignore", invalid="ignore"):  # infinite values are no candidates
        stands_out = counts * (right - left + 1) >= STANDS_OUT * (2 * side + counts)
    return np.asarray(often & stands_out)


def _plain_kmeans(
    values: np.ndarray, counts: np.ndarray, clusters: int, seed: int
) -> list[np.ndarray]:
    """The clusters of K-Means as they are: each value belongs to the nearest centre, and each
    centre is the mean of its values.

    PAPER-DIFF quantizer: the default has single values beside the clusters, so that 0 or 99999 are
    generated exactly, at their rate, and joins clusters of one rare value with a neighbour.
    """
    rest = np.flatnonzero(np.isfinite(values))
    size = _size(values)
    scaled, weights = values[rest] / size, counts[rest]
    label = _cut(scaled, weights, "plain-kmeans", min(clusters, len(rest)), seed)
    for _ in range(MOST_ROUNDS):  # scikit-learn stops when the centres hardly move
        label = np.unique(label, return_inverse=True)[1]
        centres = np.bincount(label, scaled * weights) / np.bincount(label, weights)
        nearest = np.searchsorted((centres[1:] + centres[:-1]) / 2, scaled, side="right")
        if np.array_equal(nearest, label):
            break
        label = nearest
    starts = np.flatnonzero(np.diff(label, prepend=label[0] - 1))
    return np.split(rest, starts[1:])


def _join_rare(groups: list[np.ndarray], counts: np.ndarray) -> list[np.ndarray]:
    """Join bins of a single rare value with a neighbour: such a bin would reveal the value."""
    joined = [groups[0]]
    for group in groups[1:]:
        rare = [len(g) == 1 and counts[g[0]] < LEAST_ATOM_ROWS for g in (joined[-1], group)]
        if any(rare):
            joined[-1] = np.concatenate([joined[-1], group])
        else:
            joined.append(group)
    return joined


def _cut(
    values: np.ndarray, counts: np.ndarray, quantizer: Quantizer, bins: int, seed: int
) -> np.ndarray:
    """Cut ascending distinct values into bins: (n,) ascending labels."""
    values = values / _size(values)
    if quantizer == "uniform":
        inner = np.linspace(values[0], values[-1], bins + 1)[1:-1]
        return np.searchsorted(inner, values, side="right")
    below = np.cumsum(counts) - counts / 2
    if quantizer == "quantile":
        label: np.ndarray = (below / counts.sum() * bins).astype(np.int64)
        return label.clip(max=bins - 1)
    points: np.ndarray = values
    weights: np.ndarray = counts
    plain = quantizer == "plain-kmeans"
    if len(values) > KMEANS_POINTS and not plain:
        group = np.minimum((below / counts.sum() * KMEANS_POINTS).astype(np.int64), KMEANS_POINTS)
        weights = np.bincount(group, counts)
        points = np.bincount(group, values * counts)[weights > 0] / weights[weights > 0]
        weights = weights[weights > 0]
    # Standardised, so that the clusters are the same for centimetres and kilometres.
    shift, scale = points.mean(), points.std() or 1.0
    means = KMeans(bins, n_init=1, random_state=seed % 2**32)
    with warnings.catch_warnings():
        # Points that are too close together rightly make fewer clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        means.fit(((points - shift) / scale)[:, None], sample_weight=weights)
    centres = np.sort(means.cluster_centers_[:, 0]) * scale + shift
    labels = np.searchsorted((centres[1:] + centres[:-1]) / 2, values, side="right")
    if (
        len(np.unique(labels)) < bins / 2 and not plain
    ):  # an outlier has left few clusters for all others
        return _cut(values, counts, "quantile", bins, seed)
    return labels


def _assemble(
    values: np.ndarray,
    counts: np.ndarray,
    atom: np.ndarray,
    groups: list[np.ndarray],
    continuous: bool,
    protection: Protection | None,
    *,
    between_centres: bool = False,
    find_round: bool = False,
) -> Quantized:
    atoms = values[atom]
    if protection is not None and groups:
        rest = np.concatenate(groups)
        bins = ProtectedBins(values[rest], counts[rest], continuous, protection)
        edges, members = bins.cut(np.cumsum([len(group) for group in groups])[:-1])
        centres = [protection.average(*own) for own in members]
    else:
        members = [(values[group], counts[group]) for group in groups]
        size = _size(values)
        centres = [_mean(own / size, rows) * size for own, rows in members]
        edges = _edges(members, centres if between_centres else None)
    ends_of = list(pairwise(edges)) if continuous else _grid_ends(edges)
    knots = [
        _without_atoms(*_knots(own, rows, ends, continuous, protection), *ends, atoms, continuous)
        for (own, rows), ends in zip(members, ends_of, strict=True)
    ]
    every = np.concatenate([atoms, centres])
    order = np.argsort(every, kind="stable")
    lengths = [len(value) for _, value in knots]
    codes = Quantized(
        centres=every[order] + 0.0,  # minus zero becomes zero
        atom=(np.arange(len(every)) < len(atoms))[order],
        edges=edges,
        knot_bin=np.repeat(np.arange(len(members)), lengths),
        knot_share=np.concatenate([share for share, _ in knots] or [np.zeros(0)]),
        knot_value=np.concatenate([value for _, value in knots] or [np.zeros(0)]),
        round_steps=np.zeros(0),
        round_shares=np.zeros(0),
        continuous=continuous,
    )
    return _with_round_numbers(codes, members) if find_round and members else codes


def _with_round_numbers(codes: Quantized, members: Members) -> Quantized:
    """The same codes, drawn as round as the values of their bins, if these are not round by
    chance."""
    even = (np.arange(EVEN_POINTS) + 0.5) / EVEN_POINTS
    points = codes._values_at(np.arange(len(members))[:, None] + even)  # (bins, points)
    found = find_round_numbers(members, _grid_ends(codes.edges), codes.centres[codes.atom], points)
    if found is None:
        return codes
    return dataclasses.replace(codes, round_steps=found.steps, round_shares=found.shares.flatten())


def _grid_ends(edges: np.ndarray) -> list[tuple[float, float]]:
    """The first and the last grid value of each bin."""
    ends = [(np.ceil(low), np.ceil(high) - 1) for low, high in pairwise(edges)]
    ends[-1:] = [(low, np.floor(edges[-1])) for low, _ in ends[-1:]]
    return ends


def _edges(members: Members, centres: list[float] | None) -> np.ndarray:
    """Without protection: the ends are exact, and each inner edge lies half-way between the bins
    on its sides, or between their centres."""
    if not members:
        return np.zeros(0)
    pairs = list(pairwise(own for own, _ in members))
    inner = [_middle(a[-1], b[0]) for a, b in pairs]
    if centres is not None:
        inner = [
            max(_middle(*pair), float(np.nextafter(a[-1], np.inf)))
            for pair, (a, _) in zip(pairwise(centres), pairs, strict=True)
        ]
    return np.array([members[0][0][0], *inner, members[-1][0][-1]])


@dataclass(frozen=True)
class ProtectedBins:
    """Bins of ascending values, whose edges are averages of at least `protection.rows` rows.

    On a grid all edges lie half-way between two of its values, whichever of them occur.
    """

    values: np.ndarray  # (n,) finite
    counts: np.ndarray
    continuous: bool
    protection: Protection

    def cut(self, starts: np.ndarray) -> tuple[np.ndarray, Members]:
        """Edges near those before the values at `starts`, and the values in each bin, with those
        beyond the ends clipped."""
        least = self.protection.rows
        reach = -(-least // 2)
        inner = []
        for before in self._total[starts - 1]:
            rows = _rows_between(self.values, self._total, before - reach, before + reach)
            point = self.protection.average(rows)
            inner.append(point if self.continuous else float(np.floor(point) + 0.5))
        low = -self._end(-self.values[::-1], self.counts[::-1])
        high = self._end(self.values, self.counts)
        kept = [low]
        for edge in inner:
            if edge < high and self._rows_inside(kept[-1], edge) >= least:
                kept.append(edge)
        while len(kept) > 1 and self._rows_inside(kept[-1], np.nextafter(high, np.inf)) < least:
            kept.pop()
        edges = np.array([*kept, high])
        label = np.searchsorted(edges[1:-1], self.values, side="right")
        inside = np.clip(self.values, low, high)
        members = [(inside[label == b], self.counts[label == b]) for b in range(len(edges) - 1)]
        return edges, members

    @cached_property
    def _total(self) -> np.ndarray:
        return np.asarray(np.cumsum(self.counts))

    def _rows_inside(self, low: float, high: float) -> int:
        """The rows from one point up to another, which must be above it for there to be any."""
        first, last = np.searchsorted(self.values, (low, high))
        return int(self.counts[first:last].sum())

    def _end(self, values: np.ndarray, counts: np.ndarray) -> float:
        """The upper end of ascending values: the largest if it is frequent, otherwise a random
        point before it.

        It lies beyond an average of large values by as much as the excess of those above them
        suggests, so that single outliers do not count, and never beyond the largest value.
        """
        protection, total, largest = self.protection, np.cumsum(counts), float(values[-1])
        rows = int(total[-1])
        frequent = values[protection.is_frequent(counts)]
        least = protection.rows
        begin = max(rows // 2, rows - 2 * least)
        usual = protection.average(
            _rows_between(values, total, begin, max(rows - least, begin + least))
        )
        above = protection.average(_rows_between(values, total, rows - least, rows - least // 4))
        excess = min(TAIL * max(above - usual, 0.0), largest - usual)
        end = usual + protection.rng.uniform(REACH, 1.0) * excess
        most_frequent = float(frequent[-1]) if len(frequent) else -np.inf
        if most_frequent >= min(end, largest):
            return most_frequent
        if self.continuous:
            return min(end, float(np.nextafter(largest, -np.inf)))
        return float(min(np.floor(end), largest - 1) + 0.5)


def _rows_between(values: np.ndarray, total: np.ndarray, first: int, last: int) -> np.ndarray:
    """The values of the rows from one rank up to another, ascending; `total` are the rows up to
    each value."""
    ranks = np.arange(max(first, 0), min(last, int(total[-1])))
    return np.asarray(values[np.searchsorted(total, ranks, side="right")])


def _mean(values: np.ndarray, counts: np.ndarray) -> float:
    return float(values[0] if len(values) == 1 else np.average(values, weights=counts))


def _size(values: np.ndarray) -> float:
    """A scale: divided by it, no sum of values overflows."""
    finite = values[np.isfinite(values)]
    return float(np.abs(finite).max(initial=0.0)) or 1.0


def _middle(low: float, high: float) -> float:
    """Half-way, but above `low` even if the two are neighbouring floats."""
    return max(low / 2 + high / 2, float(np.nextafter(low, np.inf)))


def _knots(
    values: np.ndarray,
    counts: np.ndarray,
    ends: tuple[float, float],
    continuous: bool,
    protection: Protection | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The distribution inside one bin as (share of mass below, value) pairs."""
    n = int(counts.sum())
    low, high = ends
    half_step = 0.0 if continuous else 0.5  # a grid value stands for the interval around it
    if protection is not None:
        return _protected_knots(values, counts, (low - half_step, high + half_step), protection)
    if len(values) == 1:  # a cluster of one value, from which others are drawn inside its bin too
        return np.array([0.0, 1.0]), np.array([low - half_step, high + half_step])
    ranks = np.unique(np.round(np.linspace(0, n, KNOTS + 1)).astype(np.int64)[1:-1].clip(1, n - 1))
    ranks = np.unique([1, *ranks, n - 1])
    last_of = np.cumsum(counts) - 1  # position of the last copy of each value
    at = values[np.searchsorted(last_of, ranks - 1)]
    after = values[np.searchsorted(last_of, ranks)]
    value = np.array([low - half_step, *(at / 2 + after / 2), high + half_step])
    return np.array([0.0, *(ranks / n), 1.0]), value


def _protected_knots(
    values: np.ndarray, counts: np.ndarray, ends: tuple[float, float], protection: Protection
) -> tuple[np.ndarray, np.ndarray]:
    """Knots that are averages of separate rows, `protection.rows` each."""
    total, least = np.cumsum(counts), protection.rows
    n = int(total[-1])
    intervals = max(1, min(KNOTS, n // least))
    ranks = np.round(np.linspace(0, n, intervals + 1)).astype(np.int64)[1:-1]
    first = ranks - least // 2
    inner = [
        protection.average(_rows_between(values, total, start, start + least)) for start in first
    ]
    return np.array([0.0, *(ranks / n), 1.0]), np.array([ends[0], *inner, ends[1]])


def _without_atoms(
    share: np.ndarray,
    value: np.ndarray,
    low: float,
    high: float,
    atoms: np.ndarray,
    continuous: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Take the intervals of the atoms out of a bin, and spread their mass over the rest."""
    inside = atoms[(atoms > low - 1) & (atoms < high + 1)]
    if continuous or len(inside) == 0:
        return share, value
    ends = np.unique(np.concatenate([inside - 0.5, inside + 0.5]).clip(value[0], value[-1]))
    points = np.concatenate([value, ends])
    shares = np.concatenate([share, np.interp(ends, value, share)])
    order = np.lexsort((shares, points))
    points, mass = points[order], np.diff(shares[order])
    middles = points[:-1] / 2 + points[1:] / 2
    mass[np.isin(np.floor(middles + 0.5), inside) & (np.diff(points) > 0)] = 0.0
    below = np.cumsum(mass)
    assert below[-1] > 0
    return np.concatenate([[0.0], below / below[-1]]), points
