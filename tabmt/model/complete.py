"""Rows of a given table, completed: drawn under the rules of the model, or by expectation.

What is known stays as it is. Rules are kept by what is drawn, as far as what is known lets them.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from tabmt.codec.columns import NumericCodec, typed
from tabmt.config import Imputation
from tabmt.data.schema import combine
from tabmt.method import devices
from tabmt.method.likelihood import probabilities
from tabmt.method.networks import Ready
from tabmt.method.sample import Keeper, draw_order, fill
from tabmt.model.fitted import Learned
from tabmt.model.generate import MOST_WEIGHTS, Request, Rows, without_gaps
from tabmt.rules.enforce import TRIES_PER_CODE, Page
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

COMPLETED = 256  # rows of a given table that share one order: not knowing its size
COPIES = (4, 16, 64, 64, 64, 64)  # of a row that breaks a rule, in each further attempt ...
MOST_CANDIDATES = 2048  # ... and how many of them at a time


@dataclass
class Broken:
    """How many of the rows so far break a rule, and why."""

    rows: int = 0
    known: int = 0  # by what is known of them
    unmet: int = 0  # because nothing was found that keeps it

    def tell(self) -> None:
        for broken, why in (
            (self.known, "by what is known of them"),
            (self.unmet, "because no value was found that keeps it with what is known of them"),
        ):
            if broken:
                log.warning("%s of %s rows break a rule %s.", f"{broken:,}", f"{self.rows:,}", why)


def complete(
    learned: Learned,
    tokens: np.ndarray,
    table: pa.Table,
    request: Request,
    *,
    first_row: int,
    count: Broken,
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
        return _keep_rules(chunks, tokens, table, first_row, count)
    parts = [
        chunks.fill(tokens[at : at + COMPLETED], chunks.stream((first_row + at) // COMPLETED))
        for at in range(0, len(tokens), COMPLETED)
    ]
    return np.concatenate(parts), {}


class _Chunks:
    """Draws what is to be drawn of rows that share an order."""

    def __init__(self, learned: Learned, request: Request, leave: Sequence[int], draw: int) -> None:
        self.learned, self.request, self.leave, self.draw = learned, request, leave, draw
        assert learned.net is not None
        self.net, self.ready = learned.net, Ready(learned.net)
        columns = learned.codec.token_columns
        self.allowed: list[Tensor | None] = [None] * len(columns)
        if request.complete:
            self.allowed = without_gaps(columns)

    def stream(self, *what: int) -> int:
        return derive(self.request.seed, "complete", self.draw, *what)

    def fill(self, tokens: np.ndarray, stream: int, keeper: Keeper | None = None) -> np.ndarray:
        net = self.net
        generator = torch.Generator().manual_seed(stream)
        order = draw_order(net.fields.sizes, generator, self.learned.target)
        left = torch.tensor(list(self.leave), dtype=torch.int64)
        with devices.threads(self.request.threads):
            filled = fill(
                self.ready,
                torch.from_numpy(tokens).to(next(net.parameters()).device),
                temperature=self.request.heat,
                allowed=self.allowed,
                generator=generator,
                order=order[~torch.isin(order, left)],
                keeper=keeper,
            )
        return filled.cpu().numpy()


def _keep_rules(
    chunks: _Chunks, tokens: np.ndarray, table: pa.Table, first_row: int, count: Broken
) -> Rows:
    """Rows that break a rule are drawn again, several times at once; one that never keeps them all
    stays as it came out first, and is counted."""
    learned = chunks.learned
    columns, book = learned.codec.token_columns, learned.book
    base = [None if one is None else one.numpy() for one in chunks.allowed]
    places = {coded.column.name: place for place, coded in enumerate(columns)}
    given = {}
    for coded in learned.codec.coded:
        name = coded.column.name
        if name not in book.columns() or name not in table.column_names:
            continue
        values = combine(typed(table.column(name), coded.column))
        codes = tokens[:, places[name]] if name in places else np.zeros(len(tokens), np.int64)
        known = codes != MASK if name in places else np.asarray(values.is_valid())
        if places.get(name) in chunks.leave:  # its gaps stay gaps
            known = np.ones(len(tokens), bool)
        given[name] = known, codes, values

    def attempt(rows: np.ndarray, stream: int) -> tuple[np.ndarray, Page, np.ndarray]:
        rng = numpy_stream(stream, "rules")
        page = Page(book, learned.codec, len(rows), rng, base=base, prompts={})
        for name, (known, codes, values) in given.items():
            page.give(name, known[rows], codes[rows], values.take(pa.array(rows)))
        excused = page.excuse()
        return chunks.fill(tokens[rows], stream, page), page, excused

    found = tokens.copy()
    bounds: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def use(rows: np.ndarray, drawn: np.ndarray, page: Page, which: np.ndarray) -> None:
        found[rows] = drawn[which]
        for name, units in page.units.items():
            ends = np.full(len(tokens), -np.inf), np.full(len(tokens), np.inf)
            for side in bounds.setdefault(name, ends):
                side[rows] = np.where(np.isnan(units[which]), side[rows], units[which])

    widest = max(
        (coded.size for coded in columns if coded.column.name in book.columns()), default=1
    )
    most = max(1, MOST_WEIGHTS // (TRIES_PER_CODE * widest))  # rows whose weights may be at once
    together = min(COMPLETED, 2 ** int(math.log2(most)))
    for at in range(0, len(tokens), together):
        rows = np.arange(at, min(at + together, len(tokens)))
        number = (first_row + at) // together
        drawn, page, excused = attempt(rows, chunks.stream(number))
        use(rows, drawn, page, np.arange(len(rows)))
        count.known += int(excused.sum())
        rows = rows[~page.kept()]
        for turn, copies in enumerate(COPIES):
            if not len(rows):
                break
            again = []
            size = max(1, min(MOST_CANDIDATES, most) // copies)
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                stream = chunks.stream(number, turn, start)
                drawn, page, _ = attempt(part.repeat(copies), stream)
                kept = page.kept().reshape(-1, copies)
                first = np.arange(len(part)) * copies + kept.argmax(1)
                good = kept.any(1)
                use(part[good], drawn, page, first[good])
                again.append(part[~good])
            rows = np.concatenate(again)
        count.unmet += len(rows)
    count.rows += len(tokens)
    return found, bounds


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
