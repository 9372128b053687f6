"""Draw codes from logits: temperature, allowed codes, and very many codes at once."""

import torch
from torch import Tensor

from tabmt.errors import UserError
from tabmt.method.column_order import MANY_CODES

BLOCK = 256  # codes whose weights are summed before one of very many is drawn
LEAST_FLOAT32 = 1e-3  # lower temperatures need float64


def draw_codes(
    logits: Tensor,
    sources: Tensor,
    *,
    temperature: float,
    allowed: Tensor | None,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """One code per row, (P, K) -> (B,), from softmax(logits / temperature) times `allowed`.

    `sources` is the row of `logits` for each of the B draws; `allowed` is (K,) or (B, K). Also
    returns the log of the probability that was allowed, (B,): 0 where all is. The learned
    temperature of eq. 6 is already in the logits. Temperature 0 is the limit: the likeliest code
    that is allowed.
    """
    check_logits(logits)
    if allowed is None and temperature > LEAST_FLOAT32 and logits.shape[1] > MANY_CODES:
        codes = _draw_from_many(logits, sources, temperature, generator)
        return codes, torch.zeros(len(sources), dtype=torch.float64, device=logits.device)
    # float64 throughout: the noise of float32 quietly lowers the temperature, the privacy dial.
    # The largest becomes 0 first, so that a tiny temperature cannot make it infinite.
    logits = logits.double()
    logits = logits - logits.max(1, keepdim=True).values
    scaled = logits / temperature if temperature > 0.0 else logits
    log_allowed = logits.new_zeros(len(sources))
    if allowed is not None:
        allowed = allowed.to(logits.device, torch.float64)
        assert bool((allowed > 0).any(-1).all()), "no code is allowed"
        everything = scaled.logsumexp(1)  # (P,)
        if allowed.dim() == 2:  # each row has its own
            scaled, everything = scaled[sources], everything[sources]
            sources = torch.arange(len(sources), device=sources.device)
        if temperature == 0.0:
            return scaled.masked_fill(allowed <= 0, -torch.inf).argmax(1)[sources], log_allowed
        # Before the softmax, so that allowed codes do not vanish beside likelier forbidden ones.
        scaled = scaled + allowed.log()
        log_allowed = (scaled.logsumexp(1) - everything)[sources]
    if temperature == 0.0:
        return scaled.argmax(1)[sources], log_allowed
    return _invert(scaled.softmax(1), sources, generator), log_allowed


def check_logits(logits: Tensor) -> None:
    """Refuse to draw from NaN or infinity, which weights of a hostile file can lead to: what would
    be drawn is no code. A single code may have minus infinity: it is never drawn."""
    if not bool(torch.isfinite(logits.amax(1)).all()):
        raise UserError(
            "The network returned NaN or infinite probabilities. Its weights are damaged; fit the "
            "model again."
        )


def _uniform(count: int, generator: torch.Generator, device: torch.device) -> Tensor:
    drawn = torch.rand(count, generator=generator, dtype=torch.float64, device=generator.device)
    return drawn.to(device)


def _invert(weights: Tensor, sources: Tensor, generator: torch.Generator) -> Tensor:
    """Draw by inverting the cumulative weights, (P, K) -> (B,).

    Those of row p run from p to p + 1, so that one search serves all draws, however many share a
    row. The point stays below p + 1, and "right" steps over codes of weight 0, so a forbidden code
    is never drawn.
    """
    cumulative = weights.cumsum(1)
    cumulative = cumulative / cumulative[:, -1:]  # (P, K), the last of each row is 1
    first = torch.arange(len(cumulative), device=weights.device, dtype=torch.float64)[:, None]
    uniform = _uniform(len(sources), generator, weights.device)
    start = sources.double()
    point = torch.minimum(start + uniform, torch.nextafter(start + 1, start))
    index = torch.searchsorted((cumulative + first).flatten(), point, right=True)
    return index - sources * weights.shape[1]


def _draw_from_many(
    logits: Tensor, sources: Tensor, temperature: float, generator: torch.Generator
) -> Tensor:
    """Draw from very many codes, all allowed: first a block of codes, then one code of it.

    Only the sums of blocks are cumulated in float64: all weights would be most of the work.
    """
    rows, codes = logits.shape
    blocks = -(-codes // BLOCK)
    scaled = logits.new_full((rows, blocks * BLOCK), -torch.inf)
    torch.sub(logits, logits.max(1, keepdim=True).values, out=scaled[:, :codes])
    weights = scaled.div_(temperature).exp_().view(rows, blocks, BLOCK)
    block_ends = weights.sum(2).double().cumsum(1)  # (P, blocks)
    point = _uniform(len(sources), generator, logits.device) * block_ends[sources, -1]  # (B,)
    block = torch.searchsorted(block_ends[sources], point[:, None], right=True)
    block = block.clamp(max=blocks - 1)  # (B, 1)
    before = torch.where(block > 0, block_ends[sources].gather(1, (block - 1).clamp(min=0)), 0.0)
    within = weights[sources, block.squeeze(1)].double()  # (B, BLOCK)
    cumulative = before + within.cumsum(1)
    index = torch.searchsorted(cumulative, point[:, None], right=True)
    # Summed in another order, the weights may end just below the point: then the last code counts.
    last = BLOCK - 1 - (within > 0).flip(1).to(torch.int8).argmax(1, keepdim=True)
    return (block * BLOCK + torch.minimum(index, last)).squeeze(1)
