"""Does the synthetic table repeat training rows, or come closer to them than fresh rows do?

None of these is a guarantee; each has to be compared with the score of real test rows. The training
rows are never subsampled: a sample might leave out the closest neighbour.
"""

from dataclasses import dataclass

import numpy as np

from tabmt.evaluation.metrics.encoder import EncodedTable
from tabmt.evaluation.metrics.neighbours import nearest


@dataclass(frozen=True)
class Closeness:
    """How far rows lie from the training rows."""

    distances: np.ndarray  # (rows,) to the closest training row
    ratio: float  # median of distance to the closest over distance to the second closest

    @property
    def median(self) -> float:
        """The paper's DCR."""
        return float(np.median(self.distances))

    @property
    def fifth_percentile(self) -> float:
        return float(np.quantile(self.distances, 0.05))


def closeness(rows: EncodedTable, train: EncodedTable) -> Closeness:
    distances, _ = nearest(rows.matrix, train.matrix, 2)
    if distances.shape[1] < 2:
        return Closeness(distances[:, 0], 1.0)
    first, second = distances.T
    # A row whose two closest neighbours are both copies of it is as close to one as to the other.
    ratio = np.where(second > 0, first / np.where(second > 0, second, 1), 1.0)
    return Closeness(first, float(np.median(ratio)))


def share_closer_to_train(
    rows: EncodedTable, train: EncodedTable, test: EncodedTable, to_train: np.ndarray
) -> float:
    """Share of rows that are closer to a training row than to any test row; ties count half.

    Fresh rows would score about n_train / (n_train + n_test).
    """
    to_test = nearest(rows.matrix, test.matrix)[0][:, 0]
    return float((to_train < to_test).mean() + (to_train == to_test).mean() / 2)


def copies(rows: EncodedTable, train: EncodedTable) -> float:
    """Share of rows that are exact copies of training rows."""
    seen = set(row_keys(train))
    return float(np.mean([key in seen for key in row_keys(rows)]))


def row_keys(table: EncodedTable) -> list[bytes]:
    """Equal for equal rows, (rows,)."""
    columns = [*table.numbers.values()]
    columns += [codes.astype(np.float64) for codes in table.codes.values()]
    values = np.ascontiguousarray(np.stack(columns, axis=1) + 0.0)  # -0 becomes 0
    values[np.isnan(values)] = np.nan  # one bit pattern for every missing value
    return [row.tobytes() for row in values]
