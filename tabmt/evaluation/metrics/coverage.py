"""Does the synthetic table cover the region of the real rows, and nothing else?

Improved precision and recall (Kynkäänniemi et al. 2019) and the paper's diversity.
"""

import numpy as np

from tabmt.evaluation.metrics.encoder import EncodedTable
from tabmt.evaluation.metrics.neighbours import nearest, within

NEIGHBOURS = 3


def precision_recall(
    real: np.ndarray, synthetic: np.ndarray, k: int = NEIGHBOURS
) -> tuple[float, float]:
    """Share of synthetic points within the radius of real ones, and of real within synthetic ones.

    The radius of a point is the distance to its k-th nearest neighbour in its own table. Any
    embedding of the rows can be used; pass equal numbers of both, or recall is not comparable.
    """
    scores = []
    for centres, points in ((real, synthetic), (synthetic, real)):
        radii = nearest(centres, centres, k, same=True)[0][:, -1]
        scores.append(float(within(points, centres, radii).mean()))
    return scores[0], scores[1]


def precision_recall_of_embeddings(real: np.ndarray, synthetic: np.ndarray) -> tuple[float, float]:
    """`precision_recall` of vectors of any scale: distances are compared with a tolerance that
    suits vectors of about unit length."""
    middle = real.mean(0)
    scale = float(np.sqrt(((real - middle) ** 2).sum(1).mean())) or 1.0
    return precision_recall((real - middle) / scale, (synthetic - middle) / scale)


def diversity(real: EncodedTable, synthetic: EncodedTable) -> float:
    """Share of the real rows' distinct values that the synthetic table has, mean over columns."""
    shares = []
    for name in real.names:
        ours, theirs = (
            (table.numbers[name] if name in table.numbers else table.codes[name])
            for table in (real, synthetic)
        )
        values = np.unique(ours[~real.missing(name)])
        if len(values):
            shares.append(np.isin(values, theirs).mean())
    return float(np.mean(shares))
