"""The paper's network: a bidirectional encoder that predicts masked cells from all others.

For `train` (the loss under a given mask) and `sample` (logits of one column given what is known).
It works on integer tokens; what the codes mean, which cells to mask and in which order to draw
them is decided by its callers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabmt.config import NetworkConfig
from tabmt.method.blocks import Block, transformer
from tabmt.method.embedding import EMBEDDING_SD, Field, Fields, Tables
from tabmt.tokens import MASK

POSITION_SD = 0.01  # paper, appendix "Pseudocode"
CELLS = 64  # cells of a field that are scored at a time come in multiples of this
ROWS_AT_ONCE = 128  # in sampling: what a block makes of so many rows stays in the processor's cache


def draw_mask(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Which cells of a batch are masked, (B, C): one probability per row, drawn from U(0, 1).

    The number of masked cells of a row is then uniform over 0 .. C (eq. 1), and all sets of one
    size are equally likely (eq. 2), as `sample.fill` meets them (eq. 3).
    """
    device = generator.device
    threshold = torch.rand(shape[0], 1, generator=generator, device=device)  # (B, 1)
    return torch.rand(shape, generator=generator, device=device) > threshold  # (B, C)


class MaskedNetwork(nn.Module):
    """Per-field embeddings, learned positions, transformer blocks, LayerNorm, tied output."""

    name = "masked"
    merge_below = 0.95  # a prefix less is a whole pass less, and there is no cache to move

    def __init__(
        self, fields: Sequence[Field], config: NetworkConfig, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        width = config.width
        self.fields = Fields(fields, width, smoothing=config.smoothing, generator=generator)
        self.positions = nn.Parameter(
            torch.empty(len(fields), width).normal_(std=POSITION_SD, generator=generator)
        )
        self.mask_token = nn.Parameter(
            torch.empty(width).normal_(std=EMBEDDING_SD, generator=generator)
        )
        self.blocks = transformer(config, generator=generator)
        self.norm = nn.LayerNorm(width)

    def draw_plan(
        self, shape: tuple[int, int], generator: torch.Generator, target: int | None = None
    ) -> Tensor:
        """What a training step hides: here a mask, (B, C), whatever the target, as in the paper."""
        return draw_mask(shape, generator)

    def hidden(self, tokens: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What the network makes of each cell, after the last LayerNorm: (B, C) -> (B, C, D)."""
        x = self._encode(self.fields.table(), tokens, self.blocks, generator)
        normed: Tensor = self.norm(x)
        return normed

    def loss_sum_and_count(
        self, tokens: Tensor, mask: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, int]:
        """Summed cross entropy in nats over the masked, known cells, and how many there are.

        A MASK in `tokens` is a gap that the network shall not learn: always masked, no loss.
        """
        table = self.fields.table()
        x = self._encode(table, tokens.masked_fill(mask, MASK), self.blocks[:-1], generator)
        last = self._last_block()
        x = last.attend(x, generator)  # (B, C, D)

        scored = (mask & (tokens != MASK)).T  # (C, B)
        counts = scored.sum(1)  # (C,)
        # Each field's cells, filled up to a round number with cells that carry no loss: tensors of
        # ever new sizes would leave the allocator's heap in ever smaller pieces.
        sizes = ((counts + CELLS - 1) // CELLS * CELLS).clamp(max=len(tokens))  # (C,)
        rows_by_need = scored.to(torch.int8).argsort(stable=True, dim=1, descending=True)  # (C, B)
        rank = torch.arange(len(tokens), device=tokens.device)
        rows = rows_by_need[rank < sizes[:, None]]  # (cells,), by column
        columns = torch.arange(len(sizes), device=tokens.device).repeat_interleave(sizes)
        picked = F.embedding(rows * len(sizes) + columns, x.flatten(0, 1))  # (cells, D)
        # From here on only these cells: no other reads what the last MLP makes of them.
        picked = self.norm(last.think(picked, generator, rows))
        targets = torch.where(scored[columns, rows], tokens[rows, columns], MASK)  # (cells,)

        total = picked[:0].sum()  # zero, with gradients of zero where nothing is scored
        parts = sizes.tolist()
        for output, part, codes in zip(
            self.fields.outputs(table, generator),
            torch.split(picked, parts),
            torch.split(targets, parts),
            strict=True,
        ):
            if len(part) == 0:
                continue
            total = total + output.cross_entropy(part, codes)
        return total, int(counts.sum())

    def log_prob(self, tokens: Tensor, orders: Tensor) -> Tensor:
        """Log-likelihood of each cell given those before it in the row's order, (B, C).

        Exact, in as many passes as there are columns. Cells that are MASK count 0.
        """
        found = torch.zeros(tokens.shape, dtype=self.positions.dtype, device=tokens.device)
        with torch.inference_mode():
            state = self.start(torch.full_like(tokens, MASK))
            for columns in orders.T:  # (B,), the column that each row comes to
                for column in columns.unique().tolist():
                    here = (columns == column) & (tokens[:, column] != MASK)
                    rows = here.nonzero().squeeze(1)
                    if len(rows):
                        codes = tokens[rows, column]
                        nats = state.logits(rows, column).log_softmax(1)
                        found[rows, column] = nats.gather(1, codes[:, None]).squeeze(1)
                        state.put(rows, column, codes)
        return found

    def embed(self, tokens: Tensor) -> Tensor:
        """The mean of the fields' outputs (the paper's embedding of a row), (B, C) -> (B, D)."""
        with torch.inference_mode():
            return self.hidden(tokens).mean(1)

    def _last_block(self) -> Block:
        block = self.blocks[-1]
        assert isinstance(block, Block)
        return block

    def tables(self) -> Tables:
        """What follows from the weights alone: embeddings of all codes, and the output layers."""
        with torch.inference_mode():
            return self.fields.table(), self.fields.fold()

    def start(self, tokens: Tensor, tables: Tables | None = None) -> "MaskedState":
        """Begin to fill a batch, (B, C) with MASK where nothing is known."""
        return MaskedState(self, tokens, self.tables() if tables is None else tables)

    def _encode(
        self,
        table: Tensor,
        tokens: Tensor,
        blocks: nn.ModuleList,
        generator: torch.Generator | None,
    ) -> Tensor:
        x = self.fields.embed(table, tokens, self.mask_token) + self.positions  # (B, C, D)
        for block in blocks:
            x = block(x, generator)
        return x


class MaskedState:
    """A batch being filled. Tables computed from the weights live here, never on the network.

    What the first block makes of a cell by itself changes only when that cell is put, so it is
    kept between columns.
    """

    def __init__(self, net: MaskedNetwork, tokens: Tensor, tables: Tables) -> None:
        self._net = net
        self._blocks: list[Block] = list(net.blocks)  # type: ignore[arg-type]
        self._table, self._outputs = tables
        with torch.inference_mode():
            self._offsets = net.fields.offsets.tolist()
            self._x = net.fields.embed(self._table, tokens, net.mask_token) + net.positions
            self._projected = self._blocks[0].project(self._x)  # (B, C, 3 D)

    def logits(self, rows: Tensor, column: int) -> Tensor:
        """Logits of `column` for the given rows: (len(rows), K), given all that was put."""
        with torch.inference_mode():
            every = len(rows) == len(self._x)  # rows are asked for in rising order, each once
            parts = [
                self._hidden(slice(at, at + ROWS_AT_ONCE), column)
                if every
                else self._hidden(rows[at : at + ROWS_AT_ONCE], column)
                for at in range(0, max(1, len(rows)), ROWS_AT_ONCE)
            ]
            return F.linear(torch.cat(parts), *self._outputs[column])

    def _hidden(self, rows: Tensor | slice, column: int) -> Tensor:
        """What `column` is predicted from, (B, D)."""
        *before, last = self._blocks
        x = self._x[rows]  # (B, C, D)
        for place, block in enumerate(before):
            projected = self._projected[rows] if place == 0 else None
            x = block.think(block.attend(x, projected=projected))
        normed: Tensor = self._net.norm(last.think(last.attend_at(x, column)))
        return normed[:, 0]

    def put(self, rows: Tensor, column: int, codes: Tensor) -> None:
        """Make cells known."""
        with torch.inference_mode():
            here = F.embedding(codes + self._offsets[column], self._table)  # (B, D)
            here = here + self._net.positions[column]
            self._x[rows, column] = here
            self._projected[rows, column] = self._blocks[0].project(here)

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, which may repeat."""
        with torch.inference_mode():
            self._x, self._projected = self._x[rows], self._projected[rows]
