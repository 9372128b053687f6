"""Which values a model may hold: those that enough rows share.

A model file must not say what a single row holds. A category, or a single number, is stored only if
at least `protect` rows hold it; all other numbers that are stored (ends, edges, knots and centres of
bins) are weighted averages of at least as many rows, with random weights. The weights, and how many
more rows than `protect` a value needs, come from a stream that depends on the seed and on all
values of the column: the same fit repeats exactly, but whoever has only the model and its seed
cannot draw them again, and so cannot solve for a value.
"""

from dataclasses import dataclass

import numpy as np

from tabmt.fingerprint import fingerprint
from tabmt.seeds import numpy_stream

SPREAD = 0.5  # a value needs up to this share more rows than `protect`
MOST_RARE = 0.1  # share of the rows that may hold rare numbers if all others have codes of their own


def most_needed(protect: int) -> int:
    """The largest number of rows that a value may need to be stored."""
    return protect + int(SPREAD * protect)


def has_single_values(counts: np.ndarray, protect: int) -> bool:
    """Whether the rare values of a column are so few that each other one has a code of its own."""
    return bool(counts[counts < most_needed(protect)].sum() <= MOST_RARE * counts.sum())


@dataclass(frozen=True)
class Protection:
    """Randomness by which the values of one column are protected."""

    rows: int  # that must share a value
    rng: np.random.Generator

    @classmethod
    def of(cls, protect: int, seed: int, *column: object) -> "Protection | None":
        """`column` is what the column holds, as arrays or JSON; None without protection."""
        if protect == 0:
            return None
        return cls(protect, numpy_stream(seed, "protect", fingerprint(*column)))

    def is_frequent(self, counts: np.ndarray) -> np.ndarray:
        """Which values enough rows hold, by a threshold that is drawn for each: (n,) bool."""
        least = self.rng.integers(self.rows, most_needed(self.rows) + 1, len(counts))
        return np.asarray(counts >= least)

    def average(self, values: np.ndarray, counts: np.ndarray | None = None) -> float:
        """A weighted average of ascending finite values, each of which so many rows hold.

        The weights are those of a Bayesian bootstrap.
        """
        if values[0] == values[-1]:
            return float(values[0])
        shape = np.ones(len(values)) if counts is None else counts
        weights = self.rng.standard_gamma(shape)
        size = float(np.abs(values[[0, -1]]).max())  # divided by it, no sum overflows
        mean = float((weights / weights.sum()) @ (values / size)) * size
        return float(np.clip(mean, values[0], values[-1]))
