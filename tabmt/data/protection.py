"""Which values a model may store: those that occur in enough rows.

A model file must not reveal the values of a single row. A category, or an individual number, is
stored only if it occurs in at least `protect` rows; all other stored numbers (ends, edges, knots
and centres of bins) are weighted averages of at least as many rows, with random weights. The
weights, and how many more rows than `protect` a value needs, come from a stream that depends on the
seed and on all values of the column: a fit can be repeated exactly, but somebody who has only the
model and its seed cannot draw the weights again, and so cannot solve for a value.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data.arrow_types import is_time, storage_type
from tabmt.data.schema import Kind
from tabmt.fingerprint import fingerprint
from tabmt.seeds import numpy_stream

SPREAD = 0.5  # a value needs up to this share more rows than `protect`
MOST_RARE = (
    0.1  # share of the rows that may hold rare numbers if all others have codes of their own
)


def most_needed(protect: int) -> int:
    """The largest number of rows that a value may need to be stored."""
    return protect + int(SPREAD * protect)


def least_rows(protect: int) -> int:
    """The rows that a table, and the known values of a number column, must have."""
    return 2 * protect


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


@dataclass(frozen=True)
class ValueCounts:
    """The distinct values of a column, sorted, and how many rows hold each."""

    values: pa.Array
    counts: np.ndarray

    @classmethod
    def of(cls, known: pa.Array) -> "ValueCounts":
        counted = pc.value_counts(known)
        return cls._sorted(counted.field("values"), counted.field("counts").to_numpy())

    @classmethod
    def _sorted(cls, values: pa.Array, counts: np.ndarray) -> "ValueCounts":
        order = pc.sort_indices(values)
        return cls(values.take(order), counts[order.to_numpy()].astype(np.int64))

    def with_more(self, other: "ValueCounts") -> "ValueCounts":
        """The counts of two parts of a column together."""
        both = pa.concat_arrays([self.values, other.values]).dictionary_encode()
        counts = np.concatenate([self.counts, other.counts])
        total = np.bincount(both.indices.to_numpy(), counts, minlength=len(both.dictionary))
        return self._sorted(both.dictionary, total)

    def frequent(self, protect: int, seed: int) -> np.ndarray:
        """(n,) bool: the values that enough rows hold."""
        if protect == 0 or len(self.values) == 0:
            return np.ones(len(self.values), bool)
        values = self.values
        if is_time(values.type):
            values = values.cast(storage_type(values.type))
        words = values.cast(pa.string()).to_pylist()
        protection = Protection.of(protect, seed, words, self.counts)
        assert protection is not None
        return protection.is_frequent(self.counts)

    def rare_share(self, protect: int) -> float:
        """The share of the rows whose value might not be frequent."""
        rare = self.counts[self.counts < most_needed(protect)].sum()
        return float(rare / max(self.counts.sum(), 1))


def can_be_stored(kind: Kind, known: pa.Array, protect: int) -> bool:
    """Whether a column of this kind has anything that enough rows share."""
    if protect == 0 or kind in ("constant", "id"):
        return True
    if kind == "categorical":
        return int(ValueCounts.of(known).counts.max(initial=0)) >= most_needed(protect)
    finite = len(known)
    if pa.types.is_floating(known.type):
        finite = int(np.isfinite(known.to_numpy(zero_copy_only=False)).sum())
    return finite >= least_rows(protect)
