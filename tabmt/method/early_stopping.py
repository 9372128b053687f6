"""Early stopping: the validation loss, and when it no longer improves.

The rows and the masks (or orders) of the validation set never change, so that its losses compare.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tabmt.method.batches import Tokens, code_counts, take
from tabmt.method.column_order import ColumnOrder
from tabmt.method.networks import Network
from tabmt.seeds import derive
from tabmt.tokens import MASK

MOST_ROWS = 4096  # per check; more would cost time and hardly make the loss more precise
PATTERNS_PER_ROW = 32  # at most, if there are few validation rows
MOST_SCORES = 2**27  # attention scores of a block in one pass
LEAST_SEEN = 5  # training rows with a code, for validation rows with it to count
GROUPS = 16  # of validation rows, from which the standard error of the loss is estimated


@dataclass(frozen=True)
class ValidationSet:
    """Validation rows, each with the mask or order under which it is evaluated."""

    tokens: Tensor  # (B, C)
    pattern: Tensor  # (B, C)
    group_size: int

    @classmethod
    def choose(
        cls,
        valid_tokens: Tokens,
        tokens: Tokens,
        net: Network,
        *,
        seed: int,
        column_order: ColumnOrder,
    ) -> "ValidationSet | None":
        """None when there are no rows. Few rows are evaluated under several patterns each.

        A code that hardly any training row has cannot be learned. Its loss only grows, the faster
        the better the rest is learned, and would stop training early; so it counts as unknown.
        """
        if len(valid_tokens) == 0:
            return None
        generator = torch.Generator().manual_seed(derive(seed, "held out"))
        rows = torch.randperm(len(valid_tokens), generator=generator)[:MOST_ROWS]
        repeats = min(PATTERNS_PER_ROW, math.ceil(MOST_ROWS / len(rows)))
        rows = rows.repeat_interleave(repeats)
        device = next(net.parameters()).device
        chosen = take(valid_tokens, rows)
        counts = code_counts(tokens, net.sizes)
        rare = _has_rare_code(chosen, counts, LEAST_SEEN)
        if rare.float().mean() > 0.5:  # in a tiny table every code is rare
            rare = _has_rare_code(chosen, counts, 1)
        chosen[rare] = MASK
        chosen = chosen.to(device)
        shape = (chosen.shape[0], chosen.shape[1])
        pattern = net.draw_pattern(shape, generator, column_order).to(device)
        # All patterns of a row belong to one group, or the groups would not be independent.
        return cls(chosen, pattern, math.ceil(len(chosen) / repeats / GROUPS) * repeats)

    @property
    def groups(self) -> int:
        return math.ceil(len(self.tokens) / self.group_size)

    def losses(self, net: Network) -> list[float]:
        """Mean nats per predicted cell, for each of the groups of rows."""
        means = []
        with torch.inference_mode():
            for tokens, pattern in zip(
                torch.split(self.tokens, self.group_size),
                torch.split(self.pattern, self.group_size),
                strict=True,
            ):
                # A wide table in several passes, whose attention scores take a bounded memory.
                rows = max(1, MOST_SCORES // (net.heads * tokens.shape[1] ** 2))
                total, count = 0.0, 0
                for part, own in zip(
                    torch.split(tokens, rows), torch.split(pattern, rows), strict=True
                ):
                    loss, cells = net.loss_sum_and_count(part, own)
                    total, count = total + loss.item(), count + cells
                means.append(total / max(count, 1))
        return means


def _has_rare_code(cells: Tensor, counts: Sequence[Tensor], least: int) -> Tensor:
    """Which known cells hold a code that fewer than `least` training rows have, (B, C)."""
    rare = torch.zeros_like(cells, dtype=torch.bool)
    for column, count in enumerate(counts):
        codes = cells[:, column]
        rare[:, column] = (codes != MASK) & (count < least)[codes.clamp(min=0)]
    return rare


@dataclass
class EarlyStopping:
    """Which weights to keep, and when to stop. The weights themselves are kept by the caller."""

    patience: int
    best_losses: list[float] = field(default_factory=list)  # by group, of the best check
    kept_step: int = 0
    kept_loss: float | None = None
    kept_rate: float = 0.0  # the learning rate at that step
    last_loss: float | None = None
    last_step: int = 0  # of the last check
    checks_without_improvement: int = 0

    def update(self, losses: list[float], step: int, rate: float) -> bool:
        """Take note of a validation check; whether the present weights are to be kept."""
        worse = is_worse(losses, self.best_losses)
        self.last_loss, self.last_step = float(np.mean(losses)), step
        if not worse:
            self.kept_step, self.kept_loss, self.kept_rate = step, self.last_loss, rate
        if not self.best_losses or self.last_loss < np.mean(self.best_losses):
            self.best_losses = losses
        self.checks_without_improvement = self.checks_without_improvement + 1 if worse else 0
        return not worse

    @property
    def should_stop(self) -> bool:
        return self.checks_without_improvement >= self.patience


def is_worse(losses: list[float], best: list[float]) -> bool:
    """Whether the validation loss is above that of the best check by more than a standard error.

    Both are means over the same groups of rows, so they are compared in pairs. Few validation rows
    are too noisy to find the one best step; stopping there would leave much unlearned
    (docs/log.md).
    """
    if not best:
        return False
    differences = np.subtract(losses, best)
    standard_error = differences.std(ddof=1) / math.sqrt(len(differences))
    return bool(differences.mean() > standard_error)
