"""Exact nearest neighbours in blocks, so that memory stays bounded.

Distances come from matrix products, |a|² + |b|² - 2ab, which lose digits where rows nearly
coincide; so a few more candidates than needed are measured again, directly.
"""

from collections.abc import Iterator

import numpy as np

BLOCK_BYTES = 200_000_000
EXTRA = 4  # candidates beyond k that are measured directly


def nearest(
    queries: np.ndarray, reference: np.ndarray, k: int = 1, *, same: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Euclidean distances (n, k) in ascending order, and the indices of these neighbours.

    `same`: both are one table, and a row is not its own neighbour.
    """
    k = min(k, len(reference) - same)
    take = min(k + EXTRA, len(reference) - same)
    distances = np.empty((len(queries), k))
    indices = np.empty((len(queries), k), np.int64)
    for rows, squared in _blocks(queries, reference):
        if same:
            squared[np.arange(len(rows)), rows] = np.inf
        candidates = np.empty((len(rows), take), np.int64)
        for rank in range(take):
            best = squared.argmin(1)
            candidates[:, rank] = best
            squared[np.arange(len(rows)), best] = np.inf
        differences = queries[rows][:, None].astype(np.float64) - reference[candidates]
        exact = np.sqrt((differences**2).sum(2))
        order = np.argsort(exact, axis=1, kind="stable")[:, :k]
        distances[rows] = np.take_along_axis(exact, order, 1)
        indices[rows] = np.take_along_axis(candidates, order, 1)
    return distances, indices


def within(queries: np.ndarray, centres: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """(n,) bool: which queries lie in the ball of at least one centre."""
    inside = np.zeros(len(queries), bool)
    # A point on the boundary is inside, whatever the rounding of float32 squares says.
    limit = (radii**2).astype(np.float32) * (1 + 1e-5) + 1e-5
    for rows, squared in _blocks(queries, centres):
        inside[rows] = (squared <= limit).any(1)
    return inside


def _blocks(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Squared distances of some rows of `a` to all rows of `b`, in float32."""
    middle = b.mean(0)
    a, b = (a - middle).astype(np.float32), (b - middle).astype(np.float32)
    b_size = (b**2).sum(1)
    step = max(1, int(BLOCK_BYTES / (4 * len(b))))
    for start in range(0, len(a), step):
        block = a[start : start + step]
        squared = block @ b.T
        squared *= -2
        squared += b_size
        squared += (block**2).sum(1)[:, None]
        np.maximum(squared, 0, out=squared)
        yield np.arange(start, start + len(block)), squared
