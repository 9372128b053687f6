"""Values that occur in the same rows: `pdays == -1 if and only if previous == 0`.

An event is a frequent value of a column, or that its value is missing.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from tabmt.data.protection import most_needed
from tabmt.data.relations.sums import quoted
from tabmt.data.relations.views import MISSING, ColumnView, Views, is_evidence

LEAST_FREQUENT = 0.01  # share of the rows with a value, or without one
MOST_EVENTS = 8  # of one column


@dataclass(frozen=True)
class Event:
    """A column has this value; None: it is missing."""

    column: str
    value: Any

    def as_rule(self) -> str:
        if self.value is None:
            return f"{quoted(self.column)} is missing"
        shown = (
            f"{float(self.value):.15g}" if not isinstance(self.value, str) else _text(self.value)
        )
        return f"{quoted(self.column)} == {shown}"


def _text(value: str) -> str:
    return f'"{value}"' if "'" in value else f"'{value}'"


def _is_writable(value: Any) -> bool:
    """Whether a rule can name a value: a number, or text without quotes that would end it."""
    if isinstance(value, str):
        return value.isprintable() and "`" not in value and not ("'" in value and '"' in value)
    return isinstance(value, int | float | Decimal) and math.isfinite(value)


Tie = tuple[Event, Event]


def find_ties(
    views: Views, most_values: dict[str, int], implied: Collection[frozenset[str]], protect: int
) -> list[Tie]:
    """Pairs of events that occur in the same rows, one pair less than events of a set.

    Columns of which one follows from the other (`implied`) are not tied again. A rule names
    no value that fewer than `protect` rows hold.
    """
    events, masks = [], []
    for view in views.values():
        for event, mask in _events(view, most_values[view.name], protect):
            events.append(event)
            masks.append(mask)
    if len(events) < 2:
        return []
    rows = np.stack(masks).astype(np.float32)  # (E, n)
    both = rows @ rows.T
    counts = np.diag(both)
    differing = np.round(counts[:, None] + counts[None] - 2 * both).astype(np.int64)
    share = counts / rows.shape[1]
    chance = rows.shape[1] * (share[:, None] + share[None] - 2 * share[:, None] * share[None])
    ties: list[Tie] = []
    partner = list(range(len(events)))  # the first event of the set of each
    for j in range(len(events)):
        for i in range(j):
            if (
                events[i].column != events[j].column
                and partner[i] == i
                and is_evidence(int(differing[i, j]), int(chance[i, j]), rows.shape[1])
            ):
                partner[j] = i
                if frozenset((events[i].column, events[j].column)) not in implied:
                    ties.append((events[i], events[j]))
                break
    return ties


def _events(view: ColumnView, most_values: int, protect: int) -> list[tuple[Event, np.ndarray]]:
    if not view.is_learned:
        return []
    if view.column.kind == "datetime":
        return _missing_event(view)
    known = view.codes[view.codes != MISSING]
    counts = np.bincount(known, minlength=view.distinct)
    frequent = np.argsort(-counts, kind="stable")[:MOST_EVENTS]
    if view.column.kind == "numeric" and len(
        known
    ):  # special numbers stand at an end, or stand out
        numbers = view.numbers[view.known]
        ends = [known[numbers.argmin()], known[numbers.argmax()], frequent[0]]
        frequent = frequent[np.isin(frequent, ends)]
    least = max(LEAST_FREQUENT, 1 / max(most_values, 1)) * len(view.codes)
    least = max(least, most_needed(protect))  # only these have codes of their own
    values = view.encoded.dictionary
    events = [
        (Event(view.name, values[int(code)].as_py()), view.codes == code)
        for code in frequent
        if counts[code] >= least and _is_writable(values[int(code)].as_py())
    ]
    return [*_missing_event(view), *events]


def _missing_event(view: ColumnView) -> list[tuple[Event, np.ndarray]]:
    missing = ~view.known
    if view.column.missing != "learned" or missing.mean() < LEAST_FREQUENT:
        return []
    return [(Event(view.name, None), missing)]
