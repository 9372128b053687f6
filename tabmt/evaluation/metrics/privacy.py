"""Does the synthetic table repeat the training rows, or hug them closer than fresh rows do?

None of these is a guarantee; each is read beside what real held-out rows score. The reference side
is never subsampled: a sample of it would hide the very neighbour that matters.
"""

from dataclasses import dataclass

import numpy as np

from tabmt.evaluation.metrics.neighbours import nearest
from tabmt.evaluation.metrics.view import View


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


def closeness(rows: View, train: View) -> Closeness:
    found, _ = nearest(rows.matrix, train.matrix, 2)
    if found.shape[1] < 2:
        return Closeness(found[:, 0], 1.0)
    # A row whose two closest are both copies of it is as close to one as to the other.
    ratio = np.where(found[:, 1] > 0, found[:, 0] / np.where(found[:, 1] > 0, found[:, 1], 1), 1.0)
    return Closeness(found[:, 0], float(np.median(ratio)))


def share_closer_to_train(rows: View, train: View, test: View, to_train: np.ndarray) -> float:
    """Share of rows that lie closer to a training row than to any held-out row; ties count half.

    Fresh rows would score about n_train / (n_train + n_test).
    """
    to_test = nearest(rows.matrix, test.matrix)[0][:, 0]
    return float((to_train < to_test).mean() + (to_train == to_test).mean() / 2)


def membership_auc(rows: View, train: View, held_out: View) -> float:
    """An attack: who lies closer to a synthetic row was in the training table. 0.5 is a guess.

    The chance that a training row lies closer than a held-out row (ties count half).
    """
    seen, unseen = (np.sort(nearest(v.matrix, rows.matrix)[0][:, 0]) for v in (train, held_out))
    farther = len(unseen) - np.searchsorted(unseen, seen, side="right")
    level = np.searchsorted(unseen, seen, side="right") - np.searchsorted(unseen, seen)
    return float((farther + level / 2).mean() / len(unseen))


def copies(rows: View, train: View) -> float:
    """Share of rows that stand in the training table letter for letter."""
    seen = set(_keys(train))
    return float(np.mean([key in seen for key in _keys(rows)]))


def _keys(view: View) -> list[bytes]:
    columns = [view.numbers[name] for name in view.numbers]
    columns += [view.codes[name].astype(np.float64) for name in view.codes]
    table = np.ascontiguousarray(np.stack(columns, axis=1) + 0.0)  # -0 becomes 0
    table[np.isnan(table)] = np.nan  # one bit pattern for every gap
    return [row.tobytes() for row in table]
