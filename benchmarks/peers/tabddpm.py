"""TabDDPM (Kotelnikov et al., ICML 2023), written from the paper and its published settings.

Gaussian diffusion of the numbers, which a quantile transform makes normal, and multinomial
diffusion of the categories, of which each has its own noise; one MLP predicts the noise of the
numbers and the categories themselves. A class to predict is the condition and is drawn from its
training shares; a number to predict is one of the numbers. As in the authors' code: cosine
schedule, AdamW with a rate that falls linearly to zero, the bound of each step weighted by the
number of steps, and the larger of the two variances in sampling. Settings are of its search space,
chosen for minutes on one thread.

Differences: the network reads one-hot categories (their logarithms in the authors' code), and
predicted numbers are clipped to the range of the quantile transform, without which a network of a
few minutes' training often runs off to the ends of the columns.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.preprocessing import QuantileTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers.budget import Budget
from benchmarks.peers.frames import Codes

PACKAGES = ("torch", "scikit-learn")
TIMESTEPS = 100  # of 100 or 1000
STEPS = 30_000
BATCH = 1024
LAYERS = (256, 256, 256, 256)
TIME_WIDTH = 128
RATE, WEIGHT_DECAY = 2e-3, 1e-4
NUMBER_RANGE = 5.2  # of scikit-learn's quantile transform to a normal distribution
SAMPLE_ROWS = 8192


def cosine_betas(timesteps: int) -> np.ndarray:
    """The share of noise that each step adds."""
    ends = np.arange(timesteps + 1) / timesteps
    kept = np.cos((ends + 0.008) / 1.008 * np.pi / 2) ** 2
    return np.minimum(1 - kept[1:] / kept[:-1], 0.999)


class Diffusion:
    """The forward process and its posteriors; `t` counts from 0, the first step of noise."""

    def __init__(self, sizes: list[int], timesteps: int = TIMESTEPS) -> None:
        self.sizes, self.timesteps = sizes, timesteps
        betas = cosine_betas(timesteps)
        kept = np.cumprod(1 - betas)
        before = np.append(1.0, kept[:-1])
        variance = betas * (1 - before) / (1 - kept)
        self.alpha = torch.tensor(1 - betas, dtype=torch.float32)
        self.kept = torch.tensor(kept, dtype=torch.float32)
        self.kept_before = torch.tensor(before, dtype=torch.float32)
        # Weights of the numbers themselves and of the noisy ones in the mean of the posterior.
        self.weight_start = torch.tensor(betas * np.sqrt(before) / (1 - kept), dtype=torch.float32)
        self.weight_now = torch.tensor(
            (1 - before) * np.sqrt(1 - betas) / (1 - kept), dtype=torch.float32
        )
        self.posterior_variance = torch.tensor(variance, dtype=torch.float32)
        self.model_variance = torch.tensor(np.append(variance[1], betas[1:]), dtype=torch.float32)
        widths = [torch.full((size,), 1 / size) for size in sizes]
        self.uniform = torch.cat(widths) if widths else torch.zeros(0)  # (S,)

    # --- numbers ---------------------------------------------------------------------------

    def noisy_numbers(self, start: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        kept = self.kept[t, None]
        return kept.sqrt() * start + (1 - kept).sqrt() * noise

    def start_of(self, noisy: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        """The numbers themselves from their predicted noise."""
        kept = self.kept[t, None]
        start = (noisy - (1 - kept).sqrt() * noise) / kept.sqrt()
        return start.clamp(-NUMBER_RANGE, NUMBER_RANGE)

    def number_posterior_mean(self, start: Tensor, noisy: Tensor, t: Tensor) -> Tensor:
        """The mean of the numbers one step before."""
        return self.weight_start[t, None] * start + self.weight_now[t, None] * noisy

    # --- categories: (rows, S), one block of probabilities for each column ---------------------

    def category_noise(self, start: Tensor, t: Tensor) -> Tensor:
        """Probabilities after step t of rows that start as these probabilities."""
        kept = self.kept[t, None]
        return kept * start + (1 - kept) * self.uniform

    def category_posterior(self, start: Tensor, noisy: Tensor, t: Tensor) -> Tensor:
        """Probabilities one step before, given those of the start and the noisy categories."""
        alpha, before = self.alpha[t, None], self.kept_before[t, None]
        likelihood = alpha * noisy + (1 - alpha) * self.uniform
        prior = before * start + (1 - before) * self.uniform
        return self._normalised(likelihood * prior)

    def _normalised(self, weights: Tensor) -> Tensor:
        blocks = [
            block / block.sum(dim=1, keepdim=True).clamp(min=1e-30)
            for block in weights.split(self.sizes, dim=1)
        ]
        return torch.cat(blocks, dim=1)

    def probabilities(self, logits: Tensor) -> Tensor:
        blocks = [block.softmax(dim=1) for block in logits.split(self.sizes, dim=1)]
        return torch.cat(blocks, dim=1) if blocks else logits

    def draw(self, probabilities: Tensor, generator: torch.Generator) -> Tensor:
        """One-hot categories."""
        blocks = []
        for block in probabilities.split(self.sizes, dim=1):
            codes = torch.multinomial(block + 1e-30, 1, generator=generator)[:, 0]
            blocks.append(F.one_hot(codes, block.shape[1]).to(block.dtype))
        return torch.cat(blocks, dim=1) if blocks else probabilities

    def category_loss(self, start: Tensor, noisy: Tensor, predicted: Tensor, t: Tensor) -> Tensor:
        """KL divergence of the posteriors of each row, times the number of steps, per column.

        At the first step the true posterior is the row itself, so this is its likelihood.
        """
        true = self.category_posterior(start, noisy, t)
        ours = self.category_posterior(predicted, noisy, t)
        terms = true * (true.clamp(min=1e-30).log() - ours.clamp(min=1e-30).log())
        return self.timesteps * terms.sum(dim=1) / len(self.sizes)


def time_features(t: Tensor, width: int) -> Tensor:
    """Sines and cosines of the step."""
    half = width // 2
    frequencies = torch.exp(-math.log(10_000) * torch.arange(half) / half)
    angles = t[:, None].float() * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1)


class Denoiser(nn.Module):
    """Noisy numbers and categories -> the noise of the numbers, logits of the categories."""

    def __init__(self, columns: int, classes: int) -> None:
        super().__init__()
        self.project = nn.Linear(columns, TIME_WIDTH)
        self.time = nn.Sequential(
            nn.Linear(TIME_WIDTH, TIME_WIDTH), nn.SiLU(), nn.Linear(TIME_WIDTH, TIME_WIDTH)
        )
        self.label = nn.Embedding(classes, TIME_WIDTH) if classes else None
        layers: list[nn.Module] = []
        width = TIME_WIDTH
        for next_width in LAYERS:
            layers += [nn.Linear(width, next_width), nn.ReLU()]
            width = next_width
        self.layers = nn.Sequential(*layers, nn.Linear(width, columns))

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        condition = self.time(time_features(t, TIME_WIDTH))
        if self.label is not None:
            condition = condition + F.silu(self.label(label))
        output: Tensor = self.layers(self.project(x) + condition)
        return output


@dataclass(frozen=True)
class Model:
    codes: Codes
    transform: QuantileTransformer | None
    network: Denoiser
    diffusion: Diffusion
    label: int | None  # the position of the condition among the categories
    label_shares: np.ndarray
    budget: Budget


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    budget = Budget(seconds, STEPS)
    codes = Codes.of(train)
    values, categories = codes.encode(train)
    transform = None
    if codes.numbers:
        transform = QuantileTransformer(
            output_distribution="normal", n_quantiles=max(min(len(train) // 30, 1000), 10),
            subsample=10**9, random_state=seed,
        )  # fmt: skip
        values = transform.fit_transform(values)
    label = codes.categories.index(target) if target in codes.categories else None
    labels = np.zeros(len(train), np.int64) if label is None else categories[:, label]
    sizes = [size for number, size in enumerate(codes.sizes) if number != label]
    one_hot = codes.one_hot(categories)
    if label is not None:
        start = sum(codes.sizes[:label])
        one_hot = np.delete(one_hot, np.s_[start : start + codes.sizes[label]], axis=1)
    classes = 0 if label is None else codes.sizes[label]
    torch.manual_seed(seed)
    network = Denoiser(values.shape[1] + sum(sizes), classes)
    diffusion = Diffusion(sizes)
    rows = [torch.tensor(x, dtype=torch.float32) for x in (values, one_hot)]
    train_network(network, diffusion, rows[0], rows[1], torch.tensor(labels), budget, seed)
    shares = np.bincount(labels, minlength=max(classes, 1)) / len(labels)
    return Model(codes, transform, network, diffusion, label, shares, budget)


def train_network(
    network: Denoiser,
    diffusion: Diffusion,
    numbers: Tensor,
    categories: Tensor,
    labels: Tensor,
    budget: Budget,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
    size = min(BATCH, len(labels))
    for used in budget:
        optimizer.param_groups[0]["lr"] = RATE * (1 - used)
        rows = torch.randint(len(labels), (size,), generator=generator)
        t = torch.randint(diffusion.timesteps, (size,), generator=generator)
        noise = torch.randn(size, numbers.shape[1], generator=generator)
        noisy = diffusion.noisy_numbers(numbers[rows], t, noise)
        start = categories[rows]
        drawn = diffusion.draw(diffusion.category_noise(start, t), generator)
        output = network(torch.cat([noisy, drawn], dim=1), t, labels[rows])
        ours, logits = output.split([noisy.shape[1], start.shape[1]], dim=1)
        loss = torch.zeros(())
        if noisy.shape[1]:
            loss = loss + F.mse_loss(ours, noise)
        if start.shape[1]:
            predicted = diffusion.probabilities(logits)
            loss = loss + diffusion.category_loss(start, drawn, predicted, t).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def denoise(model: Model, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers and one-hot categories from pure noise."""
    diffusion, rows = model.diffusion, len(labels)
    numbers = torch.randn(rows, len(model.codes.numbers), generator=generator)
    categories = diffusion.draw(diffusion.uniform.expand(rows, -1), generator)
    for step in reversed(range(diffusion.timesteps)):
        t = torch.full((rows,), step)
        output = model.network(torch.cat([numbers, categories], dim=1), t, labels)
        noise, logits = output.split([numbers.shape[1], categories.shape[1]], dim=1)
        start = diffusion.start_of(numbers, t, noise)
        numbers = diffusion.number_posterior_mean(start, numbers, t)
        if step:
            noise = torch.randn(numbers.shape, generator=generator)
            numbers = numbers + diffusion.model_variance[step].sqrt() * noise
        if categories.shape[1]:
            predicted = diffusion.probabilities(logits)
            posterior = diffusion.category_posterior(predicted, categories, t)
            categories = diffusion.draw(posterior, generator)
    return numbers, categories


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(model.label_shares), size=rows, p=model.label_shares)
    numbers, categories = [], []
    for start in range(0, rows, SAMPLE_ROWS):
        drawn = denoise(model, torch.tensor(labels[start : start + SAMPLE_ROWS]), generator)
        numbers.append(drawn[0])
        categories.append(drawn[1])
    values = torch.cat(numbers).numpy().astype(float)
    if model.transform is not None:
        values = model.transform.inverse_transform(values)
    blocks = torch.cat(categories).split(model.diffusion.sizes, dim=1)
    codes = [block.argmax(dim=1).numpy() for block in blocks if block.shape[1]]
    if model.label is not None:
        codes.insert(model.label, labels)
    shape = (rows, 0)
    return model.codes.decode(values, np.stack(codes, axis=1) if codes else np.zeros(shape, int))


def about(model: Model) -> dict[str, Any]:
    settings = {"timesteps": TIMESTEPS, "layers": LAYERS, "batch": BATCH, "rate": RATE}
    return {"settings": settings, "steps": model.budget.done, "cut": model.budget.cut}
