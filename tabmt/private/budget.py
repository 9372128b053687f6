"""One budget for all that a fit with epsilon asks of a real table.

The privacy unit is one row: two tables are neighbours if one has a row that the other lacks. What
each part may spend is a fixed share of the whole, so that the parts add up by construction; every
answer is entered in the budget before its noise is drawn.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tabmt.private.accounting import (
    epsilon_of_choice,
    epsilon_of_rho,
    rho_of_epsilon,
    scale_of_rho,
    threshold,
)
from tabmt.private.noise import Answers, Noise

# Of rho, for each way of learning. What a part does not need stays unspent.
SHARES: Mapping[str, Mapping[str, float]] = {
    "marginals": {"rows": 0.01, "columns": 0.24, "pairs": 0.15, "choice": 0.1, "cells": 0.5},
    "marginals without target": {"rows": 0.01, "columns": 0.24, "choice": 0.1, "cells": 0.65},
    "dp-sgd": {"rows": 0.01, "columns": 0.24, "training": 0.75},
}
DELTA_OF_VALUES = 0.5  # the share of delta that covers values above a threshold
TOLERANCE = 1e-9


@dataclass
class Budget:
    """What may be spent, and what has been."""

    epsilon: float
    delta: float
    shares: Mapping[str, float]  # of rho, by the name of a part
    spent: dict[str, float] = field(default_factory=dict)  # rho
    spent_delta: float = 0.0

    @cached_property
    def rho(self) -> float:
        """All that may be spent."""
        return rho_of_epsilon(self.epsilon, self.delta_of_rho)

    @property
    def delta_of_values(self) -> float:
        """The part of delta for values above a threshold; the rest converts rho to epsilon."""
        return self.delta * DELTA_OF_VALUES

    def of(self, part: str) -> float:
        """The rho of a part."""
        return self.rho * self.shares[part]

    def spend(self, part: str, rho: float, delta: float = 0.0) -> None:
        total = self.spent.get(part, 0.0) + rho
        assert total <= self.of(part) * (1 + TOLERANCE), f"{part} spends more than its share"
        self.spent[part] = total
        self.spent_delta += delta
        assert self.spent_delta <= self.delta_of_values * (1 + TOLERANCE)

    @property
    def delta_of_rho(self) -> float:
        return self.delta - self.delta_of_values

    @property
    def spent_epsilon(self) -> float:
        """The epsilon of what has been spent, with the conversion's part of delta."""
        return epsilon_of_rho(sum(self.spent.values()), self.delta_of_rho)


Exact = Callable[[], np.ndarray]


@dataclass
class Queries:
    """The questions that may be asked of a table. Each answer has noise, and is spent."""

    budget: Budget
    noise: Noise
    answers: Answers

    def counts(self, part: str, rho: float, exact: Exact) -> np.ndarray:
        """Noisy counts of rows in groups of which each row is in one, or none: (groups,).

        One row more or less changes one of them by one.
        """
        self.budget.spend(part, rho)
        own = exact()
        if self.answers.is_replayed:
            return self.answers.next()[0]
        noisy = np.round(own + scale_of_rho(rho) * self.noise.normal(len(own)))
        self.answers.add(noisy)
        return noisy

    def frequent(
        self, part: str, rho: float, delta: float, exact: Callable[[], Mapping[str, int]]
    ) -> dict[str, float]:
        """The values whose noisy count reaches a threshold, by name, with these counts."""
        self.budget.spend(part, rho, delta)
        own = exact()
        if self.answers.is_replayed:
            array, words = self.answers.next()
            return dict(zip(words, array.tolist(), strict=True))
        words = sorted(own)
        scale = scale_of_rho(rho)
        least = math.ceil(threshold(scale, delta) + 0.5)  # so that rounding up reaches no further
        noisy = np.array([own[word] for word in words], np.float64)
        noisy = np.round(noisy + scale * self.noise.normal(len(words)))
        kept = noisy >= least
        self.answers.add(noisy[kept], [w for w, k in zip(words, kept, strict=True) if k])
        return {w: float(n) for w, n, k in zip(words, noisy, kept, strict=True) if k}

    def choose(self, part: str, rho: float, exact: Callable[[], Sequence[float]]) -> int:
        """The index of one of the largest scores, by the exponential mechanism; one row more or
        less changes each score by at most one."""
        self.budget.spend(part, rho)
        scores = np.asarray(exact(), np.float64)
        if self.answers.is_replayed:
            return int(self.answers.next()[0][0])
        gumbel = -np.log(-np.log(self.noise.uniform(len(scores))))
        chosen = int(np.argmax(scores * epsilon_of_choice(rho) / 2 + gumbel))
        self.answers.add(np.array([float(chosen)]))
        return chosen

    def batch(self, rate: float, rows: int) -> np.ndarray:
        """Rows of the table, each with the same probability; which, is nobody's business."""
        return np.flatnonzero(self.noise.uniform(rows) < rate)

    def gradient(self, exact: np.ndarray, scale: float) -> np.ndarray:
        """A sum of gradients with noise; `accounting.noise_of_training` says how much it needs."""
        if self.answers.is_replayed:
            return self.answers.next()[0]
        noisy = exact + scale * self.noise.normal(len(exact))
        if self.answers.keeps_gradients:
            self.answers.add(noisy)
        return noisy
