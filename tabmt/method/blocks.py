"""The standard pre-norm transformer block, with its random numbers from an argument.

Rows are short (one token per column of a table), so attention is written as plain matrix products.
`generator=None` means no dropout; `.train()` and `.eval()` change nothing.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabmt.config import NetworkConfig


def dropout(x: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Zero each entry with probability `rate`, and scale the others so that the mean is kept."""
    if rate == 0.0 or generator is None:
        return x
    # Four 16-bit numbers from each 64-bit draw: one draw per entry costs three times as much, and
    # drawing is most of the cost of dropout on a CPU (docs/log.md, 2026-11-15). The rate is rounded
    # to 16 bits, but never to 1.
    dropped = min(round(rate * 2**16), 2**16 - 1)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
    words.random_(-(2**63), None, generator=generator)
    noise = words.view(torch.int16)[: x.numel()].view(x.shape)
    keep = noise >= dropped - 2**15
    return x * keep.to(x.dtype).mul_(2**16 / (2**16 - dropped))


def drop_path(
    x: Tensor, rate: float, generator: torch.Generator | None, rows: Tensor | None = None
) -> Tensor:
    """Zero a residual branch for whole rows with probability `rate`.

    `x` is (B, C, D); or some of its cells, (cells, D), with the row of each in `rows`.
    """
    if rate == 0.0 or generator is None or len(x) == 0:
        return x
    count = len(x) if rows is None else int(rows.max()) + 1
    keep = x.new_empty(count, 1).bernoulli_(1 - rate, generator=generator)  # (B, 1)
    return x * (keep[:, None] if rows is None else keep[rows]) / (1 - rate)


BlockPrecision = Literal["float32", "bfloat16"]


def block_precision(precision: BlockPrecision, device: torch.device) -> torch.autocast:
    """Inside, matrix products are computed in this number format; sums and weights stay float32."""
    enabled = precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


class Block(nn.Module):
    """LayerNorm, attention, residual; LayerNorm, MLP, residual."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        dropout: float,
        drop_path: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        assert width % heads == 0
        self.heads, self.dropout, self.drop_path = heads, dropout, drop_path
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = linear(width, 3 * width, generator=generator)
        self.attention_out = linear(width, width, generator=generator)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = linear(width, 4 * width, generator=generator)
        self.mlp_out = linear(4 * width, width, generator=generator)

    def forward(
        self, x: Tensor, generator: torch.Generator | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """(B, C, D) -> (B, C, D); see `attend` for `mask`."""
        return self.feed_forward(self.attend(x, generator, mask), generator)

    def attend(
        self,
        x: Tensor,
        generator: torch.Generator | None = None,
        mask: Tensor | None = None,
        projected: Tensor | None = None,
    ) -> Tensor:
        """The attention half of the block: (B, C, D) -> (B, C, D).

        `mask` is added to the attention scores, (C, C): -inf where a token (row) must not see
        another (column). `projected` is the result of `project(x)`, if it has been computed.
        """
        query, key, value = self._heads(self.project(x) if projected is None else projected)
        mixed = self._mix(query, key, value, generator, mask)
        return x + self._branch(self.attention_out(mixed), generator)

    def attend_at(self, x: Tensor, column: int) -> Tensor:
        """`attend` without dropout for one column only, (B, C, D) -> (B, 1, D)."""
        width, here = x.shape[-1], slice(column, column + 1)
        normed = self.attention_norm(x)
        weight, bias = self.queries_keys_values.weight, self.queries_keys_values.bias
        q = F.linear(normed[:, here], weight[:width], bias[:width])  # (B, 1, D)
        kv = F.linear(normed, weight[width:], bias[width:])  # (B, C, 2 D)
        query = q.view(len(x), 1, self.heads, -1).transpose(1, 2)  # (B, H, 1, d)
        kv = kv.view(*x.shape[:2], 2, self.heads, -1)  # (B, C, 2, H, d)
        key, value = kv.permute(2, 0, 3, 1, 4).unbind()  # (B, H, C, d)
        mixed: Tensor = self.attention_out(self._mix(query, key, value, None))  # (B, 1, D)
        return x[:, here] + mixed

    def project_next(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of all heads, for a cache: (..., D) each."""
        query, key, value = self.project(x).chunk(3, -1)
        return query, key, value

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values of each cell side by side: (..., D) -> (..., 3 D)."""
        projected: Tensor = self.queries_keys_values(self.attention_norm(x))
        return projected

    def attend_next(
        self, x: Tensor, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """`attend` without dropout for one token of each row: (B, D) -> (B, D).

        `keys` and `values` are those of the tokens so far and of this one, (T, B, D); `mask` is
        added to the scores, (T, B, 1).
        """
        steps, rows, width = keys.shape
        shape = (steps, rows, self.heads, width // self.heads)
        # Elementwise products and sums, not matrix products: thousands of matrices with one row
        # each would cost more in calls than in arithmetic.
        query = query * shape[-1] ** -0.5
        scores = (keys * query).view(shape).sum(-1)  # (T, B, H)
        weights = (scores if mask is None else scores + mask).softmax(0)
        mixed = (values.view(shape) * weights[..., None]).sum(0).view(rows, width)
        out: Tensor = x + self.attention_out(mixed)
        return out

    def feed_forward(
        self, x: Tensor, generator: torch.Generator | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """The MLP half of the block: (B, C, D) -> (B, C, D).

        Cells do not interact in it, so it also takes single cells: (cells, D) and their rows.
        """
        inner = dropout(F.gelu(self.mlp_in(self.mlp_norm(x))), self.dropout, generator)
        return x + self._branch(self.mlp_out(inner), generator, rows)  # (..., 4 D) -> (..., D)

    def _heads(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of each head: (B, C, 3 D) -> (B, H, C, d) each."""
        qkv = projected.view(*projected.shape[:2], 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()
        return query, key, value

    def _mix(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        generator: torch.Generator | None,
        mask: Tensor | None = None,
    ) -> Tensor:
        # Plain products, not F.scaled_dot_product_attention: its dropout takes no generator, and
        # for 9 to 15 tokens on a CPU it is no faster beyond noise (docs/log.md, 2026-11-15).
        scale = query.shape[-1] ** -0.5
        scores = (query * scale) @ key.transpose(-1, -2)  # (B, H, C, C)
        weights = (scores if mask is None else scores + mask).softmax(-1)
        mixed = dropout(weights, self.dropout, generator) @ value  # (B, H, C, d)
        return mixed.transpose(1, 2).flatten(2)  # (B, C, D)

    def _branch(
        self, x: Tensor, generator: torch.Generator | None, rows: Tensor | None = None
    ) -> Tensor:
        return drop_path(dropout(x, self.dropout, generator), self.drop_path, generator, rows)


def transformer(config: NetworkConfig, *, generator: torch.Generator) -> nn.ModuleList:
    """The stack of blocks that a configuration asks for."""
    return nn.ModuleList(
        Block(
            config.width,
            config.heads,
            dropout=config.dropout,
            drop_path=config.drop_path,
            generator=generator,
        )
        for _ in range(config.depth)
    )


def linear(inputs: int, outputs: int, *, generator: torch.Generator) -> nn.Linear:
    """A linear layer, Xavier-initialised from the given generator, with zero bias."""
    # By way of "meta", because the constructor would draw from torch's global generator.
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
