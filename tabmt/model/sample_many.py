"""New rows for several requests at once: small ones share most of the work.

A forward pass for a few rows costs hardly less than one for many, and decoding a table hardly less
for ten rows than for a thousand. So only the columns with conditions are drawn for each set of
conditions by itself; all other columns are drawn for the rows of all requests together. Where a
model has rules, requests share their work only if their conditions are the same.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tabmt.conditions.selections import Selections
from tabmt.model.fitted_model import FittedModel
from tabmt.model.generate import (
    LEAST_CHUNK,
    NewRows,
    Request,
    Rows,
    Sampler,
    as_decoded,
    drawn_codes,
    most_chunk_rows,
    stack,
)
from tabmt.seeds import derive, numpy_stream

MOST_ROWS = 1024  # with one order: more are hardly faster, and take more memory


class Asked(NamedTuple):
    """One of several requests."""

    rows: int
    conditions: int  # the index of its conditions among the different ones


def sample_many(
    model: FittedModel,
    asked: Sequence[Asked],
    selections: Sequence[Selections],
    request: Request,
) -> list[pa.Table]:
    """The rows of each request, under the conditions that it names."""
    model = as_decoded(model, request)
    kinds = [NewRows(model, request, own, compiled=False) for own in selections]
    counts = _rows_by_order(model, asked, any(kind.tries_values for kind in kinds))
    members = [
        np.array([n for n, one in enumerate(asked) if one.conditions == kind], np.int64)
        for kind in range(len(kinds))
    ]
    drawn: list[Rows] = []
    owners = []  # the request that each row is for
    for order, own_counts in enumerate(counts):
        sizes = [int(own_counts[own].sum()) for own in members]
        drawn.append(_draw(model, kinds, sizes, request, derive(request.seed, "many", order)))
        owners += [np.repeat(own, own_counts[own]) for own in members]
    sorted_by_owner = np.argsort(np.concatenate(owners), kind="stable")
    rows = stack(drawn).take(sorted_by_owner)
    table = model.codec.decode(rows.tokens, seed=request.seed, within=rows.within)
    ends = np.cumsum([one.rows for one in asked])
    return [table.slice(end - one.rows, one.rows) for end, one in zip(ends, asked, strict=True)]


def _rows_by_order(model: FittedModel, asked: Sequence[Asked], tries_values: bool) -> np.ndarray:
    """How many rows of each request are drawn with each order of columns, (orders, requests).

    A request has at least as many orders as it would have by itself.
    """
    rows = np.array([one.rows for one in asked])
    fixed = model.card.settings.generation.rows_per_order
    most = min(MOST_ROWS, most_chunk_rows(model, tries_values=tries_values))
    most = most if fixed is None else fixed
    alone = LEAST_CHUNK if fixed is None else fixed
    orders = max(1, math.ceil(rows.max() / alone), math.ceil(rows.sum() / most))
    # What is left of each request begins with another order, so that all have about as many rows.
    turn = (np.arange(orders)[:, None] - np.arange(len(asked))) % orders
    return np.asarray(rows // orders + (turn < rows % orders))


def _draw(
    model: FittedModel, kinds: Sequence[NewRows], sizes: Sequence[int], request: Request, seed: int
) -> Rows:
    """Rows of each kind, with one order of columns if there are no rules."""
    seeds = [derive(seed, "conditions", index) for index in range(len(kinds))]
    if model.net is None or model.rules.rules:
        return stack(
            [
                kind.draw(size, 0, max(size, 1), own)
                for kind, size, own in zip(kinds, sizes, seeds, strict=True)
            ]
        )
    started = [kind.start(size, own) for kind, size, own in zip(kinds, sizes, seeds, strict=True)]
    tokens = Sampler(model, request).fill(
        np.concatenate(started),
        seed,
        allowed=drawn_codes(model.codec, allow_missing=request.allow_missing),
        column_order=model.column_order,
    )
    chunks = np.split(tokens, np.cumsum(sizes)[:-1])
    return stack(
        [
            Rows(chunk, kind.bounds(chunk, numpy_stream(own, "choice")))
            for kind, chunk, own in zip(kinds, chunks, seeds, strict=True)
        ]
    )
