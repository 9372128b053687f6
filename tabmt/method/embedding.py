"""The embeddings of all columns of a table, as one weight with offsets.

Every column (the paper calls it a field) has a table of its own: one row for each code. Rows of
categories are independent; rows of numbers are ordered, between two learned end points. All tables
are concatenated, so that one gather embeds a batch. The output layer uses the same tables
(output_layer.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabmt.tokens import MASK

EMBEDDING_SD = 0.05  # paper, appendix "Pseudocode": embeddings, end points and mask token
MOST_SMOOTHED = 256  # codes of a smoothed column; the weights of more would fill the memory


@dataclass(frozen=True)
class Field:
    """One column as the networks see it: how many codes, and where ordered codes lie.

    `ratios` is the paper's r (eq. 4) of a column of numbers, None for categories. It covers all
    codes, or all but the last: a missing code comes last and has no place in the order.
    `is_bin` says which of the ordered codes are ranges of numbers; the others are single values.
    """

    size: int
    ratios: tuple[float, ...] | None = None
    is_bin: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        assert self.size >= 1
        if self.ratios is not None:
            assert len(self.ratios) in (self.size, self.size - 1)
            assert all(0.0 <= ratio <= 1.0 for ratio in self.ratios)
            assert len(self.is_bin) in (0, len(self.ratios))


class Embedding(nn.Module):
    """The embedding of every code of every column. "all" is the total number of codes.

    The ratios are not part of the state dict: they follow from the fields.
    """

    offsets: Tensor
    ordered_rows: Tensor
    ordered_fields: Tensor
    ratios: Tensor

    def __init__(
        self,
        fields: Sequence[Field],
        width: int,
        *,
        smoothing: float = 0.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        assert fields
        self.sizes = tuple(field.size for field in fields)
        starts = [0, *accumulate(self.sizes)][:-1]
        rows: list[int] = []  # rows of the table that eq. 5 orders
        owners: list[int] = []  # and the end points between which each of them lies
        ratios: list[float] = []
        ordered = 0
        for field, start in zip(fields, starts, strict=True):
            if field.ratios:
                rows += range(start, start + len(field.ratios))
                owners += [ordered] * len(field.ratios)
                ratios += field.ratios
                ordered += 1
        self.register_buffer("offsets", torch.tensor(starts), persistent=False)
        self.register_buffer("ordered_rows", torch.tensor(rows, dtype=torch.int64), False)
        self.register_buffer("ordered_fields", torch.tensor(owners, dtype=torch.int64), False)
        self.register_buffer("ratios", torch.tensor(ratios, dtype=torch.float32)[:, None], False)
        self.smoothing = Smoothing(fields, starts, smoothing)

        total = sum(self.sizes)
        unordered = torch.empty(total, width).normal_(std=EMBEDDING_SD, generator=generator)
        unordered[self.ordered_rows] = 0.0  # paper: the network should rely on the order first
        self.unordered = nn.Parameter(unordered)  # (all, D), the paper's E of each field
        ends = torch.empty(2, ordered, width).normal_(std=EMBEDDING_SD, generator=generator)
        self.low = nn.Parameter(ends[0].clone())  # (ordered fields, D), the paper's l
        self.high = nn.Parameter(ends[1].clone())  # (ordered fields, D), the paper's h

    def table(self) -> Tensor:
        """The embedding of every code of every column, (all, D).

        Compute it once per pass and hand it to the other methods, so that the gradients of the
        input and of the output are added in it.
        """
        if self.ordered_rows.numel() == 0:
            return self.unordered
        low = F.embedding(self.ordered_fields, self.low)  # (ordered rows, D)
        high = F.embedding(self.ordered_fields, self.high)  # (ordered rows, D)
        between = self.ratios * low + (1 - self.ratios) * high  # eq. 5 without E
        table: Tensor = self.smoothing(self.unordered, self.ordered_rows, between)
        return table

    def rows(self, tokens: Tensor) -> Tensor:
        """The row of the table for each token, (B, C); MASK is the row after the last."""
        return torch.where(tokens == MASK, len(self.unordered), tokens + self.offsets)

    def codes_of(self, column: int) -> slice:
        """The rows of the table that belong to one column."""
        start = sum(self.sizes[:column])
        return slice(start, start + self.sizes[column])

    def embed(self, table: Tensor, tokens: Tensor, mask_token: Tensor) -> Tensor:
        """Embeddings of tokens, MASK included: (B, C) -> (B, C, D)."""
        return F.embedding(self.rows(tokens), torch.cat([table, mask_token[None]]))


def smoothing_bytes(bins: Sequence[int]) -> int:
    """The memory of the weights of smoothing, of columns with so many bins each."""
    smoothed = [count for count in bins if 1 < count <= MOST_SMOOTHED]
    return 4 * len(smoothed) * max(smoothed, default=0) ** 2


class Smoothing(nn.Module):
    """Neighbouring bins of numbers share their E: each becomes a weighted mean of those around it.

    PAPER-DIFF smoothing: in the paper each code has an E of its own. Of numbers that differ by a
    hundredth, few rows can tell which is which; what is learned of one then holds for its
    neighbours too, and small tables support more codes (docs/log.md). An atom (a zip code, 40
    hours) is frequent enough to be learned by itself. A standard deviation of 0 turns smoothing
    off.
    """

    keeps_own: Tensor
    smoothed_rows: Tensor
    flat_indices: Tensor
    neighbours: Tensor
    weights: Tensor

    def __init__(self, fields: Sequence[Field], starts: Sequence[int], sd: float) -> None:
        super().__init__()
        columns = []  # the rows of the table that belong to the bins of each smoothed column
        for field, start in zip(fields, starts, strict=True):
            bins = [start + code for code, is_bin in enumerate(field.is_bin) if is_bin]
            if sd > 0 and 1 < len(bins) <= MOST_SMOOTHED:
                columns.append(torch.tensor(bins))
        most = max(map(len, columns), default=0)
        neighbours = torch.zeros(len(columns), most, dtype=torch.int64)
        weights = torch.zeros(len(columns), most, most)
        keeps_own = torch.ones(sum(field.size for field in fields), 1)
        flat_indices = [torch.zeros(0, dtype=torch.int64)]
        for index, rows in enumerate(columns):
            count = len(rows)
            bell = torch.exp(-0.5 * ((rows[:, None] - rows) / sd) ** 2)
            weights[index, :count, :count] = bell / bell.sum(1, keepdim=True)
            neighbours[index, :count] = rows
            keeps_own[rows] = 0.0
            flat_indices.append(index * most + torch.arange(count))
        smoothed_rows = torch.cat([flat_indices[0], *columns])
        self.register_buffer("keeps_own", keeps_own, False)  # (all, 1): 0 where E is smoothed
        self.register_buffer("smoothed_rows", smoothed_rows, False)
        self.register_buffer("flat_indices", torch.cat(flat_indices), False)
        self.register_buffer("neighbours", neighbours, False)  # (smoothed columns, K)
        self.register_buffer("weights", weights, False)  # (smoothed columns, K, K)

    def forward(self, own: Tensor, ordered_rows: Tensor, between: Tensor) -> Tensor:
        """E plus the ordered part of eq. 5: (all, D) and (ordered rows, D) -> (all, D)."""
        table = (own * self.keeps_own).index_add(0, ordered_rows, between)
        if len(self.smoothed_rows) == 0:
            return table
        neighbours = F.embedding(self.neighbours, own)  # (smoothed columns, K, D)
        smooth = torch.bmm(self.weights, neighbours).flatten(0, 1)  # (smoothed columns * K, D)
        return table.index_add(0, self.smoothed_rows, F.embedding(self.flat_indices, smooth))
