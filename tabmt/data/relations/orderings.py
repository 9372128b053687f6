"""Columns that are never above another, or usually equal to it: suggestions, not enforced."""

from collections.abc import Collection

import numpy as np

from tabmt.data.relations.sums import quoted
from tabmt.data.relations.views import LEAST_SHARE, Views, is_evidence

LEAST_CHANCE = 0.1  # of the rows in which independent columns would be the other way round
LEAST_EQUAL = 0.9  # of the rows in which two columns are equal
MOST_SUGGESTIONS = 20
COMPARED_ROWS = 4000


def find_orderings(
    views: Views, related: Collection[frozenset[str]], rng: np.random.Generator
) -> list[tuple[str, float]]:
    """Rules `a <= b` and `a = b`, with the share of the rows in which they hold."""
    ordered = [view for view in views.values() if view.is_ordered and view.distinct > 2]
    found: list[tuple[str, float]] = []
    below: dict[str, set[str]] = {}
    for one in ordered:
        for two in ordered:
            pair = frozenset((one.name, two.name))
            if one is two or pair in related or one.values.type != two.values.type:
                continue
            known = np.flatnonzero(one.known & two.known)[:COMPARED_ROWS]
            if len(known) == 0:
                continue
            a, b = one.numbers[known], two.numbers[known]
            shuffled = rng.permutation(b)
            equal = float(np.mean(a == b))
            if equal >= LEAST_EQUAL and np.mean(a == shuffled) < LEAST_EQUAL / 2:
                if views_order(views, one.name, two.name):
                    found.append((f"{quoted(one.name)} = {quoted(two.name)}", equal))
                continue
            chance = int((a > shuffled).sum())
            failures = int((a > b).sum())
            if chance >= LEAST_CHANCE * len(a) and is_evidence(failures, chance, len(a)):
                below.setdefault(one.name, set()).add(two.name)
    for low, highs in below.items():
        for high in sorted(highs, key=list(views).index):
            if not any(high in below.get(middle, ()) for middle in highs - {high}):
                share = _share(views, low, high)
                if share >= LEAST_SHARE:
                    found.append((f"{quoted(low)} <= {quoted(high)}", share))
    return found[:MOST_SUGGESTIONS]


def views_order(views: Views, one: str, two: str) -> bool:
    names = list(views)
    return names.index(one) < names.index(two)


def _share(views: Views, low: str, high: str) -> float:
    one, two = views[low], views[high]
    known = one.known & two.known
    return float(np.mean(one.numbers[known] <= two.numbers[known]))
