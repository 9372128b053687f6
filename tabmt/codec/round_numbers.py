"""How round the numbers inside the bins of a column are.

People round numbers: most prices are multiples of 1,000, most areas of 10, although some are not.
So a number is drawn in two stages. First a step (1, 5, 10, ...) is drawn, with the shares of the
training rows around it, and then a multiple of that step. The probability of a number is the exact
sum over all steps of which it is a multiple, so ranges and likelihoods agree with the draws. Works
on the units of data/units.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

LADDER = np.array([1, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 50_000, 100_000])  # in units
LEAST_MULTIPLES = 10  # of a step in the range of a column
LEAST_SHARE = 0.03  # of the numbers that are drawn with a step, for it to be used
LEAST_ROWS = 200  # of a bin and its neighbours, whose shares are stored together
PRIOR_ROWS = 50  # with the shares of the whole column, which are added to those of each bin

Positions = Callable[[np.ndarray], np.ndarray]  # of points, as bin + share of its mass below


@dataclass(frozen=True)
class RoundNumbers:
    """For each bin how often its numbers are drawn among the multiples of each step."""

    steps: np.ndarray  # (S,) float64 ascending, each a divisor of the next; the first is 1
    shares: np.ndarray  # (bins, S), each row sums to 1
    first: np.ndarray  # (bins,) the first grid value of each bin, and the last
    last: np.ndarray
    atoms: np.ndarray  # (A,) ascending: values with a code of their own, which bins leave out

    @property
    def fits(self) -> bool:
        """Whether every bin has a multiple of each step with which its numbers are drawn."""
        ends = [self._ends(index) for index in range(1, len(self.steps))]
        return not any(
            bool((self.shares[first > last, index] > 0).any())
            for index, (first, last) in enumerate(ends, 1)
        )

    def draw_steps(self, bins: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Which step each number is drawn with, (n,) indices of `steps`."""
        return _choose(self.shares[bins], rng)

    def draw_steps_within(
        self,
        bins: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        positions: Positions,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same for numbers from `low` to `high`, and the interval of positions in which each
        is drawn then."""
        begin, end = self._intervals(bins, low, high, positions)  # (S, n)
        weights = self.shares[bins] * (end - begin).T
        impossible = ~(weights > 0).any(1)
        weights[impossible, 0] = 1.0
        chosen = _choose(weights, rng)
        rows = np.arange(len(bins))
        return chosen, begin[chosen, rows], end[chosen, rows]

    def mass_below(
        self, bins: np.ndarray, points: np.ndarray, positions: Positions, *, included: bool
    ) -> np.ndarray:
        """Share of a bin's mass on numbers below points, (n,), or up to them if `included`."""
        total = np.zeros(len(bins))
        for index in range(len(self.steps)):
            below = self._below(index, bins, points, positions, included=included)
            total += self.shares[bins, index] * (below - bins)
        return total

    def snap(self, values: np.ndarray, bins: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """The nearest multiple of each number's step in its bin, (n,)."""
        snapped = values.copy()
        for index in np.unique(chosen):
            rows = np.flatnonzero(chosen == index)
            step, own, of_bins = self.steps[index], values[rows], bins[rows]
            below, above = self._multiple(own, step, -1), self._multiple(own, step, 1)
            first, last = self._ends(index)
            nearer = np.where(own - below < above - own, below, above)
            nearer = np.where(below < first[of_bins], above, nearer)
            snapped[rows] = np.where(above > last[of_bins], below, nearer)
        return snapped

    def _intervals(
        self, bins: np.ndarray, low: np.ndarray, high: np.ndarray, positions: Positions
    ) -> tuple[np.ndarray, np.ndarray]:
        sides = []
        for points, included in ((low, False), (high, True)):
            sides.append(
                np.stack(
                    [
                        self._below(index, bins, points, positions, included=included)
                        for index in range(len(self.steps))
                    ]
                )
            )
        begin, end = sides
        return begin, np.maximum(begin, end)

    def _below(
        self,
        index: int,
        bins: np.ndarray,
        points: np.ndarray,
        positions: Positions,
        *,
        included: bool,
    ) -> np.ndarray:
        """The position, from `bins` to `bins + 1`, that separates the multiples of a step below
        points (up to them, if `included`) from those above: each has the mass around it, half of
        the way to its neighbours."""
        step, (first, last) = self.steps[index], self._ends(index)
        first, last = first[bins], last[bins]
        inside = np.clip(points, self.first[bins] - 1, self.last[bins] + 1)
        if included:
            below = self._multiple(np.floor(inside), step, -1)
            above = self._multiple(below + step, step, 1)
        else:
            above = self._multiple(np.ceil(inside), step, 1)
            below = self._multiple(above - step, step, -1)
        found = np.clip(positions(below / 2 + above / 2), bins, bins + 1)
        return np.asarray(np.where(below < first, bins, np.where(above > last, bins + 1.0, found)))

    def _ends(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last multiple of a step in each bin; the last is the lower one if
        there is none."""
        step = self.steps[index]
        return self._multiple(self.first, step, 1), self._multiple(self.last, step, -1)

    def _multiple(self, values: np.ndarray, step: float, side: int) -> np.ndarray:
        """The next multiple of a step up (1) or down (-1) that is no atom; the number itself if it
        is one."""
        found = (np.ceil(values / step) if side > 0 else np.floor(values / step)) * step
        for _ in range(len(self.atoms)):
            if not (hit := np.isin(found, self.atoms)).any():
                break
            found = np.where(hit, found + side * step, found)
        return np.asarray(found)


def _choose(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An index for each row of weights, (n, S) -> (n,)."""
    below = np.cumsum(weights, axis=1)
    draws = rng.random(len(weights)) * below[:, -1]
    return np.asarray((draws[:, None] >= below[:, :-1]).sum(1))


def find_round_numbers(
    members: Sequence[tuple[np.ndarray, np.ndarray]],
    ends: Sequence[tuple[float, float]],
    atoms: np.ndarray,
    points: np.ndarray,
) -> RoundNumbers | None:
    """How round the numbers of bins are, by their values and how many rows hold each; None if they
    are as round as by chance.

    `ends` are the first and the last grid value of each bin, `points` evenly spaced draws from its
    distribution, (bins, points): what is round by chance follows from them.
    """
    counts = np.stack([_multiples(values, rows) for values, rows in members])  # (bins, ladder)
    rows = counts[:, 0]
    if rows.sum() < LEAST_ROWS:
        return None
    width = max(high for _, high in ends) - min(low for low, _ in ends)
    usable = np.flatnonzero(width >= LADDER * LEAST_MULTIPLES)
    usable = np.union1d(usable, [0])
    first, last = (np.array(side, dtype=np.float64) for side in zip(*ends, strict=True))
    chance = _chance(LADDER[usable], first, last, atoms, points)
    shares = drawn_shares(counts[:, usable].sum(0), np.average(chance, axis=0, weights=rows))
    used = shares >= LEAST_SHARE
    used[0] = True
    if used.sum() < 2:
        return None
    steps, counts, chance = (
        LADDER[usable][used],
        counts[:, usable][:, used],
        chance[:, used][..., used],
    )
    prior = PRIOR_ROWS * counts.sum(0) / rows.sum()
    of_bins = np.empty((len(members), len(steps)))
    for group in neighbours(rows):
        by_chance = np.average(chance[group], axis=0, weights=rows[group])
        of_bins[group] = drawn_shares(counts[group].sum(0) + prior, by_chance)
    found = RoundNumbers(steps.astype(np.float64), of_bins, first, last, atoms)
    for index in range(1, len(steps)):
        start, end = found._ends(index)
        of_bins[start > end, index] = 0.0  # no multiple lies in the bin
    of_bins[of_bins.sum(1) == 0, 0] = 1.0
    of_bins /= of_bins.sum(1, keepdims=True)
    return found


def _chance(
    steps: np.ndarray, first: np.ndarray, last: np.ndarray, atoms: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """How often a number that is drawn with one step is a multiple of another, for each bin:
    (bins, multiple of, drawn with)."""
    bins, size = np.arange(len(points)).repeat(points.shape[1]), len(steps)
    even = RoundNumbers(steps.astype(np.float64), np.empty((len(points), size)), first, last, atoms)
    found = np.empty((len(points), size, size))
    for index in range(size):
        chosen = np.full(points.size, index)
        drawn = even.snap(points.ravel(), bins, chosen).reshape(points.shape)
        start, end = even._ends(index)
        drawn = np.where((start > end)[:, None], points, drawn)
        for other, step in enumerate(steps):
            found[:, other, index] = (drawn % step == 0).mean(1)
    return found


def _multiples(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How many rows hold a multiple of each step of the ladder."""
    return np.array([rows[values % step == 0].sum() for step in LADDER], dtype=np.float64)


def drawn_shares(multiples: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """How often numbers are drawn with each step, by how many are multiples of it, (S,): one that
    is drawn with a finer step may be a multiple of a coarser one by `chance`, (S, S)."""
    shares, _ = nnls(chance, multiples / multiples[0])
    return np.asarray(shares / shares.sum())


def neighbours(rows: np.ndarray) -> list[np.ndarray]:
    """Neighbouring bins that have enough rows together."""
    groups: list[list[int]] = [[]]
    held = 0.0
    for index, count in enumerate(rows):
        if held >= LEAST_ROWS:
            groups.append([])
            held = 0.0
        groups[-1].append(index)
        held += count
    if held < LEAST_ROWS and len(groups) > 1:
        last = groups.pop()
        groups[-1] += last
    return [np.array(group) for group in groups]
