"""The rows of each training step, as integer tokens.

All randomness follows from a seed, a step or an epoch, so a resumed run needs no generator's state.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tabmt.seeds import derive
from tabmt.tokens import MASK, TokenStore

Tokens = np.ndarray[Any, np.dtype[np.integer[Any]]] | Tensor | TokenStore


class Batches:
    """An endless sequence of epochs, each a permutation of the table, cut into batches.

    A batch may end one epoch and begin the next; a table smaller than a batch comes several times
    in it, under different masks.
    """

    def __init__(self, tokens: Tokens, size: int, *, seed: int, more: Tokens | None = None) -> None:
        """`more` are further rows of the table."""
        self._tokens, self._more, self._size, self._seed = tokens, more, size, seed
        self._rows = len(tokens) + (0 if more is None else len(more))
        self._epoch, self._permutation = -1, torch.empty(0, dtype=torch.int64)

    def at(self, step: int, share: slice = slice(None)) -> Tensor:
        """The batch of a step, or a share of its rows, int64 (B, C)."""
        chunks, begin, end = [], step * self._size, (step + 1) * self._size
        while begin < end:
            epoch, offset = divmod(begin, self._rows)
            if epoch != self._epoch:
                generator = torch.Generator().manual_seed(derive(self._seed, "epoch", epoch))
                dtype = torch.int32 if self._rows < 2**31 else torch.int64
                self._permutation = torch.randperm(self._rows, generator=generator, dtype=dtype)
                self._epoch = epoch
            chunks.append(self._permutation[offset : offset + end - begin])
            begin += len(chunks[-1])
        rows = torch.cat(chunks)[share]
        if self._more is None:
            return take(self._tokens, rows)
        first = rows < len(self._tokens)
        more = take(self._more, rows[~first] - len(self._tokens))
        return torch.cat([take(self._tokens, rows[first]), more])


def take(tokens: Tokens, rows: Tensor) -> Tensor:
    """Some rows of a table of any integer type, in memory or on disk, as int64 (B, C)."""
    if isinstance(tokens, Tensor):
        return tokens[rows.to(tokens.device)].to(torch.int64)
    return torch.from_numpy(np.asarray(tokens[rows.numpy()], dtype=np.int64))


def code_counts(tokens: Tokens, sizes: Sequence[int]) -> list[Tensor]:
    """How often each code of each column occurs in a table."""
    if isinstance(tokens, TokenStore):
        return [torch.from_numpy(count) for count in tokens.counts(sizes)]
    columns = torch.as_tensor(tokens).to("cpu", torch.int64).T
    return [torch.bincount(c[c != MASK], minlength=n) for c, n in zip(columns, sizes, strict=True)]
