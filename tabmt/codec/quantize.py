"""Quantise a column of numbers into few codes, and draw numbers back from inside a code.

A value that is frequent by itself (0, 99999, 40 hours) is an *atom* with a code of its own; the
other values fall into bins. A bin stores the shape of its values as a few knots of their cumulative
distribution, each half-way between two neighbouring values, so that no knot is a value of the table
unless that value occurred twice. Works on the units of data/units.py: it sees neither types nor
missing values.
"""

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from tabmt.config import Decode, Quantizer

# "centre" is the exact centre where the column's type can hold it, "rounded" its nearest grid
# value.
How = Decode | Literal["rounded"]

KNOTS = 8  # intervals between the knots of a bin, each with the same share of its values
KMEANS_POINTS = 10_000  # K-Means sees at most this many weighted points
MOST_ROUNDS = 300  # of plain K-Means; it settles sooner
LEAST_BINS = 10  # reserved for values that are not atoms
REPEATED_ROWS = 20  # a value that so many rows share may be an atom ...
MOST_REPEATED = 900  # ... unless there would be more than this ...
STANDS_OUT = 4.0  # ... if it has this many times the rows of the values around it
LEAST_ATOM_ROWS = 5  # a value that fewer rows hold shares a bin with others


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
        return float(points.min()), float(points.max())

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

    def _positions(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where intervals begin and end, as bin + share of the bin's mass below."""
        if len(self.knot_value) == 0:
            return np.zeros(len(low)), np.zeros(len(low))
        if not self.continuous:  # a grid value stands for the interval of half a step around it
            low, high = np.ceil(low) - 0.5, np.floor(high) + 0.5
        return self._position(low, "left"), self._position(high, "right")

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
        draws = rng.random(len(bins))
        if low is None or high is None:
            draws = bins + draws
        else:
            begin, end = (at.clip(bins, bins + 1) for at in self._positions(low, high))
            draws = begin + draws * np.maximum(end - begin, 0.0)
        position = self.knot_bin + self.knot_share
        right = np.searchsorted(position, draws, side="right")
        right = np.minimum(right, len(position) - 1)
        left = right - 1
        width = position[right] - position[left]
        share = np.where(width > 0, (draws - position[left]) / np.where(width > 0, width, 1), 0)
        values = self.knot_value[left] * (1 - share) + self.knot_value[right] * share
        if not self.continuous:
            values = np.floor(values + 0.5)
        units[drawn] = self._keep_in_bin(values, bins, low, high)
        return units

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
            low, high = np.ceil(low), np.where(last, high, np.ceil(high) - 1)
        if least is not None and most is not None:
            low, high = np.maximum(low, least), np.minimum(high, most)
        values = np.clip(values, low, high)
        atoms = self.centres[self.atom]
        step = 1
        while (hit := np.isin(values, atoms)).any():
            # Draws avoid atoms by construction; rounding, or a centre, may still hit one.
            for sign in (1, -1):
                moved = values + sign * step * (np.spacing(values) if self.continuous else 1)
                take = hit & (moved >= low) & (moved <= high) & ~np.isin(moved, atoms)
                values = np.where(take, moved, values)
                hit &= ~take
            step += 1
        return np.asarray(values)


def quantize(
    units: np.ndarray, *, quantizer: Quantizer, max_bins: int, continuous: bool, seed: int
) -> Quantized:
    """Find the codes of a column of numbers without missing values; infinities become atoms."""
    values, counts = np.unique(units, return_counts=True)
    finite = np.isfinite(values)
    atom = ~finite
    if quantizer == "none" or finite.sum() <= max_bins:
        atom[:] = True
    elif quantizer == "plain-kmeans":
        return _plain_kmeans(values, counts, max_bins, continuous, seed)
    else:
        frequent = np.flatnonzero(finite & (counts * max_bins >= len(units)))
        most = max(0, max_bins - LEAST_BINS)
        atom[frequent[np.argsort(-counts[frequent], kind="stable")[:most]]] = True
        bins = max(1, max_bins - int(atom[finite].sum()))
        atom |= _repeated(values, counts, ~atom, continuous)
        rest = np.flatnonzero(~atom)
        if len(rest) <= bins:
            atom[rest] = True
    rest = np.flatnonzero(~atom)
    groups = []
    if len(rest):
        label = _cut(values[rest], counts[rest], quantizer, bins, seed)
        starts = np.flatnonzero(np.diff(label, prepend=label[0] - 1))
        groups = _join_rare(np.split(rest, starts[1:]), counts)
        for group in groups:
            if len(group) == 1:
                atom[group] = True
        groups = [group for group in groups if len(group) > 1]
    return _assemble(values, counts, atom, groups, continuous)


def _repeated(
    values: np.ndarray, counts: np.ndarray, candidate: np.ndarray, continuous: bool
) -> np.ndarray:
    """(n,) bool: which values many rows share although they lie where values are rare.

    A page has one number of likes in all of its rows, a price ends in 99. Drawn from inside a bin,
    such numbers would be lost.
    """
    rows = int(counts.sum())
    often = candidate & (counts >= max(REPEATED_ROWS, rows / MOST_REPEATED))
    if continuous:
        return often
    # As many grid values as hold so many rows on either side have this many rows on average.
    side = rows / 200
    below = np.cumsum(counts)
    left = values[np.searchsorted(below, below - counts - side)]
    right = values[np.searchsorted(below, below + side).clip(max=len(values) - 1)]
    with np.errstate(over="ignore"):
        return often & (counts * (right - left + 1) >= STANDS_OUT * (2 * side + counts))


def _plain_kmeans(
    values: np.ndarray, counts: np.ndarray, clusters: int, continuous: bool, seed: int
) -> Quantized:
    """The clusters of K-Means as they are: each value belongs to the nearest centre, and each
    centre is the mean of its values.

    PAPER-DIFF quantizer: the default has single values beside the clusters, so that 0 or 99999 are
    generated exactly, at their rate, and joins clusters of one rare value with a neighbour.
    """
    atom = ~np.isfinite(values)
    rest = np.flatnonzero(~atom)
    size = _size(values)
    scaled, weights = values[rest] / size, counts[rest]
    label = _cut(scaled, weights, "plain-kmeans", clusters, seed)
    for _ in range(MOST_ROUNDS):  # scikit-learn stops when the centres hardly move
        label = np.unique(label, return_inverse=True)[1]
        centres = np.bincount(label, scaled * weights) / np.bincount(label, weights)
        nearest = np.searchsorted((centres[1:] + centres[:-1]) / 2, scaled, side="right")
        if np.array_equal(nearest, label):
            break
        label = nearest
    starts = np.flatnonzero(np.diff(label, prepend=label[0] - 1))
    groups = np.split(rest, starts[1:])
    return _assemble(values, counts, atom, groups, continuous, between_centres=True)


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
    *,
    between_centres: bool = False,
) -> Quantized:
    atoms = values[atom]
    size = _size(values)
    centres = [_mean(values[g] / size, counts[g]) * size for g in groups]
    # Each inner edge lies half-way between the bins on its sides, or between their centres.
    inner = [_middle(values[a[-1]], values[b[0]]) for a, b in pairwise(groups)]
    if between_centres:
        inner = [
            max(_middle(*pair), float(np.nextafter(values[a[-1]], np.inf)))
            for pair, (a, _) in zip(pairwise(centres), pairwise(groups), strict=True)
        ]
    ends = [values[groups[0][0]], values[groups[-1][-1]]] if groups else []
    edges = np.array([ends[0], *inner, ends[1]] if groups else [])
    ends_of = [(edges[b], edges[b + 1]) for b in range(len(groups))]
    if not continuous:  # the first and last grid values of each bin
        ends_of = [(np.ceil(low), np.ceil(high) - 1) for low, high in ends_of]
        ends_of[-1:] = [(low, edges[-1]) for low, _ in ends_of[-1:]]
    knots = [
        _knots(values[group], counts[group], low, high, atoms, continuous)
        for group, (low, high) in zip(groups, ends_of, strict=True)
    ]
    every = np.concatenate([atoms, centres])
    order = np.argsort(every, kind="stable")
    lengths = [len(value) for _, value in knots]
    return Quantized(
        centres=every[order] + 0.0,  # minus zero becomes zero
        atom=(np.arange(len(every)) < len(atoms))[order],
        edges=edges,
        knot_bin=np.repeat(np.arange(len(groups)), lengths),
        knot_share=np.concatenate([share for share, _ in knots] or [np.zeros(0)]),
        knot_value=np.concatenate([value for _, value in knots] or [np.zeros(0)]),
        continuous=continuous,
    )


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
    low: float,
    high: float,
    atoms: np.ndarray,
    continuous: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The distribution inside one bin as (share of mass below, value) pairs."""
    n = int(counts.sum())
    if len(values) == 1:  # a cluster of one value, from which others are drawn inside its bin too
        return np.array([0.0, 1.0]), np.array([low, high]) + ([0, 0] if continuous else [-0.5, 0.5])
    ranks = np.unique(np.round(np.linspace(0, n, KNOTS + 1)).astype(np.int64)[1:-1].clip(1, n - 1))
    ranks = np.unique([1, *ranks, n - 1])
    last_of = np.cumsum(counts) - 1  # position of the last copy of each value
    at = values[np.searchsorted(last_of, ranks - 1)]
    after = values[np.searchsorted(last_of, ranks)]
    half_step = 0.0 if continuous else 0.5  # a grid value stands for the interval around it
    value = np.array([low - half_step, *(at / 2 + after / 2), high + half_step])
    share = np.array([0.0, *(ranks / n), 1.0])
    inside = atoms[(atoms > low - 1) & (atoms < high + 1)]
    if continuous or len(inside) == 0:
        return share, value
    # Take the intervals of the atoms out of the bin, and spread their mass over the rest.
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
