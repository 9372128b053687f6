"""Does the synthetic table cover what is there, and nothing else?

Improved precision and recall (Kynkäänniemi et al. 2019) and the paper's diversity.
"""

import numpy as np

from tabmt.evaluation.metrics.neighbours import nearest, within
from tabmt.evaluation.metrics.view import View

NEIGHBOURS = 3


def precision_recall(
    real: np.ndarray, synthetic: np.ndarray, k: int = NEIGHBOURS
) -> tuple[float, float]:
    """Share of synthetic points within reach of real ones, and of real within reach of synthetic.

    A point reaches as far as its k-th neighbour of its own kind. Any embedding of the rows will
    do; without one, the matrix of a view. Give equal numbers of both, or recall is not comparable.
    """
    scores = []
    for centres, points in ((real, synthetic), (synthetic, real)):
        radii = nearest(centres, centres, k, same=True)[0][:, -1]
        scores.append(float(within(points, centres, radii).mean()))
    return scores[0], scores[1]


def diversity(real: View, synthetic: View) -> float:
    """Share of the real rows' distinct values that the synthetic table holds, mean over fields."""
    shares = []
    for name in real.lens.names:
        one, two = (
            (view.numbers[name] if name in view.numbers else view.codes[name])
            for view in (real, synthetic)
        )
        values = np.unique(one[~real.gaps(name)])
        if len(values):
            shares.append(np.isin(values, two).mean())
    return float(np.mean(shares))
