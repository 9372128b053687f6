"""Fill masked cells, one column at a time, in one random order per chunk of rows.

Works on integer tokens only; it knows nothing of tables, column names or conditions. Callers turn
conditions into `allowed` codes, cut the work into chunks (the paper: 512 rows, each chunk with an
order of its own) and check what users typed.
"""

import logging
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from tabmt.errors import UserError
from tabmt.method.embedding import MANY_CODES, many_codes
from tabmt.method.networks import Source
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

POOL = 2  # candidates per row when several columns are restricted ...
LEAST_CANDIDATES = 1024  # ... as picking among a handful is hardly picking at all ...
MOST_CANDIDATES = 64  # ... and how many there may be, per row or of those, before rows repeat
MOST_AT_ONCE = 65_536  # candidates of a chunk: memory is bounded
BLOCK = 256  # codes whose weights are summed up before one of very many is drawn
LEAST_QUICK = 1e-3  # temperatures below it need float64
LEAST_MASS = 1e-8  # a condition that so little of the distribution meets cannot be met

Allowed = Sequence[Tensor | None]


class Keeper(Protocol):
    """Narrows what each row may draw by what it has drawn before (rules between columns)."""

    def allowed(self, column: int) -> np.ndarray | None:
        """Weights of each row's codes, (B, K), which replace those of the column."""
        ...

    def drawn(self, column: int, codes: np.ndarray) -> None:
        """Take note of what was drawn, (B,)."""
        ...


class Filling:
    """A chunk of rows being filled. Rows that know the same cells alike are asked for once."""

    def __init__(
        self, net: Source, tokens: Tensor, *, temperature: Tensor, generator: torch.Generator
    ) -> None:
        assert tokens.dtype == torch.int64
        self._net, self._temperature, self._generator = net, temperature, generator
        self._prefixes, self._which = _distinct(tokens, net.merge_below)  # (P, C), (B,)
        self._state = net.start(self._prefixes)

    @property
    def tokens(self) -> Tensor:
        """(B, C), MASK where nothing is drawn yet."""
        return self._prefixes[self._which]

    def draw(self, column: int, allowed: Tensor | None = None) -> Tensor:
        """Draw the blank cells of a column; log of the mass that was allowed, (B,).

        `allowed` is a weight in [0, 1] per code, (K,), or per row and code, (B, K).
        """
        prefixes, which = self._prefixes, self._which
        masses = torch.zeros(len(which), dtype=torch.float64, device=which.device)
        blank = prefixes[:, column] == MASK
        if not blank.any():
            return masses
        asked = blank.nonzero().squeeze(1)  # (P,)
        logits = self._state.logits(asked, column)  # (P, K)
        rows = blank[which].nonzero().squeeze(1)  # (B,)
        if allowed is not None and allowed.dim() == 2:
            allowed = allowed.to(rows.device)[rows]
        codes = torch.full_like(which, MASK)
        codes[rows], masses[rows] = draw(
            logits,
            (blank.cumsum(0) - 1)[which[rows]],
            temperature=float(self._temperature[column]),
            allowed=allowed,
            generator=self._generator,
        )
        if len(prefixes) < len(which):
            parents, codes, self._which = _split(
                which, codes, logits.shape[1], self._net.merge_below
            )
            self._state.keep(parents)
            self._prefixes = prefixes = prefixes[parents]
            asked = (codes != MASK).nonzero().squeeze(1)
        codes = codes[asked]
        self._state.put(asked, column, codes)
        prefixes[asked, column] = codes
        return masses

    def codes(self, column: int) -> Tensor:
        """(B,) codes of a column that was drawn."""
        return self._prefixes[:, column][self._which]

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, which may repeat."""
        used, which = torch.unique(self._which[rows], return_inverse=True)
        if len(used) == len(rows):  # each goes alone, and then stands in its own place
            used, which = self._which[rows], torch.arange(len(rows), device=rows.device)
        self._which = which
        self._state.keep(used)
        self._prefixes = self._prefixes[used]


def fill(
    net: Source,
    tokens: Tensor,
    *,
    temperature: Tensor,
    generator: torch.Generator,
    allowed: Allowed | None = None,
    order: Tensor | None = None,
    keeper: Keeper | None = None,
) -> Tensor:
    """Draw a code for every MASK cell of one chunk of rows, (B, C) -> (B, C).

    Known cells come back as they were. `temperature` is the paper's tau_u per column, (C,);
    `allowed` holds a weight in [0, 1] per code of each column, None where all are allowed.
    `order` fixes the order of the columns; without it any is drawn. A `keeper` narrows what the
    columns may be, row by row.
    """
    if order is None:
        order = draw_order([1] * tokens.shape[1], generator)
    filling = Filling(net, tokens, temperature=temperature, generator=generator)
    _draw_rest(filling, order, allowed or [None] * tokens.shape[1], keeper)
    return filling.tokens


def _draw_rest(filling: Filling, order: Tensor, allowed: Allowed, keeper: Keeper | None) -> None:
    for column in order.tolist():
        weights = None if keeper is None else keeper.allowed(column)
        filling.draw(column, allowed[column] if weights is None else torch.from_numpy(weights))
        if keeper is not None:
            keeper.drawn(column, filling.codes(column).cpu().numpy())


class Improbable(UserError):
    """Conditions that the model's rows practically never meet. `column` is where it shows."""

    def __init__(self, column: int, probability: float) -> None:
        super().__init__(f"column {column}: probability {probability:.1e}")
        self.column, self.probability = column, probability


def fill_where(
    net: Source,
    rows: int,
    *,
    asked: Sequence[int],
    temperature: Tensor,
    generator: torch.Generator,
    allowed: Allowed,
    order: Tensor,
    device: torch.device,
    keeper: Keeper | None = None,
) -> Tensor:
    """Rows that meet conditions, without rejection: (rows, C).

    The columns of `asked` are drawn first, under their weights in `allowed`, then those of
    `order`. A row whose later conditions had little mass left came too often; so candidates are
    drawn for the asked columns alone, more than rows, and as many as rows are picked by the
    masses that their conditions met. With conditions on one column, all masses are equal.
    A `keeper` narrows what the columns of `order` may be, row by row.
    """
    open_ = [column for column in asked if int((_weights(allowed, column) > 0).sum()) > 1]
    several = len(open_) > 1
    count = most = rows
    if several:
        count = max(rows * POOL, LEAST_CANDIDATES)
        most = max(count, min(max(rows, LEAST_CANDIDATES) * MOST_CANDIDATES, MOST_AT_ONCE))
    while True:
        blank = torch.full((count, len(temperature)), MASK, device=device)
        filling = Filling(net, blank, temperature=temperature, generator=generator)
        try:
            masses = _draw_asked(filling, asked, allowed)
        except Improbable as error:
            # Few candidates may have missed the only place where the condition is met.
            if count >= most or not set(open_) & set(asked[: asked.index(error.column)]):
                raise
            count = most
            continue
        if not several:
            break
        weights = (masses - masses.max()).exp()
        effective = float(weights.sum() ** 2 / (weights**2).sum())
        if effective >= rows or count >= most:
            if effective < rows / 2:
                log.warning(
                    "The conditions are rarely met together: %d rows have only about %d different "
                    "combinations of the columns asked for.",
                    rows,
                    max(1, int(effective)),
                )
            filling.keep(_resample(weights, rows, generator))
            break
        count = min(most, max(2, math.ceil(rows / effective)) * count)
    if keeper is not None:
        for column in asked:
            keeper.drawn(column, filling.codes(column).cpu().numpy())
    _draw_rest(filling, order, allowed, keeper)
    return filling.tokens


def _draw_asked(filling: Filling, asked: Sequence[int], allowed: Allowed) -> Tensor:
    """Draw the columns that have conditions; log of the mass that met them all, (B,)."""
    masses = torch.zeros(len(filling.tokens), dtype=torch.float64, device=filling.tokens.device)
    for column in asked:
        # In proportion to how often the conditions so far are met, of which this is a part.
        share = (masses - masses.logsumexp(0)).exp() if len(masses) else masses
        now = filling.draw(column, allowed[column])
        met = float((share * now.exp()).sum())
        if len(now) and met < LEAST_MASS:
            raise Improbable(column, met)
        masses += now
    return masses


def _weights(allowed: Allowed, column: int) -> Tensor:
    weights = allowed[column]
    assert weights is not None
    return weights


def _resample(weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Places of `count` candidates, each expected in proportion to its weight, in random order.

    Evenly spaced points on the cumulated weights, so that a candidate repeats as little as may be.
    """
    start = torch.rand(1, generator=generator, dtype=torch.float64, device=generator.device)
    points = (torch.arange(count, device=weights.device) + start.to(weights.device)) / count
    cumulated = weights.cumsum(0)
    places = torch.searchsorted(cumulated, points * cumulated[-1], right=True)
    shuffled = torch.randperm(count, generator=generator, device=generator.device)
    return places.clamp(max=len(weights) - 1)[shuffled.to(weights.device)]


def draw_order(sizes: Sequence[int], generator: torch.Generator, last: int | None = None) -> Tensor:
    """An order of the columns, (C,), given how many codes each has; all are equally likely.

    The sets of masked cells that are met along it are then those of training (eq. 3).
    PAPER-DIFF: `last` names a column that comes last, so that it is drawn given all others; and
    columns of very many codes come first (docs/log.md): what a rare code goes with is learned
    better than which of thousands goes with the rest of a row.
    """
    order = torch.randperm(len(sizes), generator=generator, device=generator.device)
    if last is not None:
        order = torch.cat([order[order != last], order.new_tensor([last])])
    first = torch.isin(order, order.new_tensor(many_codes(sizes, last)))
    return torch.cat([order[first], order[~first]])


def _distinct(tokens: Tensor, merge_below: float) -> tuple[Tensor, Tensor]:
    """The distinct rows and which of them each row is; all rows, if hardly any are alike."""
    if bool((tokens == tokens[:1]).all()):  # the usual case: nothing is known of any row
        prefixes, which = tokens[:1].clone(), tokens.new_zeros(len(tokens))
    else:
        prefixes, which = torch.unique(tokens, dim=0, return_inverse=True)
    if len(prefixes) > merge_below * len(tokens):
        return tokens.clone(), torch.arange(len(tokens), device=tokens.device)
    return prefixes, which


def _split(
    which: Tensor, codes: Tensor, size: int, merge_below: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Prefixes after a column was drawn: their parents, their codes, and which one each row has.

    Rows stay together if they were and drew the same code (or none). Once hardly any do, every
    row goes on alone: moving prefixes about would cost more than asking twice.
    """
    pairs, now = torch.unique(which * (size + 1) + codes + 1, return_inverse=True)
    if len(pairs) > merge_below * len(which):
        return which, codes, torch.arange(len(which), device=which.device)
    return pairs // (size + 1), pairs % (size + 1) - 1, now


def draw(
    logits: Tensor,
    which: Tensor,
    *,
    temperature: float,
    allowed: Tensor | None,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """One code per row, (P, K) -> (B,), from softmax(logits / temperature) times `allowed`.

    `which` tells for each of the B draws the row of `logits` it is from; `allowed` is (K,) or
    (B, K). Also gives the log of the mass that was allowed, (B,): 0 where all is.
    The learned temperature of eq. 6 is already in the logits. Temperature 0 is the limit: the
    likeliest code that is allowed at all.
    """
    if allowed is None and temperature > LEAST_QUICK and logits.shape[1] > MANY_CODES:
        found = _draw_from_many(logits, which, temperature, generator)
        return found, torch.zeros(len(which), dtype=torch.float64, device=logits.device)
    # float64 throughout: the noise of float32 quietly lowers the temperature, the privacy dial.
    # The largest first becomes 0, so that a tiny temperature cannot make it infinite.
    logits = logits.double()
    logits = logits - logits.max(1, keepdim=True).values
    scaled = logits / temperature if temperature > 0.0 else logits
    masses = logits.new_zeros(len(which))
    if allowed is not None:
        allowed = allowed.to(logits.device, torch.float64)
        assert bool((allowed > 0).any(-1).all()), "no code is allowed"
        everything = scaled.logsumexp(1)  # (P,)
        if allowed.dim() == 2:  # each row has its own
            scaled, everything = scaled[which], everything[which]
            which = torch.arange(len(which), device=which.device)
        if temperature == 0.0:
            return scaled.masked_fill(allowed <= 0, -torch.inf).argmax(1)[which], masses
        # Before the softmax, so that allowed codes do not vanish beside likelier forbidden ones.
        scaled = scaled + allowed.log()
        masses = (scaled.logsumexp(1) - everything)[which]
    if temperature == 0.0:
        return scaled.argmax(1)[which], masses
    weights = scaled.softmax(1)  # (P, K)
    # Inverse of the cumulated weights: those of row p of the logits run from p to p + 1, so one
    # search serves all draws, however many share a row. The point stays below p + 1, and "right"
    # steps over codes of weight 0, so a forbidden code is never drawn.
    cumulated = weights.cumsum(1)
    cumulated = cumulated / cumulated[:, -1:]  # (P, K), the last of each row is 1
    first = torch.arange(len(cumulated), device=logits.device, dtype=torch.float64)[:, None]
    uniform = torch.rand(
        len(which), generator=generator, dtype=torch.float64, device=generator.device
    )
    start = which.double()
    point = torch.minimum(start + uniform.to(logits.device), torch.nextafter(start + 1, start))
    found = torch.searchsorted((cumulated + first).flatten(), point, right=True)
    return found - which * logits.shape[1], masses


def _draw_from_many(
    logits: Tensor, which: Tensor, temperature: float, generator: torch.Generator
) -> Tensor:
    """`draw` for very many codes, all allowed: first a block of codes, then one of it.

    Only sums of blocks are cumulated in float64: all weights in it would be most of the work.
    """
    rows, codes = logits.shape
    blocks = -(-codes // BLOCK)
    scaled = logits.new_full((rows, blocks * BLOCK), -torch.inf)
    torch.sub(logits, logits.max(1, keepdim=True).values, out=scaled[:, :codes])
    weights = scaled.div_(temperature).exp_().view(rows, blocks, BLOCK)
    reach = weights.sum(2).double().cumsum(1)  # (P, blocks)
    uniform = torch.rand(
        len(which), generator=generator, dtype=torch.float64, device=generator.device
    )
    point = uniform.to(logits.device) * reach[which, -1]  # (B,)
    block = torch.searchsorted(reach[which], point[:, None], right=True)
    block = block.clamp(max=blocks - 1)  # (B, 1)
    before = torch.where(block > 0, reach[which].gather(1, (block - 1).clamp(min=0)), 0.0)
    within = weights[which, block.squeeze(1)].double()  # (B, BLOCK)
    cumulated = before + within.cumsum(1)
    place = torch.searchsorted(cumulated, point[:, None], right=True)
    # Sums in another order may end a little short of the point: then the last that has weight.
    last = BLOCK - 1 - (within > 0).flip(1).to(torch.int8).argmax(1, keepdim=True)
    return (block * BLOCK + torch.minimum(place, last)).squeeze(1)
