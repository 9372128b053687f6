"""Columns that another column fixes: `determines(sub_grade, grade)`.

Such a source must have several rows for most of its values: a unique key fixes everything, which
says nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tabmt.data.relations.views import LEAST_SHARE, MISSING, ColumnView, Views, is_evidence

TRIED_ROWS = 500  # in which a pair of columns is tried first
LEAST_REPEATED = 0.9  # of the rows must share their source value with another row


@dataclass(frozen=True)
class Function:
    """The value of `source` fixes that of `target`."""

    source: str
    target: str


def find_functions(
    views: Views, most_values: Mapping[str, int], rng: np.random.Generator
) -> list[Function]:
    """Pairs of columns, of which the first fixes the second, none of which follows from others.

    `most_values` are the distinct values that a column may have: numbers with more are divided into
    bins, which stand for several values.
    """
    usable = [
        view
        for view in views.values()
        if view.is_learned and 2 <= view.distinct <= most_values[view.name]
    ]
    fixed_by: dict[str, list[str]] = {}
    for target in usable:
        for source in usable:
            if (
                source is not target
                and source.distinct >= target.distinct
                and _may_fix(source, target)
                and _fixes(source, target, rng)
            ):
                fixed_by.setdefault(target.name, []).append(source.name)
    return _reduced(fixed_by, list(views))


def _may_fix(source: ColumnView, target: ColumnView) -> bool:
    """A quick trial with few rows."""
    codes, values = source.codes[:TRIED_ROWS], target.codes[:TRIED_ROWS]
    known = (codes != MISSING) & (values != MISSING)
    if not known.any():
        return True
    codes, values = codes[known], values[known]
    pairs = len(np.unique(codes * target.distinct + values))
    return pairs - len(np.unique(codes)) <= 3 + 3 * (1 - LEAST_SHARE) * len(codes)


def _fixes(source: ColumnView, target: ColumnView, rng: np.random.Generator) -> bool:
    known = (source.codes != MISSING) & (target.codes != MISSING)
    codes, values = source.codes[known], target.codes[known]
    sizes = np.bincount(codes, minlength=1)
    if sizes[sizes > 1].sum() < LEAST_REPEATED * len(codes):
        return False
    failures = exceptions(codes, values)
    chance = exceptions(codes, rng.permutation(values))
    return is_evidence(failures, chance, len(codes))


def exceptions(codes: np.ndarray, values: np.ndarray) -> int:
    """Rows that do not have the most frequent value of their code."""
    if len(codes) == 0:
        return 0
    pairs, counts = np.unique(codes * (values.max() + 1) + values, return_counts=True)
    most = np.zeros(int(codes.max()) + 1, np.int64)
    np.maximum.at(most, pairs // (values.max() + 1), counts)
    return int(len(codes) - most.sum())


def _reduced(fixed_by: Mapping[str, list[str]], names: list[str]) -> list[Function]:
    """One direction of each pair, and no function by way of another column."""
    position = {name: index for index, name in enumerate(names)}
    sources = {
        target: [
            source
            for source in own
            # Of two columns that fix each other, the first of the table is the source.
            if not (target in fixed_by.get(source, ()) and position[source] > position[target])
        ]
        for target, own in fixed_by.items()
    }
    functions = []
    for target, own in sources.items():
        for source in own:
            between = (other for other in own if other != source)
            if not any(source in sources.get(other, ()) for other in between):
                functions.append(Function(source, target))
    return functions
