"""New rows, completed rows and imputed tables from a fitted model, in batches of bounded size.

Tables, codes and networks meet here; what users typed was checked by the callers, and the drawing
itself is `sample`'s.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from tabmt import train
from tabmt.codecs import Bounds, CodedColumn, NumericCodec
from tabmt.config import Decode, Imputation
from tabmt.errors import UserError
from tabmt.learned import Learned
from tabmt.likelihood import probabilities
from tabmt.prompts import Prompt
from tabmt.sample import Improbable, draw_order, fill, fill_where
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

CHUNK = 512  # rows that share one order of columns (the paper's generation batch)
MANY_ROWS = 8192  # so many rows have orders enough in chunks of twice the size, which are faster
BATCH_ROWS = 32 * CHUNK  # rows decoded and written at a time


@dataclass(frozen=True)
class Request:
    """How rows shall be drawn. `parts` are shares of the rows, each with its own conditions."""

    seed: int
    heat: Tensor  # (C,) temperatures
    complete: bool = False
    decode: Decode = "inside"
    threads: int = 1
    parts: Sequence[tuple[float, Mapping[str, Prompt]]] = field(default=((1.0, {}),))


def rows_in_batches(learned: Learned, rows: int, request: Request) -> Iterator[pa.Table]:
    """New rows. A table of several parts comes well mixed."""
    chunk = CHUNK if rows < MANY_ROWS else 2 * CHUNK
    if request.complete:
        for column in learned.codec.schema.columns:
            if column.reason == "nothing but gaps":
                log.warning("Column %r has nothing but gaps, so it has no value.", column.name)
    for first in range(0, max(rows, 1), BATCH_ROWS):  # no rows are one empty batch
        count = min(BATCH_ROWS, rows - first)
        tokens, within = _mixed_parts(learned, count, first, chunk, request)
        yield learned.codec.decode(
            tokens, seed=request.seed, first_row=first, how=request.decode, within=within
        )


def _mixed_parts(
    learned: Learned, rows: int, first: int, chunk: int, request: Request
) -> tuple[np.ndarray, dict[str, Bounds]]:
    """Codes of new rows of all parts, and where the numbers of prompted columns must lie."""
    shares = [share for share, _ in request.parts]
    found, bounds = [], []
    for place, size in enumerate(_sizes(rows, shares)):
        prompts = request.parts[place][1]
        stream = derive(request.seed, "part", place) if place else request.seed
        found.append(_new_tokens(learned, size, first, chunk, stream, request, prompts))
        bounds.append(_bounds(learned, found[-1], prompts, stream, first))
    if len(found) == 1:
        return found[0], bounds[0]
    order = numpy_stream(request.seed, "mix", first).permutation(rows)
    within = {}
    for name in {name for part in bounds for name in part}:
        ends = [
            part.get(name, (np.full(len(codes), -np.inf), np.full(len(codes), np.inf)))
            for part, codes in zip(bounds, found, strict=True)
        ]
        low, high = (np.concatenate(side)[order] for side in zip(*ends, strict=True))
        within[name] = (low, high)
    return np.concatenate(found)[order], within


def _sizes(rows: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers that sum to `rows`, in proportion to the shares."""
    ends = np.round(np.cumsum(shares) / sum(shares) * rows).astype(int)
    return [int(size) for size in np.diff(ends, prepend=0)]


def _new_tokens(
    learned: Learned,
    rows: int,
    first: int,
    chunk: int,
    seed: int,
    request: Request,
    prompts: Mapping[str, Prompt],
) -> np.ndarray:
    codec, net, heat = learned.codec, learned.net, request.heat
    if net is None or rows == 0:
        return np.zeros((rows, len(heat)), np.int64)
    names = [coded.column.name for coded in codec.token_columns]
    allowed: list[Tensor | None] = [None] * len(names)
    if request.complete:
        allowed = without_gaps(codec.token_columns)
    exact: list[int] = []
    ranges: list[int] = []
    for name, prompt in prompts.items():
        place = names.index(name)
        allowed[place] = torch.from_numpy(prompt.weights)
        (exact if prompt.exact else ranges).append(place)
    last = learned.target if learned.target not in exact + ranges else None
    device = next(net.parameters()).device
    found = []
    with train.threads(request.threads):
        for start in range(0, rows, chunk):
            generator = torch.Generator().manual_seed(
                derive(seed, "sample", (first + start) // chunk)
            )
            size = min(chunk, rows - start)
            order = draw_order(len(heat), generator, last)
            if not prompts:
                blank = torch.full((size, len(heat)), MASK, device=device)
                filled = fill(
                    net,
                    blank,
                    temperature=heat,
                    allowed=allowed,
                    generator=generator,
                    order=order,
                )
            else:
                # What is given first, then what is restricted, then the rest, as the network
                # was trained: any set of cells may be known.
                asked = exact + [place for place in order.tolist() if place in ranges]
                rest = order[~torch.isin(order, torch.tensor(asked))]
                try:
                    filled = fill_where(
                        net,
                        size,
                        asked=asked,
                        temperature=heat,
                        generator=generator,
                        allowed=allowed,
                        order=rest,
                        device=device,
                    )
                except Improbable as error:
                    raise UserError(_improbable(names, prompts, error)) from error
            found.append(filled.cpu().numpy())
    return np.concatenate(found)


def _improbable(names: list[str], prompts: Mapping[str, Prompt], error: Improbable) -> str:
    others = [repr(name) for name in prompts if name != names[error.column]]
    given = f" given those on {', '.join(others)}" if others else ""
    return (
        f"The condition on column {names[error.column]!r} is practically never met{given}: its "
        f"probability in this model is {error.probability:.1e}. Loosen a condition."
    )


def _bounds(
    learned: Learned, tokens: np.ndarray, prompts: Mapping[str, Prompt], seed: int, first: int
) -> dict[str, Bounds]:
    """Where the numbers of prompted columns must lie."""
    found = {}
    for place, coded in enumerate(learned.codec.token_columns):
        name = coded.column.name
        if name in prompts and isinstance(coded.codec, NumericCodec):
            rng = numpy_stream(seed, "choice", name, first)
            found[name] = prompts[name].within(tokens[:, place], coded, rng)
    return found


def without_gaps(columns: Sequence[CodedColumn]) -> list[Tensor | None]:
    """Weights per code that leave out the missing code of every column."""
    allowed: list[Tensor | None] = []
    for coded in columns:
        weights = torch.ones(coded.size, dtype=torch.float64)
        if coded.missing_code is not None:
            weights[coded.missing_code] = 0.0
        allowed.append(None if coded.missing_code is None else weights)
    return allowed


def complete(
    learned: Learned,
    tokens: np.ndarray,
    request: Request,
    *,
    first_row: int,
    leave: Sequence[int] = (),
    draw: int = 0,
) -> np.ndarray:
    """Draw the MASK cells of tokens, (B, C) -> (B, C), but not those of the columns in `leave`."""
    net, heat = learned.net, request.heat
    if net is None or not len(tokens):
        return tokens
    columns = learned.codec.token_columns
    allowed = without_gaps(columns) if request.complete else None
    device = next(net.parameters()).device
    found = []
    with train.threads(request.threads):
        for start in range(0, len(tokens), CHUNK):
            stream = derive(request.seed, "complete", draw, (first_row + start) // CHUNK)
            generator = torch.Generator().manual_seed(stream)
            order = draw_order(len(heat), generator, learned.target)
            part = torch.from_numpy(tokens[start : start + CHUNK]).to(device)
            filled = fill(
                net,
                part,
                temperature=heat,
                allowed=allowed,
                generator=generator,
                order=order[~torch.isin(order, torch.tensor(list(leave), dtype=torch.int64))],
            )
            found.append(filled.cpu().numpy())
    return np.concatenate(found)


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
    with train.threads(threads):
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
