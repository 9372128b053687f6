"""Rows that have drawn the same codes so far share one forward pass.

The rows of a chunk have one order of columns, so rows with equal prefixes have the same
distribution next. Each distinct prefix is evaluated once; the draws remain those of the single
rows. This is exact for both networks.
"""

import torch
from torch import Tensor

from tabmt.method.draw_codes import draw_codes
from tabmt.method.networks import Source
from tabmt.tokens import MASK


class RowBatch:
    """A chunk of rows that is being filled, as distinct prefixes and the prefix of each row."""

    def __init__(
        self, net: Source, tokens: Tensor, *, temperature: Tensor, generator: torch.Generator
    ) -> None:
        assert tokens.dtype == torch.int64
        self._net, self._temperature, self._generator = net, temperature, generator
        self._prefixes, self._prefix_of = _distinct(tokens, net.merge_below)  # (P, C), (B,)
        self._state = net.start(self._prefixes)

    def __len__(self) -> int:
        return len(self._prefix_of)

    @property
    def device(self) -> torch.device:
        return self._prefix_of.device

    @property
    def tokens(self) -> Tensor:
        """(B, C), MASK where nothing is drawn yet."""
        return self._prefixes[self._prefix_of]

    def draw(self, column: int, allowed: Tensor | None = None) -> Tensor:
        """Draw the masked cells of a column; log of the probability that was allowed, (B,).

        `allowed` is a weight in [0, 1] per code, (K,), or per row and code, (B, K).
        """
        prefixes, prefix_of = self._prefixes, self._prefix_of
        log_allowed = torch.zeros(len(prefix_of), dtype=torch.float64, device=prefix_of.device)
        masked = prefixes[:, column] == MASK
        if not masked.any():
            return log_allowed
        needed = masked.nonzero().squeeze(1)  # (P,)
        logits = self._state.logits(needed, column)  # (P, K)
        rows = masked[prefix_of].nonzero().squeeze(1)  # (B,)
        if allowed is not None and allowed.dim() == 2:
            allowed = allowed.to(rows.device)[rows]
        codes = torch.full_like(prefix_of, MASK)
        codes[rows], log_allowed[rows] = draw_codes(
            logits,
            (masked.cumsum(0) - 1)[prefix_of[rows]],
            temperature=float(self._temperature[column]),
            allowed=allowed,
            generator=self._generator,
        )
        if len(prefixes) < len(prefix_of):
            parents, codes, self._prefix_of = _split(
                prefix_of, codes, logits.shape[1], self._net.merge_below
            )
            self._state.select(parents)
            self._prefixes = prefixes = prefixes[parents]
            needed = (codes != MASK).nonzero().squeeze(1)
        codes = codes[needed]
        self._state.set(needed, column, codes)
        prefixes[needed, column] = codes
        return log_allowed

    def codes(self, column: int) -> Tensor:
        """(B,) codes of a column that was drawn."""
        return self._prefixes[:, column][self._prefix_of]

    def select(self, rows: Tensor) -> None:
        """Continue with these rows, which may repeat."""
        used, prefix_of = torch.unique(self._prefix_of[rows], return_inverse=True)
        if len(used) == len(rows):  # no two share a prefix, so each keeps its own position
            used = self._prefix_of[rows]
            prefix_of = torch.arange(len(rows), device=rows.device)
        self._prefix_of = prefix_of
        self._state.select(used)
        self._prefixes = self._prefixes[used]


def _distinct(tokens: Tensor, merge_below: float) -> tuple[Tensor, Tensor]:
    """The distinct rows, and the number of each row's; all rows, if hardly any are equal."""
    if bool((tokens == tokens[:1]).all()):  # the usual case: nothing is known of any row
        prefixes, prefix_of = tokens[:1].clone(), tokens.new_zeros(len(tokens))
    else:
        prefixes, prefix_of = torch.unique(tokens, dim=0, return_inverse=True)
    if len(prefixes) > merge_below * len(tokens):
        return tokens.clone(), torch.arange(len(tokens), device=tokens.device)
    return prefixes, prefix_of


def _split(
    prefix_of: Tensor, codes: Tensor, size: int, merge_below: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The prefixes after a column was drawn: their parents, their codes, and that of each row.

    Rows stay together if they were and drew the same code (or none). Once hardly any do, every row
    continues alone: moving prefixes would cost more than evaluating some of them twice.
    """
    pairs, prefix_now = torch.unique(prefix_of * (size + 1) + codes + 1, return_inverse=True)
    if len(pairs) > merge_below * len(prefix_of):
        return prefix_of, codes, torch.arange(len(prefix_of), device=prefix_of.device)
    return pairs // (size + 1), pairs % (size + 1) - 1, prefix_now
