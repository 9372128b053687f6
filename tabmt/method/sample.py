"""Fill masked cells, one column at a time, in one random order per chunk of rows.

Read from top to bottom: `fill` draws an order and then the columns. Everything that generates is a
call of it with another starting matrix: all cells masked for new rows, some known for completion
and imputation. Works on integer tokens only; callers turn conditions into weights of codes, and cut
the work into chunks (the paper: 512 rows, each chunk with an order of its own).
"""

import logging
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from tabmt.method.column_order import RANDOM_ORDER, ColumnOrder
from tabmt.method.networks import Source
from tabmt.method.prefix_merging import RowBatch
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

CANDIDATES_PER_ROW = 2  # when several columns have conditions ...
LEAST_CANDIDATES = 1024  # ... as choosing among a handful is hardly a choice ...
MOST_CANDIDATES_PER_ROW = 64  # ... and the most there may be, before rows repeat
MOST_CANDIDATES = 65_536  # of a chunk: memory is bounded
LEAST_PROBABILITY = 1e-8  # a condition that is met less often is an error

Allowed = Sequence[Tensor | None]  # per column a weight in [0, 1] for each code; None: all are


class RowConstraint(Protocol):
    """Restricts what each row may draw by what it has drawn before (rules between columns)."""

    def allowed(self, column: int) -> np.ndarray | None:
        """Weights of each row's codes, (B, K), which replace those of the column."""
        ...

    def drawn(self, column: int, codes: np.ndarray) -> None:
        """Take note of the codes that were drawn, (B,)."""
        ...


class ImprobableCondition(Exception):
    """The model's rows practically never meet a condition. `column` is the one that shows it."""

    def __init__(self, column: int, probability: float) -> None:
        super().__init__(f"column {column}: probability {probability:.1e}")
        self.column, self.probability = column, probability


def fill(
    net: Source,
    tokens: Tensor,
    *,
    temperature: Tensor,
    generator: torch.Generator,
    allowed: Allowed | None = None,
    conditioned: Sequence[int] = (),
    column_order: ColumnOrder = RANDOM_ORDER,
    leave: Sequence[int] = (),
    last: Sequence[int] = (),
    constraint: RowConstraint | None = None,
) -> Tensor:
    """Draw a code for every masked cell of one chunk of rows, (B, C) -> (B, C).

    Known cells stay as they are. `temperature` is the paper's tau_u per column, (C,); `allowed`
    holds a weight in [0, 1] for each code of a column. The `conditioned` columns are drawn first
    (only for rows of which nothing is known), those in `leave` are not drawn at all, and
    `column_order` says which of the others come first and last; those in `last` come after them,
    before the last one of `column_order`. A `constraint` restricts the codes row by row.
    """
    not_drawn = [*conditioned, *leave]
    rest = draw_order(len(net.sizes), generator, column_order, leave=not_drawn, last=last)
    allowed = [None] * tokens.shape[1] if allowed is None else allowed
    if conditioned:
        rows = draw_conditioned(
            net, len(tokens), conditioned, allowed, temperature, generator, tokens.device
        )
        for column in conditioned:
            if constraint is not None:
                constraint.drawn(column, rows.codes(column).cpu().numpy())
    else:
        rows = RowBatch(net, tokens, temperature=temperature, generator=generator)
    for column in rest.tolist():
        weights = None if constraint is None else constraint.allowed(column)
        rows.draw(column, allowed[column] if weights is None else torch.from_numpy(weights))
        if constraint is not None:
            constraint.drawn(column, rows.codes(column).cpu().numpy())
    return rows.tokens


def draw_order(
    columns: int,
    generator: torch.Generator,
    column_order: ColumnOrder = RANDOM_ORDER,
    *,
    leave: Sequence[int] = (),
    last: Sequence[int] = (),
) -> Tensor:
    """A random order of the columns, (C,), without those in `leave`; those in `last` come
    after the others, before the target.

    All orders are equally likely, so the sets of masked cells on the way are those of training
    (eq. 3), unless some columns are to come first or last.
    """
    order = torch.randperm(columns, generator=generator, device=generator.device)
    first = torch.isin(order, order.new_tensor(column_order.first))
    order = torch.cat([order[first], order[~first]])
    order = order[~torch.isin(order, order.new_tensor(leave))]
    is_last = torch.isin(order, order.new_tensor(last))
    order = torch.cat([order[~is_last], order[is_last]])
    if (target := column_order.last) is not None:
        order = torch.cat([order[order != target], order[order == target]])
    return order


# --- conditions on several columns ---------------------------------------------------------


def draw_conditioned(
    net: Source,
    count: int,
    columns: Sequence[int],
    allowed: Allowed,
    temperature: Tensor,
    generator: torch.Generator,
    device: torch.device,
) -> RowBatch:
    """New rows whose first columns meet conditions, without rejection.

    A row whose later conditions had little probability left would come too often. So candidates are
    drawn for the conditioned columns alone, more than rows, and as many as rows are resampled in
    proportion to the probability with which they met their conditions. With a condition on one
    column only, these are all equal.
    """
    with_choice = [column for column in columns if _allowed_codes(allowed, column) > 1]
    resample = len(with_choice) > 1
    candidates = most = count
    if resample:
        candidates = max(count * CANDIDATES_PER_ROW, LEAST_CANDIDATES)
        most = max(count, LEAST_CANDIDATES) * MOST_CANDIDATES_PER_ROW
        most = max(candidates, min(most, MOST_CANDIDATES))
    while True:
        blank = torch.full((candidates, len(temperature)), MASK, device=device)
        rows = RowBatch(net, blank, temperature=temperature, generator=generator)
        try:
            log_probability = _draw_conditioned_columns(rows, columns, allowed)
        except ImprobableCondition as error:
            # Few candidates may have missed the only combination that meets the condition.
            earlier = columns[: columns.index(error.column)]
            if candidates >= most or not set(with_choice) & set(earlier):
                raise
            candidates = most
            continue
        if not resample:
            return rows
        weights = (log_probability - log_probability.max()).exp()
        effective = float(weights.sum() ** 2 / (weights**2).sum())
        if effective >= count or candidates >= most:
            if effective < count / 2:
                log.warning(
                    "The conditions are rarely met together: %d rows have only about %d different "
                    "combinations of the conditioned columns. Relax a condition to get more "
                    "variety.",
                    count,
                    max(1, int(effective)),
                )
            rows.select(_resample(weights, count, generator))
            return rows
        candidates = min(most, max(2, math.ceil(count / effective)) * candidates)


def _draw_conditioned_columns(rows: RowBatch, columns: Sequence[int], allowed: Allowed) -> Tensor:
    """Draw the columns that have conditions; log of the probability that all are met, (B,)."""
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for column in columns:
        # Weighted by the probability of the conditions so far, of which this one is a part.
        share = (total - total.logsumexp(0)).exp() if len(total) else total
        log_allowed = rows.draw(column, allowed[column])
        probability = float((share * log_allowed.exp()).sum())
        if len(log_allowed) and probability < LEAST_PROBABILITY:
            raise ImprobableCondition(column, probability)
        total += log_allowed
    return total


def _allowed_codes(allowed: Allowed, column: int) -> int:
    weights = allowed[column]
    assert weights is not None
    return int((weights > 0).sum())


def _resample(weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Indices of `count` candidates, each expected in proportion to its weight, in random order.

    Systematic resampling: evenly spaced points on the cumulative weights, so that a candidate
    repeats as rarely as possible.
    """
    start = torch.rand(1, generator=generator, dtype=torch.float64, device=generator.device)
    points = (torch.arange(count, device=weights.device) + start.to(weights.device)) / count
    cumulative = weights.cumsum(0)
    indices = torch.searchsorted(cumulative, points * cumulative[-1], right=True)
    shuffled = torch.randperm(count, generator=generator, device=generator.device)
    return indices.clamp(max=len(weights) - 1)[shuffled.to(weights.device)]
