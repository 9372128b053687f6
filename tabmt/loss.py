"""The cross entropy of a field with very many codes, in memory that does not grow with the batch.

For `fields`. Logits are made for some rows at a time, and their gradients at once with them, so
that only one such part ever exists; the plain way keeps rows x codes numbers, twice.
"""

from typing import Any

import torch
from torch import Tensor

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
