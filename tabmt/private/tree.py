"""Which columns depend on which: noisy counts of pairs and triples of columns, joined to a
distribution of all columns, from which rows are drawn.

The columns form a tree, and if there is a target, every column depends on it too (a tree-augmented
naive Bayes model, Friedman et al. 1997): p(target) p(root | target) prod p(column | parent,
target). Which pairs become edges is chosen as in MST (McKenna, Miklau and Sheldon 2021): one after
the other, by the exponential mechanism, each with the score of how far the counts of a pair are
from those that the counts so far would give. Then the counts of the chosen triples are measured.
The distribution that fits all noisy counts best, with the largest entropy, is found by mirror
descent; in a tree its marginals are exact. Works on codes alone.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tabmt.private.accounting import scale_of_rho
from tabmt.private.budget import Queries

ITERATIONS = 400
FIRST_STEP, LEAST_DESCENT = 1.0, 0.25
SETTLED = 1e-7  # relative change of the loss after which the descent ends


@dataclass(frozen=True)
class Measured:
    """Noisy counts of a triple (column, parent, target), and their noise."""

    counts: np.ndarray  # (K, K of the parent, K of the target)
    scale: float


@dataclass(frozen=True)
class Tree:
    """The columns in an order in which each follows its parent, and a distribution for each."""

    order: tuple[int, ...]
    parents: tuple[int | None, ...]  # by column; None for the root
    target: int | None
    target_shares: np.ndarray  # (K of the target,)
    conditional: dict[int, np.ndarray]  # (K, K of the parent, K of the target), sums to 1 over K

    def draw(self, rows: int, rng: np.random.Generator) -> np.ndarray:
        """Codes of new rows, (rows, columns)."""
        columns = len(self.parents)
        codes = np.zeros((rows, columns), np.int64)
        of_target = _draw(np.tile(self.target_shares, (rows, 1)), rng)
        if self.target is not None:
            codes[:, self.target] = of_target
        for column in self.order:
            parent = self.parents[column]
            before = 0 if parent is None else codes[:, parent]
            table = np.moveaxis(self.conditional[column], 0, -1)  # (K parent, K target, K)
            codes[:, column] = _draw(table[before, of_target], rng)
        return codes


def _draw(shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One code for each row of shares, (rows, K) -> (rows,)."""
    below = np.cumsum(shares, axis=1)
    points = rng.random(len(shares)) * below[:, -1]
    return np.asarray((below < points[:, None]).sum(1).clip(max=shares.shape[1] - 1))


@dataclass(frozen=True)
class TreeLearner:
    """Measures the counts and fits the distribution."""

    queries: Queries
    codes: np.ndarray  # (rows, columns) of the real table, -1 for a cell that has none
    sizes: Sequence[int]
    shares: Sequence[np.ndarray]  # (K,) of each column, by the noisy counts of its own
    scale: float  # of the noise of these
    rows: float  # the noisy number of rows
    target: int | None

    @property
    def _target_size(self) -> int:
        return 1 if self.target is None else self.sizes[self.target]

    def learn(self) -> Tree:
        others = [c for c in range(len(self.sizes)) if c != self.target]
        with_target = self._measure_with_target(others)
        parents = self._choose_parents(others, with_target)
        measured = self._measure_triples(others, parents)
        return fit_tree(others, parents, self.target, with_target, measured, self.sizes, self.rows)

    def _shape(self, column: int, parent: int | None) -> tuple[int, int, int]:
        of_parent = 1 if parent is None else self.sizes[parent]
        return self.sizes[column], of_parent, self._target_size

    def _counts(self, column: int, parent: int | None) -> np.ndarray:
        """Exact counts of (column, parent, target), flat; of an absent one, the only code is 0."""
        shape = self._shape(column, parent)
        zeros = np.zeros(len(self.codes), np.int64)
        parts = [zeros if c is None else self.codes[:, c] for c in (column, parent, self.target)]
        known = np.all([part >= 0 for part in parts], axis=0)
        flat = np.ravel_multi_index([part[known] for part in parts], shape)
        return np.bincount(flat, minlength=math.prod(shape)).astype(np.float64)

    def _measure_with_target(self, others: Sequence[int]) -> dict[int, Measured]:
        """Each column with the target; without a target, what is known of each column already."""
        found = {}
        for column in others:
            if self.target is None:
                own = self.shares[column] * self.rows
                found[column] = Measured(own[:, None, None], self.scale)
                continue
            rho = self.queries.budget.of("pairs") / len(others)
            shape = (self.sizes[column], 1, self._target_size)
            noisy = self.queries.counts("pairs", rho, partial(self._counts, column, None))
            found[column] = Measured(noisy.reshape(shape), scale_of_rho(rho))
        return found

    def _choose_parents(
        self, others: Sequence[int], with_target: dict[int, Measured]
    ) -> dict[int, int | None]:
        """The parent of each column, in an order in which it follows its parent."""
        if not others:
            return {}
        expected = {c: _as_shares(with_target[c].counts)[:, 0, :] for c in others}  # joint, K x Kt
        scores = {pair: self._score(*pair, expected) for pair in itertools.combinations(others, 2)}
        groups = {c: {c} for c in others}
        edges: list[tuple[int, int]] = []
        rho = self.queries.budget.of("choice") / max(1, len(others) - 1)
        for _ in range(len(others) - 1):
            possible = [(a, b) for a, b in scores if groups[a] is not groups[b]]
            chosen = self.queries.choose("choice", rho, partial(_scores_of, scores, possible))
            a, b = possible[chosen]
            edges.append((a, b))
            joined = groups[a] | groups[b]
            for c in joined:
                groups[c] = joined
        return _rooted(others, edges)

    def _score(self, a: int, b: int, expected: dict[int, np.ndarray]) -> float:
        """How far a pair is from independence given the target: one row more or less changes it by
        at most one."""
        of_target = expected[a].sum(0) / 2 + expected[b].sum(0) / 2
        both = expected[a][:, None, :] * expected[b][None, :, :] / np.maximum(of_target, 1e-12)
        return float(np.abs(self._counts(a, b) - self.rows * both.ravel()).sum())

    def _measure_triples(
        self, others: Sequence[int], parents: dict[int, int | None]
    ) -> dict[int, Measured]:
        joined = [c for c in others if parents[c] is not None]
        rho = self.queries.budget.of("cells") / max(1, len(joined))
        found = {}
        for column in joined:
            parent = parents[column]
            noisy = self.queries.counts("cells", rho, partial(self._counts, column, parent))
            shape = self._shape(column, parent)
            found[column] = Measured(noisy.reshape(shape), scale_of_rho(rho))
        return found


def _scores_of(
    scores: Mapping[tuple[int, int], float], pairs: Sequence[tuple[int, int]]
) -> list[float]:
    return [scores[pair] for pair in pairs]


def _as_shares(counts: np.ndarray) -> np.ndarray:
    positive = counts.clip(0)
    total = positive.sum()
    return positive / total if total > 0 else np.full(counts.shape, 1 / counts.size)


def _rooted(others: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, int | None]:
    """The edges of a tree as parents, in the order of a walk from the first column."""
    parents: dict[int, int | None] = {others[0]: None}
    waiting = [others[0]]
    while waiting:
        here = waiting.pop(0)
        for a, b in edges:
            for near, far in ((a, b), (b, a)):
                if near == here and far not in parents:
                    parents[far] = here
                    waiting.append(far)
    return parents


# --- the distribution --------------------------------------------------------------------------


@dataclass
class Beliefs:
    """A tree with the log weight of each triple; its marginals by two passes of messages."""

    parents: dict[int, int | None]
    weights: dict[int, np.ndarray]  # (K, K parent, K target)

    def marginals(self) -> dict[int, np.ndarray]:
        """The share of rows in each cell of each triple."""
        order = list(self.parents)
        up: dict[int, np.ndarray] = {}  # to the parent, (K parent, K target)
        inside: dict[int, np.ndarray] = {}  # of the column itself, (K, K target)
        for column in reversed(order):
            children = [c for c in order if self.parents[c] == column]
            size, _, of_target = self.weights[column].shape
            inside[column] = sum((up[c] for c in children), np.zeros((size, of_target)))
            up[column] = _log_sum(self.weights[column] + inside[column][:, None, :], 0)
        found: dict[int, np.ndarray] = {}
        down: dict[int, np.ndarray] = {}  # log share of (parent, target) without the column
        for column in order:
            parent = self.parents[column]
            if parent is None:
                joint = self.weights[column] + inside[column][:, None, :]
                joint = joint - _log_sum(joint.ravel(), 0)
            else:
                joint = self.weights[column] + inside[column][:, None, :]
                joint = joint + (down[parent] - up[column])[None, :, :]
            down[column] = _log_sum(joint, 1)
            found[column] = np.exp(joint)
        return found


def _log_sum(x: np.ndarray, axis: int) -> np.ndarray:
    largest = x.max(axis=axis, keepdims=True)
    return np.asarray(np.log(np.exp(x - largest).sum(axis=axis)) + np.squeeze(largest, axis=axis))


def fit_tree(
    others: Sequence[int],
    parents: dict[int, int | None],
    target: int | None,
    with_target: dict[int, Measured],
    measured: dict[int, Measured],
    sizes: Sequence[int],
    rows: float,
) -> Tree:
    """The distribution whose marginals are nearest to the noisy counts, by mirror descent."""
    of_target = 1 if target is None else sizes[target]
    weights = {}
    for column, parent in parents.items():
        size = 1 if parent is None else sizes[parent]
        own = np.log(_as_shares(with_target[column].counts) + 1e-6)  # (K, 1, K target)
        own = own - _log_sum(own, 0)[None]
        weights[column] = np.broadcast_to(own, (sizes[column], size, of_target)).copy()
    beliefs = Beliefs(parents, weights)
    found = _descend(beliefs, with_target, measured, rows)
    shares = found[others[0]].sum((0, 1))
    conditional = {
        column: joint / np.maximum(joint.sum(0, keepdims=True), 1e-300)
        for column, joint in found.items()
    }
    for column, joint in found.items():  # cells of parents that never occur
        empty = joint.sum(0) <= 0
        conditional[column][:, empty] = 1 / joint.shape[0]
    by_column = tuple(parents.get(column) for column in range(len(sizes)))
    return Tree(tuple(parents), by_column, target, shares, conditional)


def _loss(
    marginals: dict[int, np.ndarray],
    with_target: dict[int, Measured],
    measured: dict[int, Measured],
    rows: float,
) -> tuple[float, dict[int, np.ndarray]]:
    """Half the squared errors in standard deviations, and the gradient by each triple's shares."""
    total, slopes = 0.0, {}
    for column, joint in marginals.items():
        own = with_target[column]
        error = (joint.sum(1, keepdims=True) * rows - own.counts) / own.scale
        total += float((error**2).sum()) / 2
        slope = np.broadcast_to(error * rows / own.scale, joint.shape)
        if column in measured:
            more = measured[column]
            error = (joint * rows - more.counts) / more.scale
            total += float((error**2).sum()) / 2
            slope = slope + error * rows / more.scale
        slopes[column] = slope
    return total, slopes


def _descend(
    beliefs: Beliefs,
    with_target: dict[int, Measured],
    measured: dict[int, Measured],
    rows: float,
) -> dict[int, np.ndarray]:
    """Mirror descent with a step that is halved when the loss does not fall enough."""
    marginals = beliefs.marginals()
    loss, slopes = _loss(marginals, with_target, measured, rows)
    step = FIRST_STEP / max(1.0, max(float(np.abs(s).max()) for s in slopes.values()))
    for _ in range(ITERATIONS):
        weights = {c: w - step * slopes[c] for c, w in beliefs.weights.items()}
        tried = Beliefs(beliefs.parents, weights)
        new = tried.marginals()
        new_loss, new_slopes = _loss(new, with_target, measured, rows)
        expected = sum(float((slopes[c] * (marginals[c] - new[c])).sum()) for c in new)
        if not loss - new_loss >= LEAST_DESCENT * expected:  # also if it is not a number
            step /= 2
            continue
        is_settled = loss - new_loss < SETTLED * max(loss, 1.0)
        beliefs, marginals, loss, slopes = tried, new, new_loss, new_slopes
        step *= 1.3
        if is_settled:
            break
    return marginals
