"""The fast network: a causal transformer over a random order of the fields.

For `train` (the loss under given orders) and `sample` (logits of the next column, with a cache of
what came before). The token at step t carries the value and position of the field placed last,
plus the position of the field that comes next, so one pass trains all conditionals of an order, and
sampling costs one token per cell.

PAPER-DIFF: the paper's network is `masked.py`; this one factorises the same distributions (a cell
given any set of others), but in one pass per row instead of one per cell.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabmt.config import NetworkConfig
from tabmt.method.blocks import Block, transformer
from tabmt.method.embedding import EMBEDDING_SD, Field, Fields, Tables, many_codes
from tabmt.tokens import MASK

POSITION_SD = 0.01  # as in the paper's network
EMBEDDING_ORDERS = 4


def draw_orders(
    shape: tuple[int, int],
    generator: torch.Generator,
    target: int | None = None,
    first: Sequence[int] = (),
) -> Tensor:
    """An order of the columns for each row of a batch, (B, C), all being equally likely.

    In every second row those that sampling draws first come first, and a target last.
    """
    noise = torch.rand(shape, generator=generator, device=generator.device)
    noise[::2, list(first)] -= 1.0
    if target is not None:
        noise[::2, target] = 2.0
    return noise.argsort(1)


def gaps_last(orders: Tensor, tokens: Tensor) -> Tensor:
    """The same orders, but for the gaps of each row, which come after its known cells: (B, C)."""
    gaps = tokens.gather(1, orders) == MASK
    if not gaps.any():
        return orders
    return orders.gather(1, gaps.to(torch.int8).argsort(dim=1, stable=True))


class AnyOrderNetwork(nn.Module):
    """Per-field embeddings, two positions per token, causal blocks, LayerNorm, tied output."""

    name = "any-order"
    merge_below = 0.5  # beyond that, moving the cache costs what is saved (docs/log.md)

    def __init__(
        self, fields: Sequence[Field], config: NetworkConfig, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        width = config.width
        self.fields = Fields(fields, width, smoothing=config.smoothing, generator=generator)
        positions = torch.empty(2, len(fields), width)
        positions.normal_(std=POSITION_SD, generator=generator)
        self.positions = nn.Parameter(positions[0].clone())  # (C, D), of the field placed last
        self.next_positions = nn.Parameter(positions[1].clone())  # (C, D), of the one to come
        start = torch.empty(width).normal_(std=EMBEDDING_SD, generator=generator)
        self.start_token = nn.Parameter(start)  # stands for "nothing is placed yet"
        self.blocks = transformer(config, generator=generator)
        self.norm = nn.LayerNorm(width)

    def draw_plan(
        self, shape: tuple[int, int], generator: torch.Generator, target: int | None = None
    ) -> Tensor:
        """What a training step hides: here orders, (B, C)."""
        return draw_orders(shape, generator, target, many_codes(self.fields.sizes, target))

    def loss_sum_and_count(
        self, tokens: Tensor, orders: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, int]:
        """Summed cross entropy in nats over the known cells, and how many there are.

        A MASK in `tokens` is a gap that the network shall not learn: no cell sees it, no loss.
        """
        table = self.fields.table()
        x = self._outputs(table, tokens, orders, generator)  # (C, B, D)
        total = x[:0].sum()
        outputs = self.fields.outputs(table, generator)
        for output, part, codes in zip(outputs, x, tokens.T, strict=True):
            total = total + output.cross_entropy(part, codes)
        return total, int((tokens != MASK).sum())

    def log_prob(self, tokens: Tensor, orders: Tensor) -> Tensor:
        """Log-likelihood of each cell given those before it in the row's order, (B, C).

        Exact, in one pass; the sum over a row is the row's log-likelihood in that order. Gaps
        (MASK) come last and count 0.
        """
        with torch.inference_mode():
            table = self.fields.table()
            x = self._outputs(table, tokens, orders, None)  # (C, B, D)
            nats = [
                F.cross_entropy(output.logits(part), codes, reduction="none", ignore_index=MASK)
                for output, part, codes in zip(self.fields.outputs(table), x, tokens.T, strict=True)
            ]
            return -torch.stack(nats, 1)

    def embed(self, tokens: Tensor) -> Tensor:
        """The mean of the fields' outputs over a few fixed orders, (B, C) -> (B, D).

        PAPER-DIFF: the paper averages the outputs of its bidirectional network. Here a field's
        output has seen only what came before it, so several orders, there and back, share the work.
        """
        columns = tokens.shape[1]
        generator = torch.Generator().manual_seed(0)
        orders = [torch.randperm(columns, generator=generator) for _ in range(EMBEDDING_ORDERS)]
        with torch.inference_mode():
            table = self.fields.table()
            means = [
                self._outputs(table, tokens, one.to(tokens.device).expand(len(tokens), -1), None)
                .mean(0)
                for order in orders
                for one in (order, order.flip(0))
            ]  # fmt: skip
            return torch.stack(means).mean(0)

    def tables(self) -> Tables:
        """What follows from the weights alone: each code as it is placed, and the output layers."""
        with torch.inference_mode():
            return self._placed(self.fields.table()), self.fields.fold()

    def start(self, tokens: Tensor, tables: Tables | None = None) -> "AnyOrderState":
        """Begin to fill a batch, (B, C) with MASK where nothing is known."""
        return AnyOrderState(self, tokens, self.tables() if tables is None else tables)

    def _outputs(
        self, table: Tensor, tokens: Tensor, orders: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """What each cell is predicted from, by column: (B, C) -> (C, B, D)."""
        orders = gaps_last(orders, tokens)
        x = self._inputs(self._placed(table), tokens, orders)
        unseen = later(x.shape[1], x)
        for block in self.blocks:
            x = block(x, generator, unseen)
        places = orders.argsort(1)  # (B, C): the step at which each column is predicted
        first = torch.arange(len(tokens), device=tokens.device)[:, None] * x.shape[1]
        x = F.embedding((places + first).T, x.flatten(0, 1))  # (C, B, D)
        normed: Tensor = self.norm(x)
        return normed

    def _placed(self, table: Tensor) -> Tensor:
        """Each code with the position of its field, and the start token last: (all + 1, D)."""
        sizes = torch.tensor(self.fields.sizes, device=table.device)
        owners = torch.arange(len(sizes), device=table.device).repeat_interleave(sizes)
        return torch.cat([table + F.embedding(owners, self.positions), self.start_token[None]])

    def _inputs(self, placed: Tensor, tokens: Tensor, orders: Tensor) -> Tensor:
        """The tokens of the first steps of an order: (B, C) and (B, T) -> (B, T, D)."""
        before = orders[:, :-1]  # (B, T - 1), what is placed at each step but the first
        # Gaps are placed after everything that has a loss; any code will do for them.
        codes = tokens.gather(1, before).clamp(min=0) + self.fields.offsets[before]
        start = codes.new_full((len(codes), 1), len(placed) - 1)
        values = F.embedding(torch.cat([start, codes], 1), placed)  # (B, T, D)
        return values + F.embedding(orders, self.next_positions)


def later(steps: int, like: Tensor) -> Tensor:
    """-inf where a step would see a later one, (T, T)."""
    return torch.full((steps, steps), -torch.inf, dtype=like.dtype, device=like.device).triu(1)


class AnyOrderState:
    """A batch being filled, with the keys and values of every token so far.

    Rows may have come to different lengths: each keeps its own.
    """

    def __init__(self, net: AnyOrderNetwork, tokens: Tensor, tables: Tables) -> None:
        self._net = net
        self._blocks: list[Block] = list(net.blocks)  # type: ignore[arg-type]
        self._placed, self._outputs = tables
        rows, columns = tokens.shape
        with torch.inference_mode():
            self._offsets = net.fields.offsets.tolist()
            width = self._placed.shape[1]
            # Keys and values of all blocks, (T, depth, 2, B, D): by step, so that what is in use
            # lies together and moves in one piece.
            self._cache = self._placed.new_zeros(columns, len(self._blocks), 2, rows, width)
            known = tokens != MASK
            self._lengths = known.sum(1)  # (B,) tokens in the cache that count
            self._even = bool((self._lengths == self._lengths[:1]).all())
            self._longest = int(self._lengths.max()) if rows else 0
            self._last = tokens.new_full((rows,), len(self._placed) - 1)  # (B,) rows of _placed
            self._asked = tokens.new_full((rows,), -1)  # (B,) column whose token is in the cache
            if self._longest:
                self._prefill(tokens, known)

    def logits(self, rows: Tensor, column: int) -> Tensor:
        """Logits of `column` for the given rows: (len(rows), K), given all that was put."""
        with torch.inference_mode():
            every = self._is_every(rows)
            last = self._last if every else self._last[rows]
            x = F.embedding(last, self._placed) + self._net.next_positions[column]  # (B, D)
            for place, block in enumerate(self._blocks):
                x = self._attend(block, self._cache[:, place], x, None if every else rows)
                x = block.think(x)
            self._asked[rows] = column
            return F.linear(self._net.norm(x), *self._outputs[column])

    def put(self, rows: Tensor, column: int, codes: Tensor) -> None:
        """Make cells known."""
        with torch.inference_mode():
            if not bool((self._asked[rows] == column).all()):
                self.logits(rows, column)  # the token that asks for the column belongs before it
            self._even = self._even and self._is_every(rows)
            self._lengths[rows] += 1
            self._longest = int(self._lengths.max()) if len(rows) else self._longest
            self._last[rows] = codes + self._offsets[column]
            self._asked[rows] = -1

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, which may repeat."""
        with torch.inference_mode():
            steps, depth, two, _, width = self._cache.shape
            used = min(self._longest + 1, steps)
            cache = self._cache.new_empty(steps, depth, two, len(rows), width)
            torch.index_select(self._cache[:used], 3, rows, out=cache[:used])
            cache[used:] = 0.0  # rows that are shorter than others are read beyond their end
            self._cache = cache
            self._lengths, self._last = self._lengths[rows], self._last[rows]
            self._asked = self._asked[rows]

    def _is_every(self, rows: Tensor) -> bool:
        # Rows are asked for in rising order, each once.
        return len(rows) == len(self._last)

    def _attend(self, block: Block, cache: Tensor, x: Tensor, rows: Tensor | None) -> Tensor:
        """One token more for all rows, or for the given ones: (B, D) -> (B, D).

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
        unseen = torch.zeros_like(beyond, dtype=x.dtype).masked_fill(beyond, -torch.inf)
        seen = cache[:steps, :, rows]  # (T, 2, B, D)
        return block.attend_next(x, query, seen[:, 0], seen[:, 1], unseen[..., None])

    def _prefill(self, tokens: Tensor, known: Tensor) -> None:
        """One pass over what is known; of rows that know less, the rest is not looked at."""
        net, steps = self._net, self._longest
        orders = known.to(torch.int8).argsort(dim=1, descending=True, stable=True)[
            :, :steps
        ]  # (B, T)
        x = net._inputs(self._placed, tokens, orders)
        unseen = later(steps, x)
        for place, block in enumerate(self._blocks):
            cache = self._cache[:steps, place]  # (T, 2, B, D)
            _, key, value = block.project_next(x)  # (B, T, D)
            cache[:, 0], cache[:, 1] = key.transpose(0, 1), value.transpose(0, 1)
            x = block(x, None, unseen)
        final = (self._lengths - 1).clamp(min=0)[:, None]
        column = orders.gather(1, final)  # (B, 1), the last known
        row = (tokens.gather(1, column) + net.fields.offsets[column]).squeeze(1)
        self._last = torch.where(self._lengths > 0, row, self._last)
