"""CTABGAN+ (Zhao et al., 2022), written from the paper and its published settings.

A conditional GAN on rows that are laid out as square images. A number is a mode of a Gaussian
mixture and its position within it (mode-specific normalisation); a value that a third of the rows
have is a mode of its own ("mixed" columns). The condition names one category or mode, drawn by the
logarithm of its frequency in training and by its frequency in sampling. The critic has a gradient
penalty between real and generated rows on the sphere, and the generator learns in addition from the
condition, from the means and deviations of the critic's features, and from a network that predicts
the target. A number to predict is scaled to -1..1, without modes.

Differences: which columns are mixed is found, not named by the user; no column is scaled by a
logarithm; the penalty is of the whole row's gradient, as in the paper, and not of each pixel's. The
convolutions have 16 channels, the least of TabDDPM's search space, because 64 take a second and
more for a step on one thread.
"""

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.mixture import BayesianGaussianMixture
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers.budget import Budget
from benchmarks.peers.frames import Codes

PACKAGES = ("torch", "scikit-learn")
MODES, LEAST_WEIGHT = 10, 0.005
MIXED_SHARE, MIXED_VALUES = 1 / 3, 50  # of rows with one value, of the distinct values at least
MIXTURE_ROWS = 10_000
STEPS, BATCH = 10_000, 500
NOISE, CHANNELS, CLASSIFIER = 100, 16, (256, 256, 256, 256)
SIDES = (4, 8, 16, 24, 32, 64)
OPTIMIZER: dict[str, Any] = {"lr": 2e-4, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 1e-5}
PENALTY, TEMPERATURE = 10.0, 0.2


# --- rows as vectors ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Modes:
    """One number column: values that are modes of their own, then modes of the mixture."""

    values: np.ndarray
    means: np.ndarray
    deviations: np.ndarray
    mixture: BayesianGaussianMixture | None
    used: np.ndarray  # components of the mixture

    @classmethod
    def fit(cls, column: np.ndarray, seed: int) -> "Modes":
        distinct, counts = np.unique(column, return_counts=True)
        is_mixed = counts.max() >= MIXED_SHARE * len(column) and len(distinct) >= MIXED_VALUES
        values = distinct[[counts.argmax()]] if is_mixed else distinct[:0]
        rest = column[~np.isin(column, values)]
        some = np.random.default_rng(seed).permutation(rest)[:MIXTURE_ROWS, None]
        mixture = BayesianGaussianMixture(
            n_components=min(MODES, len(np.unique(some))), weight_concentration_prior=0.001,
            weight_concentration_prior_type="dirichlet_process", random_state=seed,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it need not converge
            mixture.fit(some)
        occurring = np.isin(np.arange(len(mixture.weights_)), mixture.predict(some))
        used = np.flatnonzero((mixture.weights_ > LEAST_WEIGHT) & occurring)
        deviations = np.sqrt(mixture.covariances_[used, 0, 0])
        return cls(values, mixture.means_[used, 0], deviations, mixture, used)

    @property
    def size(self) -> int:
        return len(self.values) + len(self.means)

    def encode(self, column: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Positions in -1..1 and the modes, drawn by their probability."""
        assert self.mixture is not None
        shares = self.mixture.predict_proba(column[:, None])[:, self.used] + 1e-6
        below = shares.cumsum(axis=1) / shares.sum(axis=1, keepdims=True)
        mode = (rng.random((len(column), 1)) > below).sum(axis=1)
        mode = np.minimum(mode, len(self.means) - 1)
        position = (column - self.means[mode]) / (4 * self.deviations[mode])
        position, mode = np.clip(position, -0.99, 0.99), mode + len(self.values)
        for number, value in enumerate(self.values):
            mode[column == value], position[column == value] = number, 0.0
        return position, mode

    def decode(self, position: np.ndarray, mode: np.ndarray) -> np.ndarray:
        own = len(self.values)
        within = np.maximum(mode - own, 0)
        column = np.clip(position, -1, 1) * 4 * self.deviations[within] + self.means[within]
        for number, value in enumerate(self.values):
            column = np.where(mode == number, value, column)
        return column


@dataclass(frozen=True)
class Layout:
    """Blocks of a row's vector: a position ("tanh", 1), or a one-hot choice ("softmax", size)."""

    codes: Codes
    modes: list[Modes | None]  # of each number; None: scaled to -1..1
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def fit(cls, codes: Codes, values: np.ndarray, target: str | None, seed: int) -> "Layout":
        modes = [
            None if name == target else Modes.fit(values[:, number], seed)
            for number, name in enumerate(codes.numbers)
        ]
        return cls(codes, modes, values.min(axis=0), values.max(axis=0))

    @property
    def blocks(self) -> list[tuple[str, int]]:
        blocks = []
        for modes in self.modes:
            blocks.append(("tanh", 1))
            if modes is not None:
                blocks.append(("softmax", modes.size))
        return blocks + [("softmax", size) for size in self.codes.sizes]

    @property
    def width(self) -> int:
        return sum(size for _, size in self.blocks)

    @property
    def choices(self) -> list[slice]:
        """Where the one-hot blocks are."""
        ends = np.cumsum([size for _, size in self.blocks])
        return [
            slice(int(end) - size, int(end))
            for (kind, size), end in zip(self.blocks, ends, strict=True)
            if kind == "softmax"
        ]

    def target_block(self, target: str | None) -> slice | None:
        """Where the column to predict is."""
        if target in self.codes.categories:
            last = self.choices[-len(self.codes.sizes) :]
            return last[self.codes.categories.index(target)]
        if target in self.codes.numbers:
            before = self.modes[: self.codes.numbers.index(target)]
            start = sum(1 + (0 if modes is None else modes.size) for modes in before)
            return slice(start, start + 1)
        return None

    def encode(self, values: np.ndarray, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        parts = []
        for number, modes in enumerate(self.modes):
            column = values[:, number]
            if modes is None:
                width = max(self.high[number] - self.low[number], 1e-12)
                parts.append(2 * (column - self.low[number])[:, None] / width - 1)
                continue
            position, mode = modes.encode(column, rng)
            parts += [position[:, None], np.eye(modes.size)[mode]]
        return np.concatenate([*parts, self.codes.one_hot(codes)], axis=1)

    def decode(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, start = np.zeros((len(rows), len(self.modes))), 0
        for number, modes in enumerate(self.modes):
            position, start = rows[:, start], start + 1
            if modes is None:
                share = (np.clip(position, -1, 1) + 1) / 2
                values[:, number] = self.low[number] + share * (
                    self.high[number] - self.low[number]
                )
                continue
            mode = rows[:, start : start + modes.size].argmax(axis=1)
            values[:, number] = modes.decode(position, mode)
            start += modes.size
        codes = np.zeros((len(rows), len(self.codes.sizes)), np.int64)
        for number, size in enumerate(self.codes.sizes):
            codes[:, number] = rows[:, start : start + size].argmax(axis=1)
            start += size
        return values, codes


# --- conditions --------------------------------------------------------------------------------


class Conditions:
    """Which choice a row is asked to have, and training rows that have it."""

    def __init__(self, rows: np.ndarray, choices: list[slice]) -> None:
        self.choices = choices
        self.sizes = [choice.stop - choice.start for choice in choices]
        self.width = sum(self.sizes)
        self.starts = np.cumsum([0, *self.sizes[:-1]])
        counts = [rows[:, choice].sum(axis=0) for choice in choices]
        self.shares = [count / count.sum() for count in counts]
        logs = [np.log(count + 1) for count in counts]
        self.log_shares = [log / log.sum() for log in logs]
        self.members = [
            [np.flatnonzero(rows[:, choice][:, option]) for option in range(size)]
            for choice, size in zip(choices, self.sizes, strict=True)
        ]

    def draw(
        self, count: int, rng: np.random.Generator, *, by_log: bool
    ) -> tuple[Tensor, np.ndarray, np.ndarray]:
        """The condition vectors, and the choice and the option that each names."""
        choice = rng.integers(len(self.choices), size=count)
        option = np.zeros(count, np.int64)
        for number, shares in enumerate(self.log_shares if by_log else self.shares):
            here = np.flatnonzero(choice == number)
            option[here] = rng.choice(len(shares), size=len(here), p=shares)
        vectors = np.zeros((count, self.width), np.float32)
        vectors[np.arange(count), self.starts[choice] + option] = 1
        return torch.tensor(vectors), choice, option

    def rows_with(
        self, choice: np.ndarray, option: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """A training row for each condition; any row where none has it."""
        chosen = np.zeros(len(choice), np.int64)
        every = sum(len(members) for members in self.members[0])
        for row, (which, value) in enumerate(zip(choice, option, strict=True)):
            members = self.members[which][value]
            chosen[row] = rng.choice(members) if len(members) else rng.integers(every)
        return chosen

    def loss(self, logits: Tensor, choice: np.ndarray, option: np.ndarray) -> Tensor:
        """Cross-entropy of the named options, mean over the rows."""
        total = torch.zeros(())
        for number, where in enumerate(self.choices):
            here = np.flatnonzero(choice == number)
            if len(here):
                wanted = torch.tensor(option[here])
                found = logits[torch.tensor(here)][:, where]
                total = total + F.cross_entropy(found, wanted, reduction="sum")
        return total / len(choice)


# --- networks ----------------------------------------------------------------------------------


def side_for(width: int) -> int:
    """The side of the smallest image that holds a row."""
    for side in SIDES:
        if side * side >= width:
            return side
    raise ValueError(f"{width} values do not fit into an image of {SIDES[-1]} x {SIDES[-1]}")


def as_image(rows: Tensor, side: int) -> Tensor:
    return F.pad(rows, (0, side * side - rows.shape[1])).view(-1, 1, side, side)


def channel_plan(side: int) -> list[tuple[int, int]]:
    """(channels, side) of each layer, from the image on."""
    plan = [(1, side), (CHANNELS, side // 2)]
    while plan[-1][1] > 3 and len(plan) < 4:
        plan.append((plan[-1][0] * 2, plan[-1][1] // 2))
    return plan


class Critic(nn.Module):
    """How real an image is, and its features."""

    def __init__(self, side: int) -> None:
        super().__init__()
        plan, layers = channel_plan(side), list[nn.Module]()
        for (channels, _), (next_channels, size) in pairwise(plan):
            layers += [
                nn.Conv2d(channels, next_channels, 4, 2, 1, bias=False),
                nn.LayerNorm([next_channels, size, size]),
                nn.LeakyReLU(0.2),
            ]
        self.features = nn.Sequential(*layers)
        self.output = nn.Conv2d(plan[-1][0], 1, plan[-1][1])

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(images)
        return self.output(features).relu().flatten(), features.flatten(1)


class Generator(nn.Module):
    """Noise with a condition -> an image."""

    def __init__(self, inputs: int, side: int) -> None:
        super().__init__()
        plan = channel_plan(side)[::-1]
        layers: list[nn.Module] = [nn.ConvTranspose2d(inputs, plan[0][0], plan[0][1], bias=False)]
        for (channels, size), (next_channels, _) in pairwise(plan):
            layers += [
                nn.LayerNorm([channels, size, size]),
                nn.ReLU(),
                nn.ConvTranspose2d(channels, next_channels, 4, 2, 1),
            ]
        self.layers = nn.Sequential(*layers)

    def forward(self, noise: Tensor) -> Tensor:
        images: Tensor = self.layers(noise[:, :, None, None])
        return images.flatten(1)


class Predictor(nn.Module):
    """The target from the other columns."""

    def __init__(self, width: int, target: slice) -> None:
        super().__init__()
        self.target = target
        self.size = target.stop - target.start
        layers, columns = list[nn.Module](), width - self.size
        for hidden in CLASSIFIER:
            layers += [nn.Linear(columns, hidden), nn.LeakyReLU(0.2), nn.Dropout(0.5)]
            columns = hidden
        self.layers = nn.Sequential(*layers, nn.Linear(columns, self.size))

    def loss(self, rows: Tensor) -> Tensor:
        wanted = rows[:, self.target]
        others = torch.cat([rows[:, : self.target.start], rows[:, self.target.stop :]], dim=1)
        found = self.layers(others)
        if self.size == 1:
            return F.smooth_l1_loss(found, wanted)
        return F.cross_entropy(found, wanted.argmax(dim=1))


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)


def spherical(share: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Points between two vectors on the arc that joins them."""
    cosine = (F.normalize(first, dim=1) * F.normalize(second, dim=1)).sum(dim=1, keepdim=True)
    angle = cosine.clamp(-1 + 1e-6, 1 - 1e-6).acos()
    weights = [((1 - share) * angle).sin(), (share * angle).sin()]
    return (weights[0] * first + weights[1] * second) / angle.sin()


def penalty(critic: Critic, points: Tensor, side: int) -> Tensor:
    points = points.detach().requires_grad_(True)
    scores, _ = critic(as_image(points, side))
    (gradient,) = torch.autograd.grad(scores.sum(), points, create_graph=True)
    return PENALTY * (gradient.norm(dim=1) - 1).square().mean()


class Game:
    """The networks, and one step of their training."""

    def __init__(self, layout: Layout, rows: np.ndarray, target: str | None, seed: int) -> None:
        torch.manual_seed(seed)
        self.layout, self.rng = layout, np.random.default_rng(seed)
        self.rows = torch.tensor(rows, dtype=torch.float32)
        self.conditions = Conditions(rows, layout.choices)
        self.generator = Generator(NOISE + self.conditions.width, side_for(layout.width))
        self.side = side_for(layout.width + self.conditions.width)
        self.critic = Critic(self.side)
        block = layout.target_block(target)
        self.predictor = None if block is None else Predictor(layout.width, block)
        networks = [self.generator, self.critic, self.predictor]
        self.optimizers = [
            None if network is None else torch.optim.Adam(network.parameters(), **OPTIMIZER)
            for network in networks
        ]
        self.generator.apply(initialise)
        self.critic.apply(initialise)

    def generate(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        """The generator's output, and the rows that it stands for."""
        noise = torch.randn(len(condition), NOISE)
        output = self.generator(torch.cat([noise, condition], dim=1))[:, : self.layout.width]
        parts = []
        for (kind, _), block in zip(
            self.layout.blocks, output.split([size for _, size in self.layout.blocks], 1),
            strict=True,
        ):  # fmt: skip
            parts.append(
                block.tanh() if kind == "tanh" else F.gumbel_softmax(block, tau=TEMPERATURE)
            )
        return output, torch.cat(parts, dim=1)

    def step(self, size: int) -> None:
        real, features = self._train_critic(size)
        self._train_generator(size, features)
        if self.predictor is not None:
            self._train_predictor(size, real)

    def _train_critic(self, size: int) -> tuple[Tensor, Tensor]:
        condition, choice, option = self.conditions.draw(size, self.rng, by_log=True)
        order = self.rng.permutation(size)
        real = self.rows[self.conditions.rows_with(choice[order], option[order], self.rng)]
        _, fake = self.generate(condition)
        real_pair = torch.cat([real, condition[order]], dim=1)
        fake_pair = torch.cat([fake.detach(), condition], dim=1)
        real_scores, _ = self.critic(as_image(real_pair, self.side))
        fake_scores, _ = self.critic(as_image(fake_pair, self.side))
        between = spherical(torch.rand(size, 1), real_pair, fake_pair)
        loss = fake_scores.mean() - real_scores.mean() + penalty(self.critic, between, self.side)
        self._update(1, loss)
        with torch.no_grad():
            _, features = self.critic(as_image(real_pair, self.side))
        return real, features

    def _train_generator(self, size: int, real_features: Tensor) -> None:
        condition, choice, option = self.conditions.draw(size, self.rng, by_log=True)
        output, fake = self.generate(condition)
        pair = torch.cat([fake, condition], dim=1)
        scores, features = self.critic(as_image(pair, self.side))
        loss = -scores.mean() + self.conditions.loss(output, choice, option)
        loss = loss + (features.mean(0) - real_features.mean(0)).abs().sum()
        loss = loss + (features.std(0) - real_features.std(0)).abs().sum()
        self._update(0, loss)

    def _train_predictor(self, size: int, real: Tensor) -> None:
        assert self.predictor is not None
        condition, _, _ = self.conditions.draw(size, self.rng, by_log=True)
        _, fake = self.generate(condition)
        self._update(0, self.predictor.loss(fake))
        self._update(2, self.predictor.loss(real))

    def _update(self, number: int, loss: Tensor) -> None:
        optimizer = self.optimizers[number]
        assert optimizer is not None
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@dataclass(frozen=True)
class Model:
    game: Game
    budget: Budget


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    budget = Budget(seconds, STEPS)
    codes = Codes.of(train)
    values, categories = codes.encode(train)
    layout = Layout.fit(codes, values, target, seed)
    rows = layout.encode(values, categories, np.random.default_rng(seed))
    game = Game(layout, rows, target, seed)
    for _ in budget:
        game.step(min(BATCH, len(rows)))
    return Model(game, budget)


@torch.no_grad()
def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    game = model.game
    torch.manual_seed(seed)
    condition, _, _ = game.conditions.draw(rows, np.random.default_rng(seed), by_log=False)
    drawn = torch.cat([game.generate(part)[1] for part in condition.split(BATCH)])
    return game.layout.codes.decode(*game.layout.decode(drawn.numpy().astype(float)))


def about(model: Model) -> dict[str, Any]:
    settings = {"channels": CHANNELS, "batch": BATCH, "noise": NOISE, "classifier": CLASSIFIER}
    cut = [f"{CHANNELS} of 64 channels", *model.budget.cut]
    return {"settings": settings, "steps": model.budget.done, "cut": cut}
