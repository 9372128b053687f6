"""The rows of each training step, and of each look at held-out rows, as integer tokens.

For `train`. All randomness is derived from a seed, a step or an epoch, so a resumed run needs no
generator's state.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tabmt.method.networks import AnyNetwork
from tabmt.seeds import derive
from tabmt.tokens import MASK, TokenStore

Tokens = np.ndarray[Any, np.dtype[np.integer[Any]]] | Tensor | TokenStore

HELD_OUT_ROWS = 4096  # per look; more would cost time and hardly steady the figure
PLANS_PER_ROW = 32  # of few held-out rows
LEAST_SEEN = 5  # rows with a code, for held-out rows with it to count
GROUPS = 16  # of held-out rows, to tell how far their loss is known


class Batches:
    """The rows of each step: an endless row of epochs, each a permutation of the table.

    A batch may end one epoch and begin the next; a table smaller than a batch comes several
    times in it, under different masks.
    """

    def __init__(self, tokens: Tokens, size: int, *, seed: int, more: Tokens | None = None) -> None:
        self.tokens, self.more, self.size, self.seed = tokens, more, size, seed
        self.rows = len(tokens) + (0 if more is None else len(more))
        self._epoch, self._permutation = -1, torch.empty(0, dtype=torch.int64)

    def at(self, step: int, share: slice = slice(None)) -> Tensor:
        """The batch of a step, or a share of its rows, int64 (B, C)."""
        pieces, begin, end = [], step * self.size, (step + 1) * self.size
        while begin < end:
            epoch, offset = divmod(begin, self.rows)
            if epoch != self._epoch:
                generator = torch.Generator().manual_seed(derive(self.seed, "epoch", epoch))
                width = torch.int32 if self.rows < 2**31 else torch.int64
                self._permutation = torch.randperm(self.rows, generator=generator, dtype=width)
                self._epoch = epoch
            pieces.append(self._permutation[offset : offset + end - begin])
            begin += len(pieces[-1])
        rows = torch.cat(pieces)[share]
        if self.more is None:
            return take(self.tokens, rows)
        first = rows < len(self.tokens)
        return torch.cat(
            [take(self.tokens, rows[first]), take(self.more, rows[~first] - len(self.tokens))]
        )


def take(tokens: Tokens, rows: Tensor) -> Tensor:
    """Some rows of a table of any integer type, possibly on disk, as int64 (B, C)."""
    if isinstance(tokens, Tensor):
        return tokens[rows.to(tokens.device)].to(torch.int64)
    return torch.from_numpy(np.asarray(tokens[rows.numpy()], dtype=np.int64))


def _counts(tokens: Tokens, sizes: Sequence[int]) -> list[Tensor]:
    """How often each code of each column stands in a table of any kind."""
    if isinstance(tokens, TokenStore):
        return [torch.from_numpy(count) for count in tokens.counts(sizes)]
    columns = torch.as_tensor(tokens).to("cpu", torch.int64).T
    return [torch.bincount(c[c != MASK], minlength=n) for c, n in zip(columns, sizes, strict=True)]


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows under masks or orders that never change, so that looks compare."""

    tokens: Tensor  # (B, C)
    plan: Tensor  # (B, C)
    group_size: int

    @classmethod
    def choose(
        cls,
        valid_tokens: Tokens,
        tokens: Tokens,
        net: AnyNetwork,
        *,
        seed: int,
        target: int | None,
    ) -> "HeldOut | None":
        """None when there are no rows. Few rows are looked at under several plans each.

        A code that hardly any training row has cannot be learned: its loss only grows, the sooner
        the better the rest is learned, and would stop training early. It counts as unknown.
        """
        if len(valid_tokens) == 0:
            return None
        generator = torch.Generator().manual_seed(derive(seed, "held out"))
        rows = torch.randperm(len(valid_tokens), generator=generator)[:HELD_OUT_ROWS]
        repeats = min(PLANS_PER_ROW, math.ceil(HELD_OUT_ROWS / len(rows)))
        rows = rows.repeat_interleave(repeats)
        device = next(net.parameters()).device
        held_out = take(valid_tokens, rows)
        counts = _counts(tokens, net.fields.sizes)
        rare = _rare(held_out, counts, LEAST_SEEN)
        if rare.float().mean() > 0.5:  # a tiny table, whose every code is rare
            rare = _rare(held_out, counts, 1)
        held_out[rare] = MASK
        held_out = held_out.to(device)
        shape = (held_out.shape[0], held_out.shape[1])
        plan = net.draw_plan(shape, generator, target).to(device)
        # All plans of a row fall into one group, or the groups would not be independent.
        return cls(held_out, plan, math.ceil(len(held_out) / repeats / GROUPS) * repeats)

    def losses(self, net: AnyNetwork) -> list[float]:
        """Mean nats per hidden, known cell, for each of a few groups of rows."""
        means = []
        with torch.inference_mode():
            for tokens, plan in zip(
                torch.split(self.tokens, self.group_size),
                torch.split(self.plan, self.group_size),
                strict=True,
            ):
                total, count = net.loss_sum_and_count(tokens, plan)
                means.append(total.item() / max(count, 1))
        return means


def _rare(cells: Tensor, counts: Sequence[Tensor], least: int) -> Tensor:
    """Which known cells hold a code that fewer than so many training rows have, (B, C)."""
    found = torch.zeros_like(cells, dtype=torch.bool)
    for column, count in enumerate(counts):
        here = cells[:, column]
        found[:, column] = (here != MASK) & (count < least)[here.clamp(min=0)]
    return found


def is_worse(losses: list[float], best: list[float]) -> bool:
    """Whether held-out rows fare worse than at the best look, by more than a standard error.

    Both are means over the same groups of rows, so they compare in pairs. Few held-out rows are
    too noisy to pick the one best step by; stopping there leaves much unlearned (docs/log.md).
    """
    if not best:
        return False
    gaps = np.subtract(losses, best)
    return bool(gaps.mean() > gaps.std(ddof=1) / math.sqrt(len(gaps)))
