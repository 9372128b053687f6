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
    `order` fixes the order of the columns; without it, it is drawn, all orders being equally
    likely, so that the sets of masked cells met here are those of training (eq. 3).
    """
    assert tokens.dtype == torch.int64
    columns = tokens.shape[1]
    if order is None:
        order = torch.randperm(columns, generator=generator, device=generator.device)  # (C,)
    tokens = tokens.clone()
    state = net.start(tokens)
    for column in order.tolist():
        rows = (tokens[:, column] == MASK).nonzero().squeeze(1)
        if len(rows) == 0:
            continue
        codes = draw(
            state.logits(rows, column),
            temperature=float(temperature[column]),
            allowed=None if allowed is None else allowed[column],
            generator=generator,
        )
        state.put(rows, column, codes)
        tokens[rows, column] = codes
    return tokens


def draw(
    logits: Tensor, *, temperature: float, allowed: Tensor | None, generator: torch.Generator
) -> Tensor:
    """One code per row, (B, K) -> (B,), from softmax(logits / temperature) times `allowed`.

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
        return logits.argmax(1)
    # The largest first becomes 0, so that a tiny temperature cannot make it infinite.
    logits = logits - logits.max(1, keepdim=True).values
    weights = (logits / temperature).softmax(1)  # (B, K)
    if allowed is not None:
        weights = weights * allowed
    # Inverse of the cumulated weights, not normalised. The point stays below the total, and "right"
    # steps over codes of weight 0, so a forbidden code is never drawn.
    cumulated = weights.cumsum(1)  # (B, K)
    total = cumulated[:, -1:]  # (B, 1)
    uniform = torch.rand(
        len(logits), 1, generator=generator, dtype=torch.float64, device=generator.device
    )
    below = torch.nextafter(total, torch.zeros_like(total))  # u * total may round up to the total
    point = torch.minimum(uniform.to(logits.device) * total, below)
    return torch.searchsorted(cumulated, point, right=True).squeeze(1)
