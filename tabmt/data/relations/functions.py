"""Columns that another column determines: `determines(sub_grade, grade)`.

Such a source must have several rows for most of its values: a unique key determines every column,
which is no information. Numbers can be sources too (the number of a shop, the likes of a page), if
they are more than a fine division of what they determine.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tabmt.data.relations.views import LEAST_SHARE, MISSING, ColumnView, Views, is_evidence

TRIED_ROWS = 500  # in which a pair of columns is tried first
LEAST_REPEATED = 0.9  # of the rows must share their source value with another row
MOST_BINNED = 0.9  # of the rows in which bins of the source may determine the target as well


@dataclass(frozen=True)
class Function:
    """The value of `source` determines that of `target`."""

    source: str
    target: str


def find_functions(
    views: Views,
    most_values: Mapping[str, int],
    most_bins: Mapping[str, int],
    rng: np.random.Generator,
) -> list[Function]:
    """Pairs of columns of which the first determines the second; none follows from others.

    `most_values` are the distinct values that a column may have, `most_bins` those that have a code
    each anyway. A source with more values, which would be in bins otherwise, must determine a
    column that its bins do not.
    """
    usable = [
        view
        for view in views.values()
        if view.is_learned and 2 <= view.distinct <= most_values[view.name]
    ]
    failures: dict[str, dict[str, int]] = {}  # target -> source -> rows in which it fails
    for source in usable:
        bins = most_bins[source.name]
        own: dict[str, int] = {}
        for target in usable:
            if source is target or source.distinct < target.distinct:
                continue
            if _may_determine(source, target):
                failed = _failures(source, target, rng)
                own |= {} if failed is None else {target.name: failed}
        if source.distinct <= bins or not all(_bins_suffice(source, views[t], bins) for t in own):
            for target_name, failed in own.items():
                failures.setdefault(target_name, {})[source.name] = failed
    return _reduced(failures, list(views))


def _may_determine(source: ColumnView, target: ColumnView) -> bool:
    """A quick trial with few rows."""
    codes, values = source.codes[:TRIED_ROWS], target.codes[:TRIED_ROWS]
    known = (codes != MISSING) & (values != MISSING)
    if not known.any():
        return True
    codes, values = codes[known], values[known]
    pairs = len(np.unique(codes * target.distinct + values))
    return pairs - len(np.unique(codes)) <= 3 + 3 * (1 - LEAST_SHARE) * len(codes)


def _failures(source: ColumnView, target: ColumnView, rng: np.random.Generator) -> int | None:
    """The rows in which the source does not determine the target; None if there are too many, or
    if few would be chance."""
    known = (source.codes != MISSING) & (target.codes != MISSING)
    codes, values = source.codes[known], target.codes[known]
    sizes = np.bincount(codes, minlength=1)
    if sizes[sizes > 1].sum() < LEAST_REPEATED * len(codes):
        return None
    failed = exceptions(codes, values)
    chance = exceptions(codes, rng.permutation(values))
    return failed if is_evidence(failed, chance, len(codes)) else None


def _bins_suffice(source: ColumnView, target: ColumnView, bins: int) -> bool:
    """Whether bins of the source, which have as many rows each, determine the target well enough:
    age groups follow from bins of ages, so ages need no codes of their own."""
    known = (source.codes != MISSING) & (target.codes != MISSING)
    values = target.codes[known]
    ranks = np.argsort(np.argsort(source.numbers[known], kind="stable"), kind="stable")
    binned = ranks * bins // max(len(ranks), 1)
    return exceptions(binned, values) <= (1 - MOST_BINNED) * len(values)


def exceptions(codes: np.ndarray, values: np.ndarray) -> int:
    """Rows that do not have the most frequent value of their code."""
    if len(codes) == 0:
        return 0
    pairs, counts = np.unique(codes * (values.max() + 1) + values, return_counts=True)
    most = np.zeros(int(codes.max()) + 1, np.int64)
    np.maximum.at(most, pairs // (values.max() + 1), counts)
    return int(len(codes) - most.sum())


def _reduced(failures: Mapping[str, Mapping[str, int]], names: list[str]) -> list[Function]:
    """One direction of each pair, and one source for each column from which several follow: that
    with the fewest failures, and then the closest one."""
    position = {name: index for index, name in enumerate(names)}
    sources = {
        target: [
            source
            for source in own
            # Of two columns that determine each other, the first in the table is the source.
            if not (target in failures.get(source, {}) and position[source] > position[target])
        ]
        for target, own in failures.items()
    }
    functions = []
    for target, own in sources.items():
        # By how many of the others follow from it, too: the closest has none.
        between = {one: sum(one in sources.get(other, ()) for other in own) for one in own}
        explained: set[str] = set()
        for source in sorted(own, key=lambda one: (failures[target][one], between[one])):
            roots = _roots(source, sources)
            if not roots <= explained:
                functions.append(Function(source, target))
                explained |= roots
    return functions


def families(functions: Sequence[Function]) -> list[set[str]]:
    """Columns with all that they determine, directly or not."""
    sources = _sources(functions)
    families: dict[str, set[str]] = {}
    for target in sources:
        for root in _roots(target, sources):
            families.setdefault(root, {root}).add(target)
    return list(families.values())


def follow_from_another(names: Collection[str], functions: Sequence[Function]) -> bool:
    """Whether there is one other column that determines all of these."""
    sources = _sources(functions)
    roots = [_roots(name, sources) for name in names]
    return bool(set.intersection(*roots) - set(names))


def _sources(functions: Sequence[Function]) -> dict[str, list[str]]:
    sources: dict[str, list[str]] = {}
    for function in functions:
        sources.setdefault(function.target, []).append(function.source)
    return sources


def _roots(name: str, sources: Mapping[str, list[str]]) -> set[str]:
    """The columns from which one follows, directly or not, and that follow from no other."""
    roots: set[str] = set()
    seen, waiting = {name}, [name]
    while waiting:
        current = waiting.pop()
        own = sources.get(current, [])
        if not own:
            roots.add(current)
        new = [source for source in own if source not in seen]
        seen.update(new)
        waiting += new
    return roots or {name}
