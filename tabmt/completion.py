"""Rows of a given table, completed: drawn under the rules of the model, or by expectation.

What is known stays as it is. Rules are kept by what is drawn, as far as what is known lets them.
"""

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from tabmt import devices
from tabmt.codecs import CodedColumn, NumericCodec, typed
from tabmt.config import Imputation
from tabmt.generate import Request, Rows, without_gaps
from tabmt.learned import Learned
from tabmt.likelihood import probabilities
from tabmt.rulebook import Page
from tabmt.sample import Keeper, draw_order, fill
from tabmt.schema import combine
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

COMPLETED = 256  # rows of a given table that share one order: not knowing its size
ATTEMPTS = 20  # at a row whose rules are not kept; what is known may break them for ever
UNKNOWN, KNOWN, LEFT = 0, 1, 2  # a cell is to be drawn, is given, or is a gap that stays one


def complete(
    learned: Learned,
    tokens: np.ndarray,
    table: pa.Table,
    request: Request,
    *,
    first_row: int,
    leave: Sequence[int] = (),
    draw: int = 0,
) -> Rows:
    """Draw the MASK cells of tokens, (B, C), but not those of the columns in `leave`.

    `table` is what the tokens were made from: rules need its numbers, not only their codes.
    """
    if learned.net is None or not len(tokens):
        return tokens, {}
    chunks = _Chunks(learned, request, leave, draw)
    if learned.book.rules:
        return _keep_rules(chunks, tokens, table, first_row)
    parts = [
        chunks.fill(tokens[at : at + COMPLETED], chunks.stream((first_row + at) // COMPLETED))
        for at in range(0, len(tokens), COMPLETED)
    ]
    return np.concatenate(parts), {}


class _Chunks:
    """Draws what is to be drawn of rows that share an order."""

    def __init__(self, learned: Learned, request: Request, leave: Sequence[int], draw: int) -> None:
        self.learned, self.request, self.leave, self.draw = learned, request, leave, draw
        columns = learned.codec.token_columns
        self.allowed: list[Tensor | None] = [None] * len(columns)
        if request.complete:
            self.allowed = without_gaps(columns)

    def stream(self, *what: int) -> int:
        return derive(self.request.seed, "complete", self.draw, *what)

    def fill(self, tokens: np.ndarray, stream: int, keeper: Keeper | None = None) -> np.ndarray:
        net = self.learned.net
        assert net is not None
        generator = torch.Generator().manual_seed(stream)
        order = draw_order(net.fields.sizes, generator, self.learned.target)
        left = torch.tensor(list(self.leave), dtype=torch.int64)
        with devices.threads(self.request.threads):
            filled = fill(
                net,
                torch.from_numpy(tokens).to(next(net.parameters()).device),
                temperature=self.request.heat,
                allowed=self.allowed,
                generator=generator,
                order=order[~torch.isin(order, left)],
                keeper=keeper,
            )
        return filled.cpu().numpy()


def _keep_rules(chunks: _Chunks, tokens: np.ndarray, table: pa.Table, first_row: int) -> Rows:
    """Rows that know the same columns of the rules are drawn together, and again where a rule is
    broken; a row that never keeps them is left as it came out first, and told of."""
    learned = chunks.learned
    columns, book = learned.codec.token_columns, learned.book
    ruled = [i for i, coded in enumerate(columns) if coded.column.name in book.columns()]
    base = [None if one is None else one.numpy() for one in chunks.allowed]
    values = {place: _values(columns[place], table) for place in ruled}
    state = np.where(tokens[:, ruled] != MASK, KNOWN, UNKNOWN)
    left = np.isin(ruled, chunks.leave)
    state[:, left] = np.where(state[:, left] == UNKNOWN, LEFT, KNOWN)

    found, broken = tokens.copy(), 0
    low: dict[str, np.ndarray] = {}
    high: dict[str, np.ndarray] = {}
    patterns, which = np.unique(state, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns.tolist()):
        rows = np.flatnonzero(which.ravel() == number)
        for attempt in range(ATTEMPTS):
            again = []
            for at in range(0, len(rows), COMPLETED):
                part = rows[at : at + COMPLETED]
                stream = chunks.stream(first_row, number, attempt, at)
                rng = numpy_stream(stream, "rules")
                page = Page(book, learned.codec, len(part), rng, base=base, prompts={})
                for place, how in zip(ruled, pattern, strict=True):
                    if how != UNKNOWN:
                        codes = tokens[part, place] if how == KNOWN else None
                        page.give(place, codes, values[place].take(pa.array(part)))
                drawn = chunks.fill(tokens[part], stream, page)
                kept = page.kept()
                use = kept | (attempt == 0)
                found[part[use]] = drawn[use]
                for name, units in page.units.items():
                    for side, free in ((low, -np.inf), (high, np.inf)):
                        side.setdefault(name, np.full(len(tokens), free))[part[use]] = units[use]
                again.append(part[~kept])
            rows = np.concatenate(again)
            if len(rows) == 0 or UNKNOWN not in pattern:
                break
        broken += len(rows)
    if broken:
        log.warning(
            "%s of %s rows break a rule: what is known of them does, or leaves no value for it.",
            f"{broken:,}",
            f"{len(tokens):,}",
        )
    return found, {name: (low[name], high[name]) for name in low}


def _values(coded: CodedColumn, table: pa.Table) -> pa.Array:
    name = coded.column.name
    if name not in table.column_names:  # then nothing of it is known
        return pa.nulls(table.num_rows)
    return combine(typed(table.column(name), coded.column))


def expect(
    learned: Learned, tokens: np.ndarray, how: Imputation, threads: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The likeliest code of every MASK cell given the row's known cells, and for "mean" the
    expected number of columns of numbers, in units, (B,) each."""
    net = learned.net
    found = tokens.copy()
    means: dict[str, np.ndarray] = {}
    if net is None or not len(tokens):
        return found, means
    device = next(net.parameters()).device
    with devices.threads(threads):
        for place, coded in enumerate(learned.codec.token_columns):
            rows = np.flatnonzero(tokens[:, place] == MASK)
            if len(rows) == 0:
                continue
            given = torch.from_numpy(tokens[rows]).to(device)
            chances = probabilities(net, given, place).cpu().numpy()  # (rows, K)
            own = chances[:, : coded.codec.size]  # no gap
            if own.shape[1] == 0:
                continue
            found[rows, place] = own.argmax(1)
            if how == "mean" and isinstance(coded.codec, NumericCodec):
                codes = coded.codec.codes
                finite = np.isfinite(codes.centres)
                weights = own[:, finite]
                mean = weights @ codes.centres[finite] / weights.sum(1).clip(1e-300)
                means[coded.column.name] = np.zeros(len(tokens))
                means[coded.column.name][rows] = mean
    return found, means
