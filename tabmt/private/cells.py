"""Cells of numbers whose ends are public or follow from noisy counts.

The first cells are public: zero, and the ranges between powers of two, on both sides. In each round
the rows in every cell are counted with noise, the cells at the ends that seem empty are left out,
and the others are divided, in proportion to what they hold. So a few rounds find the range of a
column, its long tails and its frequent values without ever reading one of its numbers.
"""

import math

import numpy as np
import pyarrow as pa

from tabmt.data.arrow_types import FIRST_DAY, LAST_DAY, LONGEST_DAYS
from tabmt.data.units import Grid
from tabmt.private.forms import step_of

LARGEST = 53  # power of two: whole numbers up to here are exact
SMALLEST_POWER, LARGEST_POWER = -30, 60  # of numbers that are on no grid


def first_edges(grid: Grid) -> np.ndarray:
    """The edges of the first cells of a column, (cells + 1,), in units."""
    if grid.continuous:
        positive = 2.0 ** np.arange(SMALLEST_POWER, LARGEST_POWER + 1)
        return np.concatenate([-positive[::-1], positive])
    positive = 2.0 ** np.arange(LARGEST + 1) - 0.5  # after 0, 1, 3, 7, ...
    edges = np.concatenate([-positive[::-1], positive])
    low, high = limits(grid)
    inside = edges[(edges > low - 0.5) & (edges < high + 0.5)]
    return np.concatenate([[low - 0.5], inside, [high + 0.5]])


def limits(grid: Grid) -> tuple[float, float]:
    """The smallest and the largest unit that the type of a column allows, both exact."""
    dtype, most = grid.dtype, 2.0**LARGEST
    low, high = -most, most
    if pa.types.is_integer(dtype):
        kind = np.iinfo(dtype.to_pandas_dtype())
        low, high = float(kind.min), float(kind.max)
    elif pa.types.is_decimal(dtype):
        low, high = -(10.0**dtype.precision - 1), 10.0**dtype.precision - 1
    elif pa.types.is_temporal(dtype):
        per_day = step_of(dtype, "day") // grid.step
        low, high = FIRST_DAY * per_day, (LAST_DAY + 1) * per_day - 1
        if pa.types.is_time(dtype):
            low, high = 0, per_day - 1
        elif pa.types.is_duration(dtype):
            low, high = -LONGEST_DAYS * per_day, LONGEST_DAYS * per_day
    elif pa.types.is_floating(dtype):
        largest = float(np.finfo(dtype.to_pandas_dtype()).max)
        high = min(most, largest * 10.0 ** (grid.decimals or 0))
        low = -high
    return max(float(low), -most), min(float(high), most)


def count_cells(edges: np.ndarray, units: np.ndarray) -> np.ndarray:
    """The rows in each cell; numbers beyond the ends are in the first or the last one."""
    return np.bincount(cell_of(edges, units), minlength=len(edges) - 1).astype(np.float64)


def cell_of(edges: np.ndarray, units: np.ndarray) -> np.ndarray:
    return np.searchsorted(edges[1:-1], units, side="right")


def divide(
    edges: np.ndarray, noisy: np.ndarray, scale: float, cells: int, *, continuous: bool
) -> np.ndarray:
    """The edges of finer cells, about `cells` of them, by noisy counts of the present ones."""
    sure = noisy > scale * math.sqrt(2 * math.log(max(2, len(noisy))))
    if not sure.any():  # hardly any rows: one cell around zero, or near it
        middle = int(cell_of(edges, np.zeros(1))[0])
        return edges[middle : middle + 2]
    first, last = np.flatnonzero(sure)[[0, -1]]
    single = np.diff(edges) <= (2.0 ** (SMALLEST_POWER + 1) if continuous else 1.0)
    total = max(float(noisy[sure & ~single].sum()), 1.0)  # of what can be divided
    new: list[float] = [float(edges[first])]
    index = first
    while index <= last:
        end = index + 1
        while not sure[index] and not sure[end]:  # empty cells are joined
            end += 1
        low, high = float(edges[index]), float(edges[end])
        pieces = max(1, round(cells * noisy[index] / total)) if sure[index] else 1
        new += _inner_edges(low, high, pieces, continuous=continuous)
        new.append(high)
        index = end
    return np.array(new)


def _inner_edges(low: float, high: float, pieces: int, *, continuous: bool) -> list[float]:
    """Edges that divide a range evenly: on a grid, half-way between two of its values."""
    inner = np.linspace(low, high, pieces + 1)[1:-1]
    if not continuous:
        inner = np.unique(np.floor(inner) + 0.5)
    return [float(edge) for edge in inner if low < edge < high]


def draw_units(
    edges: np.ndarray, cells: np.ndarray, rng: np.random.Generator, *, continuous: bool
) -> np.ndarray:
    """A number in each of some cells."""
    low, high = edges[cells], edges[cells + 1]
    if not continuous:
        least, most = np.ceil(low), np.ceil(high) - 1
        return np.asarray(least + np.floor(rng.random(len(cells)) * (most - least + 1)))
    drawn = low + (high - low) * rng.random(len(cells))
    is_zero = (low < 0) & (high > 0) & (high - low <= 2.0 ** (SMALLEST_POWER + 1))
    return np.where(is_zero, 0.0, drawn)
