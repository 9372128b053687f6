"""The fast network: a causal transformer over a random order of the columns.

The token at step t carries the value and position of the column before, plus the position of the
column that comes next. So one pass trains all conditional distributions of an order, and sampling
costs one token per cell, with a cache of keys and values.

PAPER-DIFF network: the paper's is masked.py. This one learns the same distributions (a cell given
any set of others), but in one pass per row instead of one per cell.
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

POSITION_SD = 0.01  # as in the paper's network
EMBEDDING_ORDERS = 4  # over which the embedding of a row is averaged, each in both directions


def draw_orders(
    shape: tuple[int, int], generator: torch.Generator, column_order: ColumnOrder = RANDOM_ORDER
) -> Tensor:
    """A random order of the columns for each row of a batch, (B, C).

    In every second row columns with a place in generation have that place. Those that rules compute
    come last there and are not predicted, as -1 - column.
    """
    noise = torch.rand(shape, generator=generator, device=generator.device)
    noise[::2, list(column_order.first)] -= 1.0
    noise[::2, list(column_order.late)] += 1.0
    if column_order.last is not None:
        noise[::2, column_order.last] = 2.0
    noise[::2, list(column_order.computed)] += 3.0
    orders = noise.argsort(1)
    predicted = shape[1] - len(column_order.computed)
    orders[::2, predicted:] = -1 - orders[::2, predicted:]
    return orders


class Part(NamedTuple):
    """Rows of a batch that need equally many steps."""

    tokens: Tensor  # (B, C)
    orders: Tensor  # (B, C)
    length: int  # steps of an order; masked cells come after them


def parts_by_length(tokens: Tensor, orders: Tensor) -> list[Part]:
    """The rows in which every cell is predicted, and those with cells that are not: these are
    masked, so that nothing has to be computed for them."""
    columns = orders.shape[1]
    unpredicted = orders < 0
    if not unpredicted.any():
        return [Part(tokens, orders, columns)]
    orders = torch.where(unpredicted, -1 - orders, orders)
    cells = torch.where(unpredicted, MASK, tokens.gather(1, orders))
    tokens = tokens.scatter(1, orders, cells)
    counts = unpredicted.sum(1)  # (B,)
    rows = [(counts == count, columns - count) for count in sorted(set(counts.tolist()))]
    return [Part(tokens[own], orders[own], steps) for own, steps in rows]


def masked_cells_last(orders: Tensor, tokens: Tensor) -> Tensor:
    """The same orders, but with the masked cells of each row after its known ones: (B, C)."""
    masked = tokens.gather(1, orders) == MASK
    if not masked.any():
        return orders
    return orders.gather(1, masked.to(torch.int8).argsort(dim=1, stable=True))


class AnyOrderTables(NamedTuple):
    """What follows from the weights alone, computed once for many chunks of rows."""

    inputs: Tensor  # (all + 1, D): each code with its column's position, and the start token
    outputs: tuple[FoldedLayer, ...]


class AnyOrderNetwork(nn.Module):
    """Per-column embeddings, two positions per token, causal blocks, LayerNorm, tied output."""

    name = "any-order"
    merge_below = 0.5  # above that, moving the cache costs as much as it saves (docs/log.md)

    def __init__(
        self, fields: Sequence[Field], config: NetworkConfig, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        width = config.width
        self.embedding = Embedding(fields, width, smoothing=config.smoothing, generator=generator)
        self.output = OutputLayer(self.embedding.sizes)
        positions = torch.empty(2, len(fields), width)
        positions.normal_(std=POSITION_SD, generator=generator)
        self.positions = nn.Parameter(positions[0].clone())  # (C, D), of the column before
        self.next_positions = nn.Parameter(positions[1].clone())  # (C, D), of the next column
        start = torch.empty(width).normal_(std=EMBEDDING_SD, generator=generator)
        self.start_token = nn.Parameter(start)  # stands for the column before the first
        self.heads = config.heads
        self.blocks = transformer(config, generator=generator)
        self.norm = nn.LayerNorm(width)
        self.precision: BlockPrecision = "float32"  # while it is trained

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of codes of each column."""
        return self.embedding.sizes

    def draw_pattern(
        self,
        shape: tuple[int, int],
        generator: torch.Generator,
        column_order: ColumnOrder = RANDOM_ORDER,
    ) -> Tensor:
        """What a training step predicts: all cells, in these orders, (B, C)."""
        return draw_orders(shape, generator, column_order)

    def loss_sum_and_count(
        self, tokens: Tensor, orders: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, int]:
        """Summed cross entropy in nats over the predicted cells, and their number.

        MASK in `tokens` is a missing value that is not learned: no cell sees it, and it has no
        loss.
        """
        table = self.embedding.table()
        parts = parts_by_length(tokens, orders)
        every_x = [self._outputs(table, *part, generator) for part in parts]  # (C, B, D) each
        outputs = self.output.columns(table, generator)
        total, count = every_x[0][:0].sum(), 0
        for x, part in zip(every_x, parts, strict=True):
            known = (part.tokens != MASK).sum(0).tolist()  # (C,)
            for output, inputs, codes, cells in zip(outputs, x, part.tokens.T, known, strict=True):
                if cells:
                    total = total + output.cross_entropy(inputs, codes)
            count += sum(known)
        return total, count

    def log_prob(self, tokens: Tensor, orders: Tensor) -> Tensor:
        """Log-likelihood of each cell given those before it in the row's order, (B, C).

        Exact, in one pass; the sum over a row is the row's log-likelihood in that order. Masked
        cells come last and count 0.
        """
        with torch.inference_mode():
            table = self.embedding.table()
            x = self._outputs(table, tokens, orders, orders.shape[1], None)  # (C, B, D)
            outputs = self.output.columns(table)
            nats = [
                F.cross_entropy(output.logits(inputs), codes, reduction="none", ignore_index=MASK)
                for output, inputs, codes in zip(outputs, x, tokens.T, strict=True)
            ]
            return -torch.stack(nats, 1)

    def embed(self, tokens: Tensor) -> Tensor:
        """The mean of the columns' outputs over a few fixed orders, (B, C) -> (B, D).

        PAPER-DIFF network: the paper averages the outputs of its bidirectional network. Here a
        column's output has seen only the columns before it, so several orders are averaged, each in
        both directions.
        """
        columns = tokens.shape[1]
        generator = torch.Generator().manual_seed(0)
        orders = [torch.randperm(columns, generator=generator) for _ in range(EMBEDDING_ORDERS)]
        with torch.inference_mode():
            table = self.embedding.table()
            means = []
            for order in orders:
                for direction in (order, order.flip(0)):
                    same = direction.to(tokens.device).expand(len(tokens), -1)
                    means.append(self._outputs(table, tokens, same, columns, None).mean(0))
            return torch.stack(means).mean(0)

    def tables(self) -> AnyOrderTables:
        with torch.inference_mode():
            table = self.embedding.table()
            return AnyOrderTables(self._input_table(table), self.output.fold(table))

    def start(self, tokens: Tensor, tables: AnyOrderTables | None = None) -> "AnyOrderState":
        """Begin to fill a batch, (B, C) with MASK where nothing is known."""
        return AnyOrderState(self, tokens, self.tables() if tables is None else tables)

    def _outputs(
        self,
        table: Tensor,
        tokens: Tensor,
        orders: Tensor,
        length: int,
        generator: torch.Generator | None,
    ) -> Tensor:
        """The output from which each cell is predicted, by column: (B, C) -> (C, B, D).

        Cells that come after the first `length` steps must be masked; their output is any.
        """
        orders = masked_cells_last(orders, tokens)
        x = self._inputs(self._input_table(table), tokens, orders[:, :length])
        mask = causal_mask(x.shape[1], x)
        with block_precision(self.precision, x.device):
            for block in self.blocks:
                x = block(x, generator, mask)
        # (B, C): the step at which each column is predicted
        steps = orders.argsort(1).clamp(max=length - 1)
        first = torch.arange(len(tokens), device=tokens.device)[:, None] * x.shape[1]
        x = F.embedding((steps + first).T, x.flatten(0, 1))  # (C, B, D)
        normed: Tensor = self.norm(x)
        return normed

    def _input_table(self, table: Tensor) -> Tensor:
        """Each code with the position of its column, and the start token last: (all + 1, D)."""
        sizes = torch.tensor(self.sizes, device=table.device)
        owners = torch.arange(len(sizes), device=table.device).repeat_interleave(sizes)
        return torch.cat([table + F.embedding(owners, self.positions), self.start_token[None]])

    def _inputs(self, input_table: Tensor, tokens: Tensor, orders: Tensor) -> Tensor:
        """The inputs of the first steps of an order: (B, C) and (B, T) -> (B, T, D)."""
        before = orders[:, :-1]  # (B, T - 1), the column before that of each step but the first
        # Masked cells come after everything that has a loss; any code will do for them.
        codes = tokens.gather(1, before).clamp(min=0) + self.embedding.offsets[before]
        start = codes.new_full((len(codes), 1), len(input_table) - 1)
        values = F.embedding(torch.cat([start, codes], 1), input_table)  # (B, T, D)
        return values + F.embedding(orders, self.next_positions)


def causal_mask(steps: int, like: Tensor) -> Tensor:
    """-inf where a step would see a later one, (T, T)."""
    return torch.full((steps, steps), -torch.inf, dtype=like.dtype, device=like.device).triu(1)


class AnyOrderState:
    """A batch that is being filled, with the keys and values of every token so far.

    Rows may have different numbers of known cells, and so caches of different lengths.
    """

    def __init__(self, net: AnyOrderNetwork, tokens: Tensor, tables: AnyOrderTables) -> None:
        self._net = net
        self._blocks: list[Block] = list(net.blocks)  # type: ignore[arg-type]
        self._inputs, self._outputs = tables
        rows, columns = tokens.shape
        with torch.inference_mode():
            self._offsets = net.embedding.offsets.tolist()
            width = self._inputs.shape[1]
            # Keys and values of all blocks, (T, depth, 2, B, D): by step, so that the part in use
            # is contiguous and moves in one piece.
            self._cache = self._inputs.new_zeros(columns, len(self._blocks), 2, rows, width)
            known = tokens != MASK
            self._lengths = known.sum(1)  # (B,) tokens in the cache that count
            self._even = bool((self._lengths == self._lengths[:1]).all())
            self._longest = int(self._lengths.max()) if rows else 0
            self._last = tokens.new_full((rows,), len(self._inputs) - 1)  # (B,) rows of _inputs
            self._predicted = tokens.new_full((rows,), -1)  # (B,) column of the token in the cache
            if self._longest:
                self._prefill(tokens, known)

    def logits(self, rows: Tensor, column: int) -> Tensor:
        """Logits of `column` for the given rows, in ascending order: (len(rows), K)."""
        with torch.inference_mode():
            every = self._is_every(rows)
            last = self._last if every else self._last[rows]
            x = F.embedding(last, self._inputs) + self._net.next_positions[column]  # (B, D)
            for index, block in enumerate(self._blocks):
                x = self._attend(block, self._cache[:, index], x, None if every else rows)
                x = block.feed_forward(x)
            self._predicted[rows] = column
            return F.linear(self._net.norm(x), *self._outputs[column])

    def set(self, rows: Tensor, column: int, codes: Tensor) -> None:
        """Make cells known."""
        with torch.inference_mode():
            if not bool((self._predicted[rows] == column).all()):
                self.logits(rows, column)  # the token that predicts the column belongs before it
            self._even = self._even and self._is_every(rows)
            self._lengths[rows] += 1
            self._longest = int(self._lengths.max()) if len(rows) else self._longest
            self._last[rows] = codes + self._offsets[column]
            self._predicted[rows] = -1

    def select(self, rows: Tensor) -> None:
        """Continue with these rows, which may repeat."""
        with torch.inference_mode():
            steps, depth, two, _, width = self._cache.shape
            used = min(self._longest + 1, steps)
            cache = self._cache.new_empty(steps, depth, two, len(rows), width)
            torch.index_select(self._cache[:used], 3, rows, out=cache[:used])
            cache[used:] = 0.0  # rows that are shorter than others are read beyond their end
            self._cache = cache
            self._lengths, self._last = self._lengths[rows], self._last[rows]
            self._predicted = self._predicted[rows]

    def _is_every(self, rows: Tensor) -> bool:
        # Rows are given in ascending order, each once.
        return len(rows) == len(self._last)

    def _attend(self, block: Block, cache: Tensor, x: Tensor, rows: Tensor | None) -> Tensor:
        """One more token for all rows, or for the given ones: (B, D) -> (B, D).

        `cache` is the block's, (T, 2, B, D).
        """
        query, key, value = block.project_next(x)
        if rows is None and self._even:
            steps = self._longest + 1
            cache[steps - 1, 0], cache[steps - 1, 1] = key, value
            return block.attend_next(x, query, cache[:steps, 0], cache[:steps, 1])
        if rows is None:
            rows = torch.arange(len(x), device=x.device)
        lengths = self._lengths[rows]
        cache[lengths, 0, rows], cache[lengths, 1, rows] = key, value
        steps = int(lengths.max()) + 1
        beyond = torch.arange(steps, device=x.device)[:, None] > lengths  # (T, B)
        mask = torch.zeros_like(beyond, dtype=x.dtype).masked_fill(beyond, -torch.inf)
        used = cache[:steps, :, rows]  # (T, 2, B, D)
        return block.attend_next(x, query, used[:, 0], used[:, 1], mask[..., None])

    def _prefill(self, tokens: Tensor, known: Tensor) -> None:
        """Fill the cache with the known cells in one pass; shorter rows do not use all of it."""
        net, steps = self._net, self._longest
        known_first = known.to(torch.int8).argsort(dim=1, descending=True, stable=True)
        orders = known_first[:, :steps]  # (B, T)
        x = net._inputs(self._inputs, tokens, orders)
        mask = causal_mask(steps, x)
        for index, block in enumerate(self._blocks):
            cache = self._cache[:steps, index]  # (T, 2, B, D)
            _, key, value = block.project_next(x)  # (B, T, D)
            cache[:, 0], cache[:, 1] = key.transpose(0, 1), value.transpose(0, 1)
            x = block(x, None, mask)
        final = (self._lengths - 1).clamp(min=0)[:, None]
        column = orders.gather(1, final)  # (B, 1), the last known
        row = (tokens.gather(1, column) + net.embedding.offsets[column]).squeeze(1)
        self._last = torch.where(self._lengths > 0, row, self._last)
