"""The output layer of every column: the paper's dynamic linear layer with its learned temperature.

    z = x O^T + b        p = softmax(z / tau)        tau = sigmoid(t), learned per column (eq. 6)

O is the column's own embedding table, so input and output are tied. The cross entropy of a column
with very many codes is computed exactly in bounded memory, or estimated from some of the codes.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabmt.tokens import MASK

MOST_LOGITS = 2**22  # at a time: 16 MB, which stay in the processor's cache
WORTH_SAMPLING = 4  # the loss is estimated from codes only if there are this many times as many


class FoldedLayer(NamedTuple):
    """A plain linear layer with the same logits, for inference: x @ weight.T + bias."""

    weight: Tensor  # (K, D)
    bias: Tensor  # (K,)


class ColumnOutput(NamedTuple):
    """The output layer of one column."""

    weight: Tensor  # (K, D), the column's rows of the embedding table
    bias: Tensor  # (K,)
    temperature: Tensor  # (), tau
    sampled: "SampledCodes | None" = None  # for a loss that does not compare with all codes

    def logits(self, x: Tensor) -> Tensor:
        """(x W^T + b) / tau: (B, D) -> (B, K)."""
        # Divided before the product, which has far more numbers.
        return F.linear(x / self.temperature, self.weight, self.bias / self.temperature)

    def cross_entropy(self, x: Tensor, codes: Tensor) -> Tensor:
        """Summed nats of codes, (B, D) and (B,); MASK does not count."""
        size = len(self.bias)
        if self.sampled is None and len(x) * size <= MOST_LOGITS:
            return F.cross_entropy(self.logits(x), codes, reduction="sum", ignore_index=MASK)
        scaled, bias = x / self.temperature, self.bias / self.temperature
        if self.sampled is not None:
            return sampled_cross_entropy(scaled, self.weight, bias, codes, self.sampled)
        total: Tensor = ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            scaled, self.weight, bias, codes, max(1, MOST_LOGITS // size)
        )
        return total


class OutputLayer(nn.Module):
    """Biases and temperatures of every column; the weights are those of the embedding."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.bias = nn.Parameter(torch.zeros(sum(sizes)))  # (all,)
        self.temperature_logit = nn.Parameter(torch.ones(len(sizes)))  # (C,), the t of eq. 6
        self._by_frequency: list[Tensor | None] = [None] * len(sizes)
        self._half = 0

    def temperature(self) -> Tensor:
        """The learned temperature of each column, (C,)."""
        return torch.sigmoid(self.temperature_logit)

    def columns(
        self, table: Tensor, generator: torch.Generator | None = None
    ) -> list[ColumnOutput]:
        """The output layer of each column, given the embedding table; for training, with a
        generator."""
        # One split for all: slices would each send back a gradient as large as the whole table.
        weights, biases = (torch.split(tensor, list(self.sizes)) for tensor in (table, self.bias))
        sampled = [
            None if generator is None else self._sample_codes(codes, generator)
            for codes in self._by_frequency
        ]
        parts = zip(weights, biases, self.temperature().unbind(), sampled, strict=True)
        return [ColumnOutput(*part) for part in parts]

    def fold(self, table: Tensor) -> tuple[FoldedLayer, ...]:
        """The plain linear layer of each column that has the same logits."""
        with torch.no_grad():
            return tuple(
                FoldedLayer(column.weight / column.temperature, column.bias / column.temperature)
                for column in self.columns(table)
            )

    def start_at_frequencies(self, counts: Sequence[Tensor | np.ndarray]) -> None:
        """Set the biases so that, before training, codes are as frequent as in `counts`, (K,) each.

        PAPER-DIFF initial_bias: in the paper's pseudocode biases start at zero; then the first
        hundreds of steps go into learning the marginals.
        """
        with torch.no_grad():
            taus = self.temperature()
            biases = torch.split(self.bias, list(self.sizes))
            for bias, tau, count in zip(biases, taus, map(torch.as_tensor, counts), strict=True):
                shares = (count + 1) / (count + 1).sum()  # no code is impossible
                bias.copy_(shares.log() * tau)

    def sample_codes_in_loss(self, counts: Sequence[Tensor | np.ndarray], codes: int) -> None:
        """Estimate the loss of columns with very many codes from `codes` of them: half are the most
        frequent by `counts`, (K,) each, half are drawn in each pass. 0 turns it off."""
        self._by_frequency = [
            torch.as_tensor(count).argsort(descending=True).to(self.bias.device)
            if 0 < codes * WORTH_SAMPLING <= len(count)
            else None
            for count in counts
        ]
        self._half = codes // 2

    def _sample_codes(
        self, by_frequency: Tensor | None, generator: torch.Generator
    ) -> "SampledCodes | None":
        if by_frequency is None:
            return None
        frequent, rest = by_frequency[: self._half], by_frequency[self._half :]
        drawn = torch.randint(
            len(rest), (self._half,), generator=generator, device=generator.device
        )
        log_weight = self.bias.new_zeros(2 * self._half)
        log_weight[self._half :] = math.log(len(rest) / self._half)
        return SampledCodes(torch.cat([frequent, rest[drawn]]), log_weight)


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum over rows of the cross entropy of x @ weight.T + bias; codes below 0 do not count.

    Logits are computed for some rows at a time, and their gradients right away, so that only one
    such chunk ever exists; the plain way stores rows x codes numbers, twice.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, codes: Tensor, rows: int
    ) -> Tensor:
        total = x.new_zeros(())
        needed = any(ctx.needs_input_grad)
        gradients = [torch.zeros_like(tensor) for tensor in (x, weight, bias)] if needed else []
        for start in range(0, len(x), rows):
            chunk = slice(start, start + rows)
            scored = (codes[chunk] >= 0).nonzero().squeeze(1)
            inputs, right = x[chunk][scored], codes[chunk][scored, None]
            logits = torch.addmm(bias, inputs, weight.T)  # (rows, K)
            logits -= logits.max(1, keepdim=True).values
            picked = logits.gather(1, right).squeeze(1)
            sums = logits.exp_().sum(1)
            total += (sums.log() - picked).sum()
            if needed:
                # The gradient of the logits: probabilities, less 1 for the right code.
                slopes = logits.div_(sums[:, None])
                slopes.scatter_add_(1, right, torch.full_like(right, -1, dtype=x.dtype))
                gradients[0][start + scored] = slopes @ weight
                gradients[1].addmm_(slopes.T, inputs)
                gradients[2] += slopes.sum(0)
        ctx.gradients = gradients
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        gradients, ctx.gradients = ctx.gradients, None  # changed in place, so usable only once
        return (*(gradient.mul_(outputs[0]) for gradient in gradients), None, None)


class SampledCodes(NamedTuple):
    """Some codes of a column that represent all of them in a loss."""

    codes: Tensor  # (S,)
    log_weight: Tensor  # (S,), log of the number of codes that each represents


def sampled_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor, codes: Tensor, sampled: SampledCodes
) -> Tensor:
    """The summed cross entropy, with the sum over all codes estimated: the right code, and the
    sampled ones, each for as many codes as it represents."""
    known = codes != MASK
    x, codes = x[known], codes[known]
    logits = F.linear(x, F.embedding(sampled.codes, weight), bias[sampled.codes])
    logits = logits + sampled.log_weight  # (B, S)
    logits = logits.masked_fill(sampled.codes == codes[:, None], -torch.inf)
    right = (x * F.embedding(codes, weight)).sum(1) + bias[codes]  # (B,)
    return (torch.logaddexp(logits.logsumexp(1), right) - right).sum()
