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
LONGEST_WAIT = 0.5  # for a better check, as a fraction of the steps that the best one took


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
    """Which weights to keep, and when to stop. The weights themselves are kept by the caller.

    Those of the lowest validation loss are kept. Training stops when `patience` checks in a row
    are clearly worse, or when there has been no better one for half as many steps as the best one
    took: few validation rows are too noisy for the first, while the network learns single rows by
    heart (docs/log.md, 2026-11-18).
    """

    patience: int
    kept_losses: list[float] = field(default_factory=list)  # by group of validation rows
    kept_step: int = 0
    kept_loss: float | None = None
    kept_rate: float = 0.0  # the learning rate at that step
    last_loss: float | None = None
    last_step: int = 0  # of the last check
    worse_checks: int = 0  # in a row
    checks_without_improvement: int = 0

    def update(self, losses: list[float], step: int, rate: float) -> bool:
        """Take note of a validation check; whether the present weights are to be kept."""
        self.last_loss, self.last_step = float(np.mean(losses)), step
        improved = self.kept_loss is None or self.last_loss < self.kept_loss
        is_worse = not improved and is_clearly_worse(losses, self.kept_losses)
        self.worse_checks = self.worse_checks + 1 if is_worse else 0
        self.checks_without_improvement = 0 if improved else self.checks_without_improvement + 1
        if improved:
            self.kept_losses, self.kept_loss = losses, self.last_loss
            self.kept_step, self.kept_rate = step, rate
        return improved

    @property
    def should_stop(self) -> bool:
        waited = self.last_step - self.kept_step
        return self.worse_checks >= self.patience or (
            self.checks_without_improvement >= self.patience
            and waited > LONGEST_WAIT * self.kept_step
        )


def is_clearly_worse(losses: list[float], best: list[float]) -> bool:
    """Whether the validation loss is above that of the best check by more than a standard error.

    Both are means over the same groups of rows, so they are compared in pairs.
    """
    differences = np.subtract(losses, best)
    standard_error = differences.std(ddof=1) / math.sqrt(len(differences))
    return bool(differences.mean() > standard_error)
