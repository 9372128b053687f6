"""The cross entropy of a field with very many codes: exact, in memory that does not grow with the
batch, or estimated from some of the codes.

For `fields`. Exactly, logits are made for some rows at a time, and their gradients at once with
them, so that only one such part ever exists; the plain way keeps rows x codes numbers, twice.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tabmt.tokens import MASK

PART = 2**22  # logits at a time: 16 MB, which stay in the processor's cache


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum over rows of the cross entropy of x @ weight.T + bias; codes below 0 do not count."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, codes: Tensor, rows: int
    ) -> Tensor:
        total = x.new_zeros(())
        needed = any(ctx.needs_input_grad)
        slopes_of = [torch.zeros_like(one) for one in (x, weight, bias)] if needed else []
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            scored = (codes[part] >= 0).nonzero().squeeze(1)
            some, right = x[part][scored], codes[part][scored, None]
            logits = torch.addmm(bias, some, weight.T)  # (rows, K)
            logits -= logits.max(1, keepdim=True).values
            picked = logits.gather(1, right).squeeze(1)
            sums = logits.exp_().sum(1)
            total += (sums.log() - picked).sum()
            if needed:
                slopes = logits.div_(
                    sums[:, None]
                )  # probabilities, less 1 for those that are right
                slopes.scatter_add_(1, right, torch.full_like(right, -1, dtype=x.dtype))
                slopes_of[0][start + scored] = slopes @ weight
                slopes_of[1].addmm_(slopes.T, some)
                slopes_of[2] += slopes.sum(0)
        ctx.slopes_of = slopes_of
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        slopes_of, ctx.slopes_of = ctx.slopes_of, None  # changed in place, so good for once
        return (*(slopes.mul_(outputs[0]) for slopes in slopes_of), None, None)


class Others(NamedTuple):
    """Some codes of a field that stand for all in a loss."""

    codes: Tensor  # (S,)
    log_weight: Tensor  # (S,), log of how many codes each stands for


def sampled_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor, codes: Tensor, others: Others
) -> Tensor:
    """The same sum, but in each row the one over all codes is estimated: the right code, and the
    others, each for as many as it stands for."""
    known = codes != MASK
    x, codes = x[known], codes[known]
    logits = F.linear(x, F.embedding(others.codes, weight), bias[others.codes])
    logits = logits + others.log_weight  # (B, S)
    logits = logits.masked_fill(others.codes == codes[:, None], -torch.inf)
    right = (x * F.embedding(codes, weight)).sum(1) + bias[codes]  # (B,)
    return (torch.logaddexp(logits.logsumexp(1), right) - right).sum()
