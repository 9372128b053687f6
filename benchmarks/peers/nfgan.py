"""NFGAN (Ring et al., Computers & Security 2019) with IP2Vec embeddings, written from the papers.

Two stages. IP2Vec learns a vector for each value of each categorical field, as word2vec does for
words: a value predicts the values that occur with it in a flow, among values drawn as noise. Then a
Wasserstein GAN with gradient penalty and two learning rates generates the vectors of all fields of
a flow, and each is replaced by the value of that field with the nearest vector. Numbers are scaled
to 0..1 and generated as they are.

IP2Vec lists pairs of addresses, ports and protocols as contexts, and its extension the packets,
bytes and durations; here every field is a context of every other, so that tables with other fields
work. Sizes are ours.
"""

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers.budget import Budget
from benchmarks.peers.frames import Codes

PACKAGES = ("torch",)
WIDTH = 20  # of a value's vector
NEGATIVES = 5  # noise values for each pair
EMBED_SHARE = 0.3  # of the time
EMBED_STEPS, EMBED_BATCH, EMBED_RATE = 20_000, 4096, 5e-3
STEPS, BATCH = 50_000, 256
NOISE, HIDDEN = 64, (256, 256)
GENERATOR_RATE, CRITIC_RATE = 1e-4, 3e-4  # two time scales: one step of each
PENALTY = 10.0
SAMPLE_ROWS = 4096


# --- IP2Vec ------------------------------------------------------------------------------------


class Vectors(nn.Module):
    """A vector for each value as input and one as context; values of all fields in one list."""

    def __init__(self, sizes: list[int], counts: np.ndarray) -> None:
        super().__init__()
        self.sizes = sizes
        self.starts = np.cumsum([0, *sizes])
        self.input = nn.Embedding(sum(sizes), WIDTH)
        self.context = nn.Embedding(sum(sizes), WIDTH)
        nn.init.uniform_(self.input.weight, -0.5 / WIDTH, 0.5 / WIDTH)
        nn.init.zeros_(self.context.weight)
        frequent = torch.tensor(counts, dtype=torch.float32) ** 0.75
        self.register_buffer("noise", frequent / frequent.sum())

    def loss(self, inputs: Tensor, contexts: Tensor, noise: Tensor) -> Tensor:
        """Skip-gram with noise values: (B,), (B,), (B, NEGATIVES) -> the mean loss of a pair."""
        vectors = self.input(inputs)
        found = (vectors * self.context(contexts)).sum(dim=1)
        other = (vectors[:, None] * self.context(noise)).sum(dim=2)
        return -(F.logsigmoid(found) + F.logsigmoid(-other).sum(dim=1)).mean()

    def tables(self) -> list[Tensor]:
        """The vectors of each field's values, (values, WIDTH)."""
        weight = self.input.weight.detach()
        return [
            weight[start : start + size]
            for start, size in zip(self.starts[:-1], self.sizes, strict=True)
        ]


def learn_vectors(
    codes: np.ndarray, sizes: list[int], budget: Budget, generator: torch.Generator
) -> Vectors:
    """IP2Vec of flows: (rows, fields) of codes within each field."""
    starts = np.cumsum([0, *sizes[:-1]])
    words = codes + starts
    vectors = Vectors(sizes, np.bincount(words.ravel(), minlength=sum(sizes)))
    pairs = torch.tensor(list(permutations(range(codes.shape[1]), 2)))  # (pairs, 2) of fields
    flows = torch.tensor(words)
    optimizer = torch.optim.Adam(vectors.parameters(), lr=EMBED_RATE)
    for used in budget:
        optimizer.param_groups[0]["lr"] = EMBED_RATE * (1 - used)
        rows = torch.randint(len(flows), (EMBED_BATCH,), generator=generator)
        fields = pairs[torch.randint(len(pairs), (EMBED_BATCH,), generator=generator)]
        noise = torch.multinomial(
            vectors.noise, EMBED_BATCH * NEGATIVES, replacement=True, generator=generator
        )
        loss = vectors.loss(
            flows[rows, fields[:, 0]], flows[rows, fields[:, 1]], noise.view(-1, NEGATIVES)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return vectors


def nearest(points: Tensor, table: Tensor) -> Tensor:
    """The index of the nearest vector of a table for each point."""
    distances = table.square().sum(dim=1) - 2 * points @ table.T  # without what is equal for all
    return distances.argmin(dim=1)


# --- the GAN -----------------------------------------------------------------------------------


def network(columns: int, outputs: int) -> nn.Sequential:
    layers = list[nn.Module]()
    for width in HIDDEN:
        layers += [nn.Linear(columns, width), nn.LeakyReLU(0.2)]
        columns = width
    return nn.Sequential(*layers, nn.Linear(columns, outputs))


def penalty(critic: nn.Module, real: Tensor, fake: Tensor, generator: torch.Generator) -> Tensor:
    """How far the critic's gradient is from length one between real and generated rows."""
    share = torch.rand(len(real), 1, generator=generator)
    points = (share * real + (1 - share) * fake).requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(points).sum(), points, create_graph=True)
    return PENALTY * (gradient.norm(dim=1) - 1).square().mean()


def train_gan(rows: Tensor, budget: Budget, generator: torch.Generator) -> nn.Sequential:
    """A network that makes rows like these from noise."""
    maker, critic = network(NOISE, rows.shape[1]), network(rows.shape[1], 1)
    optimizers = [
        torch.optim.Adam(part.parameters(), lr=rate, betas=(0.5, 0.9))
        for part, rate in ((maker, GENERATOR_RATE), (critic, CRITIC_RATE))
    ]
    size = min(BATCH, len(rows))
    for _ in budget:
        real = rows[torch.randint(len(rows), (size,), generator=generator)]
        noise = torch.randn(size, NOISE, generator=generator)
        fake = maker(noise).detach()
        loss = critic(fake).mean() - critic(real).mean() + penalty(critic, real, fake, generator)
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        loss = -critic(maker(torch.randn(size, NOISE, generator=generator))).mean()
        optimizers[0].zero_grad()
        loss.backward()
        optimizers[0].step()
    return maker


@dataclass(frozen=True)
class Model:
    codes: Codes
    low: np.ndarray
    high: np.ndarray
    tables: list[Tensor]  # vectors of the values of each field, as the GAN has them
    maker: nn.Sequential
    budgets: tuple[Budget, Budget]


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    whole = Budget(seconds, STEPS)
    embedding = Budget(EMBED_SHARE * seconds, EMBED_STEPS)
    codes = Codes.of(train)
    values, categories = codes.encode(train)
    low, high = values.min(axis=0), values.max(axis=0)
    parts = [torch.tensor((values - low) / np.where(high > low, high - low, 1))]
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    tables: list[Tensor] = []
    if len(codes.sizes) > 1:
        vectors = learn_vectors(categories, codes.sizes, embedding, generator)
        tables = [scaled(table) for table in vectors.tables()]
    else:  # nothing occurs with a single field
        tables = [torch.eye(size) for size in codes.sizes]
    parts += [table[categories[:, field]] for field, table in enumerate(tables)]
    maker = train_gan(torch.cat(parts, dim=1).float(), whole, generator)
    return Model(codes, low, high, tables, maker, (embedding, whole))


def scaled(table: Tensor) -> Tensor:
    """Vectors whose components have a standard deviation of one over a field's values."""
    centred = table - table.mean(dim=0)
    return centred / centred.square().mean().sqrt().clamp(min=1e-6)


@torch.no_grad()
def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    generator = torch.Generator().manual_seed(seed)
    numbers = len(model.codes.numbers)
    widths = [numbers, *(table.shape[1] for table in model.tables)]
    values, codes = [], []
    for start in range(0, rows, SAMPLE_ROWS):
        noise = torch.randn(min(SAMPLE_ROWS, rows - start), NOISE, generator=generator)
        first, *blocks = model.maker(noise).split(widths, dim=1)
        values.append(first)
        found = [nearest(block, table) for block, table in zip(blocks, model.tables, strict=True)]
        codes.append(torch.stack(found, dim=1) if found else torch.zeros(len(noise), 0))
    share = torch.cat(values).clamp(0, 1).numpy().astype(float)
    return model.codes.decode(
        model.low + share * (model.high - model.low), torch.cat(codes).numpy().astype(np.int64)
    )


def about(model: Model) -> dict[str, Any]:
    settings = {"width": WIDTH, "hidden": HIDDEN, "batch": BATCH, "noise": NOISE}
    embedding, whole = model.budgets
    cut = [f"IP2Vec: {text}" for text in embedding.cut] + [f"GAN: {text}" for text in whole.cut]
    return {"settings": settings, "steps": whole.done, "cut": cut}
