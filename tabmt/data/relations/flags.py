"""Groups of flags of which exactly one is set: `exactly_one(mon, tue, wed)`."""

from collections.abc import Mapping

import numpy as np

from tabmt.data.relations.views import LEAST_SHARE, Views, is_evidence

LEAST_FLAGS = 3  # of two flags, one determines the other
MOST_TRIALS = 1000  # of flags that could continue a group


def find_flags(views: Views, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Disjoint groups of columns, each with a 1 in exactly one of them."""
    flags = {name: view.flags for name, view in views.items() if view.flags is not None}
    groups: list[tuple[str, ...]] = []
    for name in list(flags):
        used = {other for group in groups for other in group}
        left = {other: flag for other, flag in flags.items() if other not in used}
        if name not in left:
            continue
        group = _cover(left, name, rng)
        if group is not None and _is_group({other: left[other] for other in group}, rng):
            groups.append(tuple(other for other in views if other in group))
    return groups


def _cover(
    flags: Mapping[str, np.ndarray], first: str, rng: np.random.Generator
) -> frozenset[str] | None:
    """Flags that include the first, exclude each other and together cover the rows."""
    rows = len(flags[first])
    few = (1 - LEAST_SHARE) * rows
    order = rng.permutation(rows)
    trials = 0

    def extend(group: frozenset[str], covered: np.ndarray) -> frozenset[str] | None:
        nonlocal trials
        trials += 1
        open_rows = order[~covered[order]]
        if len(open_rows) <= few:
            return group
        if trials > MOST_TRIALS:
            return None
        for name, flag in flags.items():  # one of them must cover the first open row
            if flag[open_rows[0]] and name not in group and (flag & covered).sum() <= few:
                found = extend(group | {name}, covered | flag)
                if found is not None:
                    return found
        return None

    return extend(frozenset([first]), flags[first])


def _is_group(flags: Mapping[str, np.ndarray], rng: np.random.Generator) -> bool:
    if len(flags) < LEAST_FLAGS:
        return False
    failures = int((np.sum(list(flags.values()), axis=0) != 1).sum())
    shuffled = [rng.permutation(flag) for flag in flags.values()]
    chance = int((np.sum(shuffled, axis=0) != 1).sum())
    return is_evidence(failures, chance, len(shuffled[0]))
