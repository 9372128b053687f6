"""All per-field embeddings and output layers of a table, held as one weight with offsets.

For the networks: one gather brings tokens in, one slice per field brings logits out, and both use
the same table (the paper's tied "dynamic linear layer"). A field here is a number of codes and,
for numbers, their ratios; column names, values and kinds are the codec's business.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabmt.method.loss import PART, ChunkedCrossEntropy, Others, sampled_cross_entropy
from tabmt.tokens import MASK

EMBEDDING_SD = 0.05  # paper, appendix "Pseudocode": embeddings, end points and mask token alike
MANY_CODES = 1000
WORTH_SAMPLING = 4  # times as many codes as are looked at, or all are
MOST_SMOOTHED = 256  # codes of a field that share; the weights of more would fill the memory


@dataclass(frozen=True)
class Field:
    """One column as the networks see it: how many codes, and where ordered codes lie.

    `ratios` is the paper's r (eq. 4) of a numeric field, None for a categorical one. It covers
    all codes, or all but the last: a missing code comes last and has no place in the order.
    `bins` tells which of the ordered codes are ranges of numbers; the others are single values.
    """

    size: int
    ratios: tuple[float, ...] | None = None
    bins: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        assert self.size >= 1
        if self.ratios is not None:
            assert len(self.ratios) in (self.size, self.size - 1)
            assert all(0.0 <= ratio <= 1.0 for ratio in self.ratios)
            assert len(self.bins) in (0, len(self.ratios))


def many_codes(sizes: Sequence[int], target: int | None) -> list[int]:
    """The columns that are drawn first: those of very many codes, unless one is the target."""
    return [i for i, size in enumerate(sizes) if size > MANY_CODES and i != target]


class Linear(NamedTuple):
    """A plain linear layer: logits = x @ weight.T + bias."""

    weight: Tensor  # (K, D)
    bias: Tensor  # (K,)


Tables = tuple[Tensor, tuple[Linear, ...]]  # embeddings of codes, and output layers, for inference


class Output(NamedTuple):
    """The output layer of a field: the paper's dynamic linear layer."""

    weight: Tensor  # (K, D), the field's part of the table
    bias: Tensor  # (K,)
    heat: Tensor  # (), the learned temperature of eq. 6
    others: Others | None = None  # for a loss that does not look at all codes

    def logits(self, x: Tensor) -> Tensor:
        """(x W + b) / heat: (B, D) -> (B, K)."""
        # Divided before the product: there are far fewer numbers.
        return F.linear(x / self.heat, self.weight, self.bias / self.heat)

    def cross_entropy(self, x: Tensor, codes: Tensor) -> Tensor:
        """Summed nats of codes, (B, D) and (B,); MASK does not count."""
        size = len(self.bias)
        if self.others is None and len(x) * size <= PART:
            return F.cross_entropy(self.logits(x), codes, reduction="sum", ignore_index=MASK)
        scaled, bias = x / self.heat, self.bias / self.heat
        if self.others is not None:
            return sampled_cross_entropy(scaled, self.weight, bias, codes, self.others)
        total: Tensor = ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            scaled, self.weight, bias, codes, max(1, PART // size)
        )
        return total


class Fields(nn.Module):
    """Embeddings and output layers of every field; all codes of all fields in one table.

    "All" below is the sum of K over the fields. The ratios are not part of the state dict: they
    follow from `fields`, and must not exist twice on disk.
    """

    offsets: Tensor
    ordered_rows: Tensor
    ordered_fields: Tensor
    ratios: Tensor
    own: Tensor
    shared: Tensor
    shared_places: Tensor
    sharing: Tensor
    shares: Tensor

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
        self.fields = tuple(fields)
        self.sizes = tuple(field.size for field in fields)
        starts = [0, *accumulate(self.sizes)][:-1]

        rows: list[int] = []  # rows of the table that eq. 5 orders
        owners: list[int] = []  # and the end points each of them lies between
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

        total = sum(self.sizes)
        self._share_among_neighbours(starts, total, smoothing)
        unordered = torch.empty(total, width).normal_(std=EMBEDDING_SD, generator=generator)
        unordered[self.ordered_rows] = 0.0  # paper: the network shall rely on the order first
        self.unordered = nn.Parameter(unordered)  # (all, D), the paper's E of each field
        ends = torch.empty(2, ordered, width).normal_(std=EMBEDDING_SD, generator=generator)
        self.low = nn.Parameter(ends[0].clone())  # (ordered fields, D), the paper's l
        self.high = nn.Parameter(ends[1].clone())  # (ordered fields, D), the paper's h
        self.bias = nn.Parameter(torch.zeros(total))
        self.temperature = nn.Parameter(torch.ones(len(fields)))
        self._by_frequency: list[Tensor | None] = [None] * len(fields)
        self._others = 0

    def start_at_frequencies(self, counts: Sequence[Tensor | np.ndarray]) -> None:
        """Set the biases so that, before training, codes come as often as in `counts`, (K,) each.

        PAPER-DIFF: the paper does not say where biases start; from zero, the first hundreds of
        steps would go into learning the marginals.
        """
        with torch.no_grad():
            for column, count in enumerate(map(torch.as_tensor, counts)):
                shares = (count + 1) / (count + 1).sum()  # no code is impossible
                tau = torch.sigmoid(self.temperature[column])
                self.bias[self.codes_of(column)] = shares.log() * tau

    def _share_among_neighbours(self, starts: Sequence[int], total: int, reach: float) -> None:
        """Weights with which bins of numbers take part in each other's embedding E: a bell curve
        over so many codes; 0 leaves each its own, as in the paper.

        PAPER-DIFF: in the paper each code has an E of its own. Of numbers that stand a hundredth
        apart, few rows tell which is which; what is learned of one then holds for its neighbours
        too, and small tables bear more codes (docs/log.md). A single value that has a code (a zip
        code, 40 hours) is frequent enough to be learned by itself.
        """
        smoothed = []
        for field, start in zip(self.fields, starts, strict=True):
            rows = [start + code for code, is_bin in enumerate(field.bins) if is_bin]
            if reach > 0 and 1 < len(rows) <= MOST_SMOOTHED:
                smoothed.append(torch.tensor(rows))
        most = max(map(len, smoothed), default=0)
        sharing = torch.zeros(len(smoothed), most, dtype=torch.int64)
        shares = torch.zeros(len(smoothed), most, most)
        own, flat = torch.ones(total, 1), [torch.zeros(0, dtype=torch.int64)]
        for which, places in enumerate(smoothed):
            count = len(places)
            weights = torch.exp(-0.5 * ((places[:, None] - places) / reach) ** 2)
            shares[which, :count, :count] = weights / weights.sum(1, keepdim=True)
            sharing[which, :count] = places
            own[places] = 0.0
            flat.append(which * most + torch.arange(count))
        shared = torch.cat([flat[0], *smoothed])
        self.register_buffer("own", own, persistent=False)  # 0 where the weights below say all
        self.register_buffer("shared", shared, persistent=False)
        self.register_buffer("shared_places", torch.cat(flat), persistent=False)
        self.register_buffer("sharing", sharing, persistent=False)
        self.register_buffer("shares", shares, persistent=False)

    def table(self) -> Tensor:
        """The embedding of every code of every field, (all, D).

        Compute it once per pass and hand it to the methods below, so that the gradients of the
        input and of the output meet in it.
        """
        if self.ordered_rows.numel() == 0:
            return self.unordered
        low = F.embedding(self.ordered_fields, self.low)  # (ordered rows, D)
        high = F.embedding(self.ordered_fields, self.high)  # (ordered rows, D)
        between = self.ratios * low + (1 - self.ratios) * high  # eq. 5 without E
        table = (self.unordered * self.own).index_add(0, self.ordered_rows, between)  # (all, D)
        if len(self.shared) == 0:
            return table
        neighbours = F.embedding(self.sharing, self.unordered)  # (smoothed fields, K, D)
        smooth = torch.bmm(self.shares, neighbours).flatten(0, 1)  # (smoothed fields * K, D)
        return table.index_add(0, self.shared, F.embedding(self.shared_places, smooth))

    def rows(self, tokens: Tensor) -> Tensor:
        """The table row of each token, (B, C); MASK becomes the row after the last."""
        return torch.where(tokens == MASK, len(self.unordered), tokens + self.offsets)

    def codes_of(self, column: int) -> slice:
        """The part of the table that belongs to one field."""
        start = sum(self.sizes[:column])
        return slice(start, start + self.sizes[column])

    def embed(self, table: Tensor, tokens: Tensor, mask_token: Tensor) -> Tensor:
        """Embeddings of tokens, MASK included: (B, C) -> (B, C, D)."""
        return F.embedding(self.rows(tokens), torch.cat([table, mask_token[None]]))

    def compare_with_some(self, counts: Sequence[Tensor | np.ndarray], codes: int) -> None:
        """Have fields of very many codes compare the right one with so many others in training:
        half of them the most frequent by `counts`, (K,) each, half drawn in each pass."""
        self._by_frequency = [
            torch.as_tensor(count).argsort(descending=True).to(self.offsets.device)
            if 0 < codes * WORTH_SAMPLING <= len(count)
            else None
            for count in counts
        ]
        self._others = codes // 2

    def outputs(self, table: Tensor, generator: torch.Generator | None = None) -> list[Output]:
        """The output layer of each field, from `table`; with a generator, for training."""
        # All in one split: slices would each send back a gradient as large as the whole table.
        weights, biases = (torch.split(one, list(self.sizes)) for one in (table, self.bias))
        heat = torch.sigmoid(self.temperature).unbind()
        others = [
            None if generator is None else self._draw(o, generator) for o in self._by_frequency
        ]
        return [Output(*parts) for parts in zip(weights, biases, heat, others, strict=True)]

    def _draw(self, by_frequency: Tensor | None, generator: torch.Generator) -> Others | None:
        if by_frequency is None:
            return None
        often, rest = by_frequency[: self._others], by_frequency[self._others :]
        drawn = torch.randint(
            len(rest), (self._others,), generator=generator, device=generator.device
        )
        log_weight = self.bias.new_zeros(2 * self._others)
        log_weight[self._others :] = math.log(len(rest) / self._others)
        return Others(torch.cat([often, rest[drawn]]), log_weight)

    def fold(self) -> tuple[Linear, ...]:
        """The traditional linear layer of each field with the same logits, for inference."""
        with torch.no_grad():
            return tuple(
                Linear(one.weight / one.heat, one.bias / one.heat)
                for one in self.outputs(self.table())
            )
