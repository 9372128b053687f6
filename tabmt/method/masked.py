"""The paper's network: a bidirectional encoder that predicts masked cells from all others.

Read from top to bottom: how cells are masked, how a row is encoded, what the loss is, and how one
column is predicted when rows are generated. `train.py` and `sample.py` are the loops around it.
Works on integer tokens; what the codes mean is the codec's business.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabmt.config import NetworkConfig
from tabmt.method.blocks import Block, BlockPrecision, block_precision, transformer
from tabmt.method.column_order import RANDOM_ORDER, ColumnOrder
from tabmt.method.embedding import EMBEDDING_SD, Embedding, Field
from tabmt.method.output_layer import FoldedLayer, OutputLayer
from tabmt.tokens import MASK

POSITION_SD = 0.01  # paper, appendix "Pseudocode"
CELLS_MULTIPLE = 64  # the scored cells of a column are padded to a multiple of this
ROWS_AT_ONCE = 128  # in sampling: the activations of so many rows stay in the processor's cache


def draw_mask(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Which cells of a batch are masked, (B, C): one probability per row, drawn from U(0, 1).

    The number of masked cells of a row is then uniform over 0 .. C (eq. 1), and all sets of one
    size are equally likely (eq. 2), as generation meets them (eq. 3).
    """
    device = generator.device
    threshold = torch.rand(shape[0], 1, generator=generator, device=device)  # (B, 1)
    return torch.rand(shape, generator=generator, device=device) > threshold  # (B, C)


class MaskedTables(NamedTuple):
    """What follows from the weights alone, computed once for many chunks of rows."""

    embeddings: Tensor  # (all, D)
    outputs: tuple[FoldedLayer, ...]


class MaskedNetwork(nn.Module):
    """Per-column embeddings, learned positions, transformer blocks, LayerNorm, tied output."""

    name = "masked"
    merge_below = 0.95  # one prefix less is a whole pass less, and there is no cache to move

    def __init__(
        self, fields: Sequence[Field], config: NetworkConfig, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        width = config.width
        self.embedding = Embedding(fields, width, smoothing=config.smoothing, generator=generator)
        self.output = OutputLayer(self.embedding.sizes)
        self.positions = nn.Parameter(
            torch.empty(len(fields), width).normal_(std=POSITION_SD, generator=generator)
        )  # (C, D)
        self.mask_token = nn.Parameter(
            torch.empty(width).normal_(std=EMBEDDING_SD, generator=generator)
        )
        self.blocks = transformer(config, generator=generator)
        self._heads = config.heads
        self.norm = nn.LayerNorm(width)
        self.precision: BlockPrecision = "float32"  # while it is trained

    @property
    def heads(self) -> int:
        return self._heads

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of codes of each column."""
        return self.embedding.sizes

    def draw_pattern(
        self, shape: tuple[int, int], generator: torch.Generator, _: ColumnOrder = RANDOM_ORDER
    ) -> Tensor:
        """What a training step predicts: a mask, (B, C), whatever the order, as in the paper."""
        return draw_mask(shape, generator)

    def hidden(self, tokens: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The output of the encoder for each cell: (B, C) -> (B, C, D)."""
        x = self._encode(self.embedding.table(), tokens, self.blocks, generator)
        normed: Tensor = self.norm(x)
        return normed

    def paper_loss_sum_and_count(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, int]:
        """Summed cross entropy in nats over the masked cells that are known, and their number.

        The loss as the paper states it. MASK in `tokens` is a missing value that is not learned: it
        is always masked and has no loss. Training uses `loss_sum_and_count`, which computes the
        same faster.
        """
        hidden = self.hidden(tokens.masked_fill(mask, MASK))  # (B, C, D)
        targets = tokens.masked_fill(~mask, MASK)  # (B, C), MASK where there is no loss
        total = hidden.new_zeros(())
        for column, output in enumerate(self.output.columns(self.embedding.table())):
            total = total + output.cross_entropy(hidden[:, column], targets[:, column])
        return total, int((targets != MASK).sum())

    def loss_sum_and_count(
        self, tokens: Tensor, mask: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, int]:
        """`paper_loss_sum_and_count`, but the last MLP and the output see only the scored cells."""
        table = self.embedding.table()
        x = self._encode(table, tokens.masked_fill(mask, MASK), self.blocks[:-1], generator)
        last, cells = self._last_block(), _scored_cells(tokens, mask)
        with block_precision(self.precision, x.device):
            x = last.attend(x, generator)  # (B, C, D)
            picked = F.embedding(cells.rows * tokens.shape[1] + cells.columns, x.flatten(0, 1))
            picked = last.feed_forward(picked, generator, cells.rows)  # (cells, D)
        picked = self.norm(picked)
        total = picked[:0].sum()  # zero, with gradients of zero where nothing is scored
        for output, inputs, codes in zip(
            self.output.columns(table, generator),
            torch.split(picked, cells.sizes),
            torch.split(cells.targets, cells.sizes),
            strict=True,
        ):
            if len(inputs):
                total = total + output.cross_entropy(inputs, codes)
        return total, cells.scored

    def log_prob(self, tokens: Tensor, orders: Tensor) -> Tensor:
        """Log-likelihood of each cell given those before it in the row's order, (B, C).

        Exact, in as many passes as there are columns. Cells that are MASK count 0.
        """
        result = torch.zeros(tokens.shape, dtype=self.positions.dtype, device=tokens.device)
        with torch.inference_mode():
            state = self.start(torch.full_like(tokens, MASK))
            for columns in orders.T:  # (B,), the next column of each row
                for column in columns.unique().tolist():
                    here = (columns == column) & (tokens[:, column] != MASK)
                    rows = here.nonzero().squeeze(1)
                    if len(rows):
                        codes = tokens[rows, column]
                        nats = state.logits(rows, column).log_softmax(1)
                        result[rows, column] = nats.gather(1, codes[:, None]).squeeze(1)
                        state.set(rows, column, codes)
        return result

    def embed(self, tokens: Tensor) -> Tensor:
        """The mean over the columns' outputs (the paper's embedding of a row), (B, C) -> (B, D)."""
        with torch.inference_mode():
            return self.hidden(tokens).mean(1)

    def tables(self) -> MaskedTables:
        with torch.inference_mode():
            table = self.embedding.table()
            return MaskedTables(table, self.output.fold(table))

    def start(self, tokens: Tensor, tables: MaskedTables | None = None) -> "MaskedState":
        """Begin to fill a batch, (B, C) with MASK where nothing is known."""
        return MaskedState(self, tokens, self.tables() if tables is None else tables)

    def _encode(
        self,
        table: Tensor,
        tokens: Tensor,
        blocks: nn.ModuleList,
        generator: torch.Generator | None,
    ) -> Tensor:
        x = self.embedding.embed(table, tokens, self.mask_token) + self.positions  # (B, C, D)
        with block_precision(self.precision, x.device):
            for block in blocks:
                x = block(x, generator)
        return x

    def _last_block(self) -> Block:
        block = self.blocks[-1]
        assert isinstance(block, Block)
        return block


class ScoredCells(NamedTuple):
    """The cells of a batch that have a loss, column by column."""

    rows: Tensor  # (cells,)
    columns: Tensor  # (cells,)
    targets: Tensor  # (cells,), MASK for cells that only pad
    sizes: list[int]  # cells of each column
    scored: int  # cells that have a loss


def _scored_cells(tokens: Tensor, mask: Tensor) -> ScoredCells:
    """The masked cells that are known. Each column's are padded to a round number with cells that
    have no loss, because tensors of ever new sizes would fragment the allocator's memory."""
    scored = (mask & (tokens != MASK)).T  # (C, B)
    counts = scored.sum(1)  # (C,)
    sizes = (counts + CELLS_MULTIPLE - 1) // CELLS_MULTIPLE * CELLS_MULTIPLE
    sizes = sizes.clamp(max=len(tokens))  # (C,)
    scored_first = scored.to(torch.int8).argsort(stable=True, dim=1, descending=True)  # (C, B)
    rank = torch.arange(len(tokens), device=tokens.device)
    rows = scored_first[rank < sizes[:, None]]  # (cells,), by column
    columns = torch.arange(len(sizes), device=tokens.device).repeat_interleave(sizes)
    targets = torch.where(scored[columns, rows], tokens[rows, columns], MASK)
    return ScoredCells(rows, columns, targets, sizes.tolist(), int(counts.sum()))


class MaskedState:
    """A batch that is being filled. What is computed from the weights is kept here, never on the
    network.

    The first block's projection of a cell changes only when that cell is set, so it is cached.
    """

    def __init__(self, net: MaskedNetwork, tokens: Tensor, tables: MaskedTables) -> None:
        self._net = net
        self._blocks: list[Block] = list(net.blocks)  # type: ignore[arg-type]
        self._table, self._outputs = tables
        with torch.inference_mode():
            self._offsets = net.embedding.offsets.tolist()
            self._x = net.embedding.embed(self._table, tokens, net.mask_token) + net.positions
            self._projected = self._blocks[0].project(self._x)  # (B, C, 3 D)

    def logits(self, rows: Tensor, column: int) -> Tensor:
        """Logits of `column` for the given rows, in ascending order: (len(rows), K)."""
        with torch.inference_mode():
            every = len(rows) == len(self._x)
            chunks = [
                self._hidden(slice(start, start + ROWS_AT_ONCE), column)
                if every
                else self._hidden(rows[start : start + ROWS_AT_ONCE], column)
                for start in range(0, max(1, len(rows)), ROWS_AT_ONCE)
            ]
            return F.linear(torch.cat(chunks), *self._outputs[column])

    def _hidden(self, rows: Tensor | slice, column: int) -> Tensor:
        """The encoder's output for `column`, (B, D)."""
        *before, last = self._blocks
        x = self._x[rows]  # (B, C, D)
        for index, block in enumerate(before):
            projected = self._projected[rows] if index == 0 else None
            x = block.feed_forward(block.attend(x, projected=projected))
        normed: Tensor = self._net.norm(last.feed_forward(last.attend_at(x, column)))
        return normed[:, 0]

    def set(self, rows: Tensor, column: int, codes: Tensor) -> None:
        """Make cells known."""
        with torch.inference_mode():
            cells = F.embedding(codes + self._offsets[column], self._table)  # (B, D)
            cells = cells + self._net.positions[column]
            self._x[rows, column] = cells
            self._projected[rows, column] = self._blocks[0].project(cells)

    def select(self, rows: Tensor) -> None:
        """Continue with these rows, which may repeat."""
        with torch.inference_mode():
            self._x, self._projected = self._x[rows], self._projected[rows]
