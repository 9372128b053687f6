"""Points with two scores, of which more is better in both: who is beaten, how much is covered.

For the searches and their pictures. Scores come as (points, 2); what they mean is the callers'.
"""

import numpy as np

LOWER_IS_BETTER = ("closer", "attack", "detector")


def signs(*names: str) -> np.ndarray:
    """What scores of these names are multiplied with, so that more is better."""
    return np.array([-1.0 if name in LOWER_IS_BETTER else 1.0 for name in names])


def non_dominated(scores: np.ndarray) -> np.ndarray:
    """(points,) bool: which points no other beats. Of equal points the first stands for all."""
    order = np.lexsort((-scores[:, 1], -scores[:, 0]))  # stable: first score falls, then second
    kept = np.zeros(len(scores), bool)
    best = -np.inf
    for place in order:
        if scores[place, 1] > best:
            kept[place], best = True, scores[place, 1]
    return kept


def hypervolume(scores: np.ndarray, worst: np.ndarray) -> float:
    """The area between a set of points and a point that is worse than all that count."""
    inside = scores[(scores > worst).all(1)]
    front = inside[non_dominated(inside)]
    front = front[np.argsort(-front[:, 0])]  # the first score falls, so the second rises
    below = np.concatenate([[worst[1]], front[:-1, 1]])
    return float(((front[:, 0] - worst[0]) * (front[:, 1] - below)).sum())
