"""Fill masked cells, one column at a time, in one random order per chunk of rows.

Works on integer tokens only; it knows nothing of tables, column names or conditions. Callers turn
conditions into `allowed` codes, cut the work into chunks (the paper: 512 rows, each chunk with an
order of its own) and check what users typed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tabmt.networks import Network
from tabmt.tokens import MASK


def fill(
    net: Network,
    tokens: Tensor,
    *,
    temperature: Tensor,
    generator: torch.Generator,
    allowed: Sequence[Tensor | None] | None = None,
    order: Tensor | None = None,
) -> Tensor:
    """Draw a code for every MASK cell of one chunk of rows, (B, C) -> (B, C).

    Known cells come back as they were. `temperature` is the paper's tau_u per column, (C,);
    `allowed` holds a weight in [0, 1] per code of each column, None where all are allowed.
    `order` fixes the order of the columns; without it, it is drawn.
    """
    assert tokens.dtype == torch.int64
    if order is None:
        order = draw_order(tokens.shape[1], generator)
    # Rows that know the same cells alike have the same logits, so each such prefix is asked once.
    prefixes, which = _distinct(tokens, net.merge_below)
    state = net.start(prefixes)
    for column in order.tolist():
        blank = prefixes[:, column] == MASK
        if not blank.any():
            continue
        asked = blank.nonzero().squeeze(1)  # (P,)
        logits = state.logits(asked, column)  # (P, K)
        rows = blank[which].nonzero().squeeze(1)  # (B,)
        codes = torch.full_like(which, MASK)
        codes[rows] = draw(
            logits,
            (blank.cumsum(0) - 1)[which[rows]],
            temperature=float(temperature[column]),
            allowed=None if allowed is None else allowed[column],
            generator=generator,
        )
        if len(prefixes) < len(which):
            parents, codes, which = _split(which, codes, logits.shape[1], net.merge_below)
            state.keep(parents)
            prefixes = prefixes[parents]
            asked = (codes != MASK).nonzero().squeeze(1)
        codes = codes[asked]
        state.put(asked, column, codes)
        prefixes[asked, column] = codes
    return prefixes[which]


def draw_order(columns: int, generator: torch.Generator, last: int | None = None) -> Tensor:
    """An order of the columns, (C,), all being equally likely.

    The sets of masked cells that are met along it are then those of training (eq. 3).
    PAPER-DIFF: `last` names a column that comes last, so that it is drawn given all others.
    """
    order = torch.randperm(columns, generator=generator, device=generator.device)
    if last is None:
        return order
    return torch.cat([order[order != last], order.new_tensor([last])])


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
) -> Tensor:
    """One code per row, (P, K) -> (B,), from softmax(logits / temperature) times `allowed`.

    `which` tells for each of the B draws the row of `logits` it is from.
    The learned temperature of eq. 6 is already in the logits. Temperature 0 is the limit: the
    likeliest code that is allowed at all.
    """
    # float64 throughout: the noise of float32 quietly lowers the temperature, the privacy dial.
    logits = logits.double()
    if allowed is not None:
        allowed = allowed.to(logits.device, torch.float64)
        assert bool((allowed > 0).any()), "no code is allowed"
        # Before the softmax, so that allowed codes do not vanish beside likelier forbidden ones.
        logits = logits.masked_fill(allowed <= 0, -torch.inf)
    if temperature == 0.0:
        return logits.argmax(1)[which]
    # The largest first becomes 0, so that a tiny temperature cannot make it infinite.
    logits = logits - logits.max(1, keepdim=True).values
    weights = (logits / temperature).softmax(1)  # (P, K)
    if allowed is not None:
        weights = weights * allowed
    # Inverse of the cumulated weights, not normalised. The point stays below the total, and "right"
    # steps over codes of weight 0, so a forbidden code is never drawn.
    cumulated = weights.cumsum(1)[which]  # (B, K)
    total = cumulated[:, -1:]  # (B, 1)
    uniform = torch.rand(
        len(which), 1, generator=generator, dtype=torch.float64, device=generator.device
    )
    below = torch.nextafter(total, torch.zeros_like(total))  # u * total may round up to the total
    point = torch.minimum(uniform.to(logits.device) * total, below)
    return torch.searchsorted(cumulated, point, right=True).squeeze(1)
