"""New rows from a fitted model, in batches of bounded size.

Tables, codes and networks meet here; what users typed was checked by the callers, and the drawing
itself is `sample`'s.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from tabmt.codec.columns import Bounds, CodedColumn, NumericCodec
from tabmt.conditions.prompts import Prompt
from tabmt.config import Decode
from tabmt.data.schema import but_the_table_has
from tabmt.errors import UserError
from tabmt.method import devices
from tabmt.method.networks import AnyNetwork, Ready
from tabmt.method.sample import Improbable, Keeper, draw_order, fill_where
from tabmt.model.fitted import Learned
from tabmt.rules.enforce import TRIES_PER_CODE, Page
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

# PAPER-DIFF: the paper draws 512 rows to an order. What an order gives differs a little from what
# another gives, so a sample has many; beyond that, larger chunks are faster (docs/log.md).
ORDERS = 64
LEAST_CHUNK, MOST_CHUNK = 64, 4096  # rows that share one order of columns
MOST_CELLS, MOST_WEIGHTS = 2**16, 2**22  # of a chunk: what is remembered and drawn from is bounded
BATCH_ROWS = 4 * MOST_CHUNK  # rows decoded and written at a time
MOST_ATTEMPTS = 50  # at rows that keep every rule

Rows = tuple[np.ndarray, dict[str, Bounds]]  # codes, and where the numbers of columns must lie


@dataclass(frozen=True)
class Request:
    """How rows shall be drawn. `parts` are shares of the rows, each with its own conditions."""

    seed: int
    heat: Tensor  # (C,) temperatures
    complete: bool = False
    decode: Decode = "inside"
    threads: int = 1
    parts: Sequence[tuple[float, Mapping[str, Prompt]]] = field(default=((1.0, {}),))


def temperatures(temperature: float | Mapping[str, float] | None, learned: Learned) -> Tensor:
    """(C,) float64: one temperature per token column; the model's own where none is given."""
    codec = learned.codec
    names = codec.schema.names
    given: Mapping[str, float] = learned.card.temperatures
    if isinstance(temperature, Mapping):
        given = {**given, **temperature}
    elif temperature is not None:
        given = dict.fromkeys(names, temperature)
    for name, value in given.items():
        if name not in names:
            raise UserError(
                f"A temperature is set for column {name!r}, {but_the_table_has(str(name), names)}"
            )
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise UserError(
                f"The temperature of column {name!r} is {value!r}, but must be a number from 0 "
                "(1 is the model's own distribution)."
            )
    heat = [given.get(coded.column.name, 1.0) for coded in codec.token_columns]
    return torch.tensor(heat, dtype=torch.float64)


def rows_in_batches(
    learned: Learned, rows: int, request: Request, span: range | None = None
) -> Iterator[pa.Table]:
    """New rows; of these only a span, if one is given, which begins with a batch.

    A table of several parts comes well mixed.
    """
    span = range(rows) if span is None else span
    assert span.start % BATCH_ROWS == 0
    sizes = [coded.size for coded in learned.codec.token_columns]
    if learned.book.rules:  # which try several numbers of each code
        sizes = [TRIES_PER_CODE * size for size in sizes]
    chunk = _chunk(rows, sizes)
    if request.complete:
        for column in learned.codec.schema.columns:
            if column.reason == "nothing but gaps":
                log.warning("Column %r has nothing but gaps, so it has no value.", column.name)
    for first in range(span.start, max(span.stop, 1), BATCH_ROWS):  # no rows are one empty batch
        count = min(BATCH_ROWS, span.stop - first)
        tokens, within = _mixed_parts(learned, count, first, chunk, request)
        yield learned.codec.decode(
            tokens, seed=request.seed, first_row=first, how=request.decode, within=within
        )


def _mixed_parts(
    learned: Learned, rows: int, first: int, chunk: int, request: Request
) -> tuple[np.ndarray, dict[str, Bounds]]:
    """Codes of new rows of all parts, and where the numbers of some columns must lie."""
    shares = [share for share, _ in request.parts]
    parts = []
    for place, size in enumerate(_sizes(rows, shares)):
        stream = derive(request.seed, "part", place) if place else request.seed
        parts.append(_part(learned, size, first, chunk, stream, request, request.parts[place][1]))
    tokens, within = _stacked(parts)
    if len(parts) > 1:
        order = numpy_stream(request.seed, "mix", first).permutation(rows)
        tokens = tokens[order]
        within = {name: (low[order], high[order]) for name, (low, high) in within.items()}
    return tokens, within


def _stacked(parts: Sequence[Rows]) -> Rows:
    """Rows one below the other; where a part has no bounds for a column, there are none."""
    names = {name for _, within in parts for name in within}
    bounds = {}
    for name in sorted(names):
        ends = [
            within.get(name, (np.full(len(tokens), -np.inf), np.full(len(tokens), np.inf)))
            for tokens, within in parts
        ]
        low, high = (np.concatenate(side) for side in zip(*ends, strict=True))
        bounds[name] = (low, high)
    return np.concatenate([tokens for tokens, _ in parts]), bounds


def _chunk(rows: int, sizes: Sequence[int]) -> int:
    """Rows to an order, a power of two: batches then begin with a chunk."""
    most = min(MOST_CHUNK, MOST_CELLS / max(1, len(sizes)), MOST_WEIGHTS / max(sizes, default=1))
    return int(2 ** round(math.log2(max(LEAST_CHUNK, min(rows / ORDERS, most)))))


def _sizes(rows: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers that sum to `rows`, in proportion to the shares."""
    ends = np.round(np.cumsum(shares) / sum(shares) * rows).astype(int)
    return [int(size) for size in np.diff(ends, prepend=0)]


def _part(
    learned: Learned,
    rows: int,
    first: int,
    chunk: int,
    seed: int,
    request: Request,
    prompts: Mapping[str, Prompt],
) -> Rows:
    """Rows under one set of conditions, chunk by chunk."""
    codec, net, heat = learned.codec, learned.net, request.heat
    if net is None or rows == 0:
        return np.zeros((rows, len(heat)), np.int64), {}
    names = [coded.column.name for coded in codec.token_columns]
    allowed: list[Tensor | None] = [None] * len(names)
    if request.complete:
        allowed = without_gaps(codec.token_columns)
    exact: list[int] = []
    ranges: list[int] = []
    for name, prompt in prompts.items():
        place = names.index(name)
        weights, no_gap = torch.from_numpy(prompt.weights), allowed[place]
        weights = weights if no_gap is None else weights * no_gap
        allowed[place] = weights
        if not weights.any():
            raise UserError(
                f"Column {name!r} is asked to be missing, but complete rows have no gaps; "
                "ask for one of the two."
            )
        (exact if prompt.exact else ranges).append(place)
    last = learned.target if learned.target not in exact + ranges else None
    device, ready = next(net.parameters()).device, Ready(net)
    ranges = _rarest_first(net, ranges, prompts, names, device)

    def fill_chunk(size: int, stream: int, keeper: Keeper | None) -> np.ndarray:
        generator = torch.Generator().manual_seed(stream)
        order = draw_order(net.fields.sizes, generator, last)
        # What is given first, then what is restricted, then the rest, as the network was
        # trained: any set of cells may be known.
        asked = exact + ranges
        rest = order[~torch.isin(order, torch.tensor(asked, dtype=torch.int64))]
        try:
            filled = fill_where(
                ready,
                size,
                asked=asked,
                temperature=heat,
                generator=generator,
                allowed=allowed,
                order=rest,
                device=device,
                keeper=keeper,
            )
        except Improbable as error:
            raise UserError(_improbable(names, prompts, error)) from error
        return filled.cpu().numpy()

    found: list[Rows] = []
    spent = 0
    with devices.threads(request.threads):
        for start in range(0, rows, chunk):
            stream = derive(seed, "sample", (first + start) // chunk)
            size = min(chunk, rows - start)
            if learned.book.rules:
                base = [None if one is None else one.numpy() for one in allowed]
                kept, tried = _ruled(learned, size, stream, fill_chunk, base, prompts)
                found.append(kept)
                spent += tried
            else:
                tokens = fill_chunk(size, stream, None)
                rng = numpy_stream(stream, "choice")
                found.append((tokens, _bounds(learned, tokens, prompts, rng)))
    if spent:
        log.info("rules: %s rows were drawn to keep %s", f"{spent:,}", f"{rows:,}")
    return _stacked(found)


def _rarest_first(
    net: AnyNetwork,
    places: list[int],
    prompts: Mapping[str, Prompt],
    names: list[str],
    device: torch.device,
) -> list[int]:
    """Columns by how much of them their conditions leave: what is rare is then met by all
    candidates, instead of being looked for among them."""
    if len(places) < 2:
        return places
    state = net.start(torch.full((1, len(names)), MASK, device=device))
    row = torch.zeros(1, dtype=torch.int64, device=device)
    masses = {}
    for place in places:
        chances = state.logits(row, place).double().softmax(1)[0].cpu()
        masses[place] = float(chances @ torch.from_numpy(prompts[names[place]].weights))
    return sorted(places, key=lambda place: masses[place])


def _ruled(
    learned: Learned,
    rows: int,
    seed: int,
    fill_chunk: Callable[[int, int, Keeper | None], np.ndarray],
    weights: Sequence[np.ndarray | None],
    prompts: Mapping[str, Prompt],
) -> tuple[Rows, int]:
    """Rows that keep every rule, and how many were drawn: dead ends are drawn again."""
    found: list[Rows] = []
    missing, spent = rows, 0
    for attempt in range(MOST_ATTEMPTS):
        stream = seed if attempt == 0 else derive(seed, "again", attempt)
        rng = numpy_stream(stream, "rules")
        size = missing if attempt == 0 else min(4 * missing + 16, max(rows, 64))
        page = Page(learned.book, learned.codec, size, rng, base=weights, prompts=prompts)
        tokens = fill_chunk(size, stream, page)
        spent += size
        kept = np.flatnonzero(page.kept())[:missing]
        bounds = _bounds(learned, tokens, prompts, rng)
        bounds |= {name: (units, units) for name, units in page.units.items()}
        within = {name: (low[kept], high[kept]) for name, (low, high) in bounds.items()}
        found.append((tokens[kept], within))
        missing -= len(kept)
        if missing == 0:
            return _stacked(found), spent
    rule = page.broken_most()
    raise UserError(
        f"The rule {rule.name!r} ({rule.text}) left only {rows - missing} of {rows} rows in "
        f"{spent} tries; loosen the conditions, or leave the rule out and fit again."
    )


def _improbable(names: list[str], prompts: Mapping[str, Prompt], error: Improbable) -> str:
    others = [repr(name) for name in prompts if name != names[error.column]]
    given = f" given those on {', '.join(others)}" if others else ""
    return (
        f"The condition on column {names[error.column]!r} is practically never met{given}: its "
        f"probability in this model is {error.probability:.1e}. Loosen a condition."
    )


def _bounds(
    learned: Learned, tokens: np.ndarray, prompts: Mapping[str, Prompt], rng: np.random.Generator
) -> dict[str, Bounds]:
    """Where the numbers of prompted columns must lie."""
    return {
        coded.column.name: prompts[coded.column.name].within(tokens[:, place], coded, rng)
        for place, coded in enumerate(learned.codec.token_columns)
        if coded.column.name in prompts and isinstance(coded.codec, NumericCodec)
    }


def without_gaps(columns: Sequence[CodedColumn]) -> list[Tensor | None]:
    """Weights per code that leave out the missing code of every column."""
    allowed: list[Tensor | None] = []
    for coded in columns:
        weights = torch.ones(coded.size, dtype=torch.float64)
        if coded.missing_code is not None:
            weights[coded.missing_code] = 0.0
        allowed.append(None if coded.missing_code is None else weights)
    return allowed
