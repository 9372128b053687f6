"""STaSy (Kim, Lee, Park, ICLR 2023): score matching with self-paced learning, as in the paper.

Numbers are scaled to -1..1 and categories one-hot; noise of a variance-exploding SDE is added, and
a network learns the score. Self-paced learning: rows with a loss below one quantile of the batch
count fully, above another not at all, in between in proportion, and both quantiles rise to 1. Rows
are drawn by the probability-flow ODE. Networks have the gated layers and the concatenated inputs of
the authors' code, but fewer of them.

Differences: the second stage, a fine-tuning on the rows of low likelihood, is left out; layers are
given the logarithm of the noise level, and their output is divided by it; the ODE is solved by
Heun's method in fixed steps; the pace and the warm-up are shares of the training, not steps.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers.budget import Budget
from benchmarks.peers.frames import Codes

PACKAGES = ("torch",)
SIGMA_MIN, SIGMA_MAX = 0.01, 10.0
WIDTHS = (128, 256, 128)
STEPS, BATCH, RATE = 30_000, 1000, 2e-3
FIRST_ALPHA, FIRST_BETA = 0.3, 0.95  # quantiles of the losses when training begins
WARM_UP, AVERAGE, MOST_GRADIENT = 0.1, 0.999, 1.0
SAMPLE_STEPS, SAMPLE_ROWS = 64, 8192


def sigma_at(t: Tensor) -> Tensor:
    """The standard deviation of the noise at time 0..1, which is that of the SDE's kernel."""
    return SIGMA_MIN * (SIGMA_MAX / SIGMA_MIN) ** t


def diffusion_at(t: Tensor) -> Tensor:
    """g(t) of dx = g(t) dw: its squared integral is the growth of the variance."""
    return sigma_at(t) * math.sqrt(2 * math.log(SIGMA_MAX / SIGMA_MIN))


def quantile_at(used: float, first: float) -> float:
    """The authors' pace: from `first` to 1, sooner at the beginning."""
    return min(1.0, first + math.log(1 + (math.e - 1) * used * (1 - first)))


def row_weights(losses: Tensor, alpha: float, beta: float) -> Tensor:
    """1 for losses up to one quantile, 0 from another on, and falling in between."""
    low, high = torch.quantile(losses, torch.tensor([alpha, beta]))
    if high <= low:
        return (losses <= low).to(losses.dtype)
    return ((high - losses) / (high - low)).clamp(0, 1)


class GatedLayer(nn.Module):
    """A linear layer whose output the noise level scales and shifts."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(columns, width)
        self.gate = nn.Linear(1, width)
        self.shift = nn.Linear(1, width, bias=False)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        output: Tensor = self.linear(x) * self.gate(level).sigmoid() + self.shift(level)
        return output


class ScoreNetwork(nn.Module):
    """Noisy rows and noise levels -> the gradient of the log density."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        width = columns
        for added in WIDTHS:
            self.layers.append(GatedLayer(width, added))
            width += added
        self.output = nn.Linear(width, columns)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        level = sigma.log()[:, None]
        for layer in self.layers:
            x = F.elu(torch.cat([layer(x, level), x], dim=1))
        output: Tensor = self.output(x) / sigma[:, None]
        return output


@dataclass(frozen=True)
class Model:
    codes: Codes
    low: np.ndarray
    high: np.ndarray
    network: ScoreNetwork
    budget: Budget


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    budget = Budget(seconds, STEPS)
    codes = Codes.of(train)
    values, categories = codes.encode(train)
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = 2 * (values - low) / np.where(high > low, high - low, 1) - 1
    rows = torch.tensor(np.concatenate([scaled, codes.one_hot(categories)], axis=1)).float()
    torch.manual_seed(seed)
    network = ScoreNetwork(rows.shape[1])
    train_network(network, rows, budget, torch.Generator().manual_seed(seed))
    return Model(codes, low, high, network, budget)


def score_losses(network: Any, rows: Tensor, t: Tensor, noise: Tensor) -> Tensor:
    """The denoising loss of each row, weighted by its variance."""
    sigma = sigma_at(t)
    score = network(rows + sigma[:, None] * noise, sigma)
    losses: Tensor = (score * sigma[:, None] + noise).square().mean(dim=1)
    return losses


def train_network(
    network: ScoreNetwork, rows: Tensor, budget: Budget, generator: torch.Generator
) -> None:
    """Train, and leave the mean of the late weights in the network."""
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    averages = [parameter.detach().clone() for parameter in network.parameters()]
    size = min(BATCH, len(rows))
    for used in budget:
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (used + 1e-3) / WARM_UP)
        chosen = torch.randint(len(rows), (size,), generator=generator)
        t = torch.rand(size, generator=generator).clamp(min=1e-5)
        noise = torch.randn(size, rows.shape[1], generator=generator)
        losses = score_losses(network, rows[chosen], t, noise)
        quantiles = [quantile_at(used, first) for first in (FIRST_ALPHA, FIRST_BETA)]
        weights = row_weights(losses.detach(), *quantiles)
        optimizer.zero_grad()
        (weights * losses).mean().backward()
        nn.utils.clip_grad_norm_(network.parameters(), MOST_GRADIENT)
        optimizer.step()
        kept = min(AVERAGE, (1 + budget.done) / (10 + budget.done))
        for average, parameter in zip(averages, network.parameters(), strict=True):
            average.lerp_(parameter.detach(), 1 - kept)
    for average, parameter in zip(averages, network.parameters(), strict=True):
        parameter.data.copy_(average)


@torch.no_grad()
def solve(network: Any, x: Tensor, steps: int = SAMPLE_STEPS) -> Tensor:
    """The probability-flow ODE dx = -sigma score dsigma, from the largest to the least noise."""
    levels = sigma_at(torch.linspace(1, 0, steps + 1))
    for now, after in itertools.pairwise(levels):
        slope = -now * network(x, now.expand(len(x)))
        ahead = x + (after - now) * slope
        slope_ahead = -after * network(ahead, after.expand(len(x)))
        x = x + (after - now) * (slope + slope_ahead) / 2
    return x


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    generator = torch.Generator().manual_seed(seed)
    numbers, sizes = len(model.codes.numbers), model.codes.sizes
    parts = []
    for start in range(0, rows, SAMPLE_ROWS):
        shape = (min(SAMPLE_ROWS, rows - start), numbers + sum(sizes))
        parts.append(solve(model.network, SIGMA_MAX * torch.randn(shape, generator=generator)))
    drawn = torch.cat(parts)
    scaled = drawn[:, :numbers].clamp(-1, 1).numpy().astype(float)
    values = model.low + (scaled + 1) / 2 * (model.high - model.low)
    blocks = drawn[:, numbers:].split(sizes, dim=1) if sizes else ()
    codes = [block.argmax(dim=1).numpy() for block in blocks]
    stacked = np.stack(codes, axis=1) if codes else np.zeros((rows, 0), np.int64)
    return model.codes.decode(values, stacked)


def about(model: Model) -> dict[str, Any]:
    settings = {"widths": WIDTHS, "batch": BATCH, "rate": RATE, "sampling steps": SAMPLE_STEPS}
    cut = ["without fine-tuning", *model.budget.cut]
    return {"settings": settings, "steps": model.budget.done, "cut": cut}
