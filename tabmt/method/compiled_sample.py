"""New rows from the any-order network, with compiled kernels: the same distribution, faster.

`CompiledRows` takes the place of prefix_merging.RowBatch when nothing is known of the rows. What is
different: LayerNorm is folded into the next layer; matrix products are in bfloat16 where the
processor has instructions for it; the first block is computed once per code, not per row; and a
token's keys and values stay where they were computed, so that merging rows moves only indices.
"""

import logging
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabmt.method.any_order import AnyOrderNetwork
from tabmt.method.blocks import Block
from tabmt.method.draw_codes import LEAST_FLOAT32
from tabmt.tokens import MASK

log = logging.getLogger(__name__)


class Linear(NamedTuple):
    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class FoldedBlock(NamedTuple):
    """A transformer block whose inputs are already centred and scaled."""

    queries_keys_values: Linear
    attention_out: Linear
    mlp_in: Linear
    mlp_out: Linear


class CompiledNetwork:
    """The weights of an any-order network as the kernels need them."""

    def __init__(self, net: AnyOrderNetwork) -> None:
        from tabmt.method.kernels import network_kernels

        blocks: list[Block] = list(net.blocks)  # type: ignore[arg-type]
        self.sizes = net.sizes
        self.dtype = torch.bfloat16 if has_bfloat16() else torch.float32
        self.kernels = network_kernels(net.positions.shape[1], blocks[0].heads)
        with torch.inference_mode():
            tables = net.tables()
            self.inputs, self.next_positions = tables.inputs, net.next_positions
            self.offsets = net.embedding.offsets.tolist()
            self.blocks = [_folded_block(block, self.dtype) for block in blocks]
            # Logits stay in float32: as the inputs of a softmax they must be precise.
            self.outputs = [_folded(net.norm, *layer) for layer in tables.outputs]

    def can_draw(self, tokens: Tensor, temperature: Tensor) -> bool:
        """Whether all cells are masked, and no temperature needs the precision of float64."""
        return bool((tokens == MASK).all()) and bool((temperature > LEAST_FLOAT32).all())


def compile_network(net: nn.Module) -> CompiledNetwork | None:
    """The network with compiled kernels; None if there are none for it here. The log says why."""
    if not isinstance(net, AnyOrderNetwork) or net.positions.device.type != "cpu":
        return None
    try:
        compiled = CompiledNetwork(net)
    except ImportError:
        log.info("sampling: without compiled kernels; `pip install tabmt[fast]` makes it faster")
        return None
    log.info("sampling: with compiled kernels, matrix products in %s", str(compiled.dtype)[6:])
    return compiled


def has_bfloat16() -> bool:
    """Whether the processor multiplies matrices of bfloat16 faster than those of float32."""
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return supported is not None and bool(supported())


class CompiledRows:
    """A chunk of new rows that is being filled: distinct prefixes, and the rows of each.

    The rows of prefix p are `row_ids[starts[p] : starts[p + 1]]`. Its tokens have their keys and
    values in the rows `places[p]` of the caches: one row per code in the first block, and one per
    prefix of that step in the others.
    """

    def __init__(
        self,
        net: CompiledNetwork,
        count: int,
        *,
        temperature: Tensor,
        generator: torch.Generator,
    ) -> None:
        self._net, self._temperature, self._generator = net, temperature, generator
        columns, width = len(net.sizes), net.inputs.shape[1]
        self._tokens = np.full((columns, count), MASK)
        self._row_ids, self._starts = np.arange(count), np.array([0, count])
        self._before: int | None = None  # the column that was drawn last ...
        self._codes = np.zeros(1, np.int32)  # ... and its code, (P,)
        self._step = 0
        most = max(net.sizes) if count else 0
        self._first_cache = torch.empty(columns * min(most, count), 2 * width, dtype=net.dtype)
        self._first_used = self._used = 0
        self._caches = [
            torch.empty(columns * count, 2 * width, dtype=net.dtype) for _ in net.blocks[1:]
        ]
        self._first_places = np.zeros((1, columns), np.int32)  # (P, T)
        self._places = np.zeros((1, columns), np.int32)  # (P, T)

    def __len__(self) -> int:
        return len(self._row_ids)

    @property
    def tokens(self) -> Tensor:
        """(B, C), MASK where nothing is drawn yet."""
        return torch.from_numpy(self._tokens).T

    def codes(self, column: int) -> Tensor:
        """(B,) codes of a column that was drawn."""
        return torch.from_numpy(self._tokens[column])

    def draw(self, column: int, allowed: Tensor | None = None) -> None:
        """Draw a column; `allowed` is a weight in [0, 1] per code, (K,)."""
        from tabmt.method.kernels import draw_and_split

        with torch.inference_mode():
            logits = self._logits(column)  # (P, K)
            if allowed is not None:
                logits += allowed.log() * float(self._temperature[column])
            uniform = torch.rand(len(self), generator=self._generator, dtype=torch.float64)
        rows = len(self)
        parents, codes = np.empty(rows, np.int32), np.empty(rows, np.int32)
        starts = np.empty(rows + 1, np.int64)
        count = draw_and_split(
            logits.numpy(),
            np.float32(1 / float(self._temperature[column])),
            uniform.numpy(),
            self._starts,
            self._row_ids,
            self._tokens[column],
            parents,
            codes,
            starts,
        )
        if count > len(self._starts) - 1:
            self._first_places = self._first_places[parents[:count]]
            self._places = self._places[parents[:count]]
        self._before, self._codes, self._starts = column, codes[:count], starts[: count + 1]

    def _logits(self, column: int) -> Tensor:
        """Logits of the next column for every prefix, (P, K)."""
        net, step = self._net, self._step
        inputs, input_rows = self._inputs(column)  # (N, D) and (P,)
        normed = F.layer_norm(inputs, inputs.shape[1:]).to(net.dtype)
        x = F.embedding(torch.from_numpy(input_rows), inputs)  # (P, D)
        out = torch.empty(x.shape, dtype=net.dtype)
        width = x.shape[1]
        every = np.arange(len(x), dtype=np.int32)
        for index, block in enumerate(net.blocks):
            projected = block.queries_keys_values(normed)  # (N, 3 D), then (P, 3 D)
            if index == 0:
                cache, places, rows = self._first_cache, self._first_places, input_rows
                used = self._first_used
                places[:, step] = used + rows
            else:
                cache, places, rows = self._caches[index - 1], self._places, every
                used = self._used
                places[:, step] = used + rows
            cache[used : used + len(projected)] = projected[:, width:]
            net.kernels.attend(
                _numpy(projected), rows, _numpy(cache), places, step + 1, _numpy(out)
            )
            net.kernels.add_and_normalise(_numpy(x), _numpy(block.attention_out(out)), _numpy(out))
            change = block.mlp_out(F.gelu(block.mlp_in(out)))
            normed = out if index + 1 < len(net.blocks) else torch.empty_like(x)
            net.kernels.add_and_normalise(_numpy(x), _numpy(change), _numpy(normed))
        self._first_used += len(inputs)
        self._used += len(x)
        self._step += 1
        return net.outputs[column](normed)

    def _inputs(self, column: int) -> tuple[Tensor, np.ndarray]:
        """The distinct inputs of a step, (N, D), and that of each prefix, (P,).

        One for each code of the column before, unless there are fewer prefixes than codes.
        """
        net, before = self._net, self._before
        if before is None:  # the start token
            inputs, rows = net.inputs[-1:], self._codes
        elif net.sizes[before] <= len(self._codes):
            first = net.offsets[before]
            inputs, rows = net.inputs[first : first + net.sizes[before]], self._codes
        else:
            inputs = net.inputs[torch.from_numpy(self._codes) + net.offsets[before]]
            rows = np.arange(len(self._codes), dtype=np.int32)
        return inputs + net.next_positions[column], rows


def _numpy(x: Tensor) -> np.ndarray:
    """The numbers of a tensor as the kernels read them: bfloat16 as uint16."""
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def _folded(norm: nn.LayerNorm, weight: Tensor, bias: Tensor) -> Linear:
    """A linear layer with the affine part of the LayerNorm before it."""
    return Linear(weight * norm.weight, bias + weight @ norm.bias)


def _folded_block(block: Block, dtype: torch.dtype) -> FoldedBlock:
    width, head = block.attention_out.weight.shape[0], 0
    head = width // block.heads
    # The kernel wants the heads to alternate: number i belongs to head i % heads.
    order = torch.arange(width).view(block.heads, head).T.flatten()
    qkv = block.queries_keys_values
    weight = qkv.weight.view(3, width, width)[:, order].clone()
    bias = qkv.bias.view(3, width)[:, order].clone()
    weight[0] *= head**-0.5
    bias[0] *= head**-0.5
    layers = (
        _folded(block.attention_norm, weight.flatten(0, 1), bias.flatten()),
        Linear(block.attention_out.weight[:, order], block.attention_out.bias),
        _folded(block.mlp_norm, block.mlp_in.weight, block.mlp_in.bias),
        Linear(block.mlp_out.weight, block.mlp_out.bias),
    )
    return FoldedBlock(*(Linear(*(x.to(dtype).contiguous() for x in layer)) for layer in layers))
