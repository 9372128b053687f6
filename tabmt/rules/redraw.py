"""Draw rows again until they satisfy every rule: one loop for new rows and for completed ones.

New rows have no known cells, so any valid candidate may fill any slot. Rows that are completed
differ in their known cells, so each candidate is for one slot only.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Candidates:
    """Rows that were drawn, whether they satisfy all rules, and which slots they are for."""

    rows: Any  # whatever `use` takes rows from
    valid: np.ndarray  # (N,) bool
    slots: np.ndarray | None = None  # (N,) the slot of each candidate; None: any slot

    def assign(self, open_slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slots that can be filled, and the candidate for each: the first valid one."""
        if self.slots is None:
            chosen = np.flatnonzero(self.valid)[: len(open_slots)]
            return open_slots[: len(chosen)], chosen
        valid = np.flatnonzero(self.valid)
        filled, first = np.unique(self.slots[valid], return_index=True)
        return filled, valid[first]


def redraw(
    slots: np.ndarray,
    rounds: Iterable[Callable[[np.ndarray], Iterable[Candidates]]],
    use: Callable[[np.ndarray, Candidates, np.ndarray], None],
) -> np.ndarray:
    """Fill slots with valid rows; returns the slots that are still open after the last round.

    Each round draws candidates for the open slots; `use(slots, candidates, chosen)` takes them
    over.
    """
    for draw in rounds:
        if len(slots) == 0:
            break
        for candidates in draw(slots):
            filled, chosen = candidates.assign(slots)
            use(filled, candidates, chosen)
            slots = slots[~np.isin(slots, filled)]
    return slots
