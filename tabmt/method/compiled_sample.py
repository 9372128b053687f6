"""New rows from the any-order network, with compiled kernels: the same distribution, faster.

`draw_chunks` does what sample.fill does, where nothing is known of the rows. What is different:
LayerNorm is folded into the next layer; matrix products are in bfloat16 where the processor has
instructions for it; the first block is computed once per code, not per row; a token's keys and
values stay where they were computed, so that merging rows moves only indices; and several chunks
are drawn side by side.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tabmt.errors import how_to_install
from tabmt.method.any_order import AnyOrderNetwork
from tabmt.method.blocks import Block
from tabmt.method.devices import has_bfloat16
from tabmt.method.draw_codes import check_logits

log = logging.getLogger(__name__)

MLP_ROWS = 2048  # whose activations inside the MLP stay in the processor's cache


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
            # The first block has few rows. Logits are in float32, because the softmax of large ones
            # needs the precision.
            self.blocks = [
                _folded_block(block, torch.float32 if index == 0 else self.dtype, self.dtype)
                for index, block in enumerate(blocks)
            ]
            self.outputs = [_folded(net.norm, *layer) for layer in tables.outputs]


def compile_network(net: nn.Module) -> CompiledNetwork | None:
    """The network with compiled kernels; None if there are none for it here. The log says why."""
    if not isinstance(net, AnyOrderNetwork) or net.positions.device.type != "cpu":
        return None
    try:
        compiled = CompiledNetwork(net)
    except ImportError:
        log.info("sampling: without compiled kernels; to sample faster, %s", how_to_install("fast"))
        return None
    log.info("sampling: with compiled kernels, matrix products in %s", str(compiled.dtype)[6:])
    return compiled


class Chunk(NamedTuple):
    """New rows that are drawn with one order of columns."""

    order: Sequence[int]
    generator: torch.Generator
    tokens: np.ndarray  # (C, B), filled by `draw_chunks`


def draw_chunks(
    net: CompiledNetwork,
    chunks: Sequence[Chunk],
    *,
    temperature: Tensor,
    allowed: Sequence[Tensor | None],
) -> None:
    """Fill chunks side by side: at each step every chunk draws the next column of its order.

    The matrix products of all chunks are one; only the layers of single columns, the first and the
    last, are computed for each chunk. The orders must have the same number of columns.
    """
    state = _State(net, [chunk.tokens.shape[1] for chunk in chunks], len(chunks[0].order))
    with torch.inference_mode():
        for step in range(len(chunks[0].order)):
            before = [chunk.order[step - 1] if step else None for chunk in chunks]
            outputs = state.advance(before, [chunk.order[step] for chunk in chunks])
            for chunk, rows, x in zip(chunks, state.rows, outputs, strict=True):
                column = chunk.order[step]
                logits = net.outputs[column](x)  # (P, K)
                check_logits(logits)
                logits /= float(temperature[column])
                if (weights := allowed[column]) is not None:
                    logits += weights.log()
                rows.draw(logits, chunk.generator, chunk.tokens[column])
            state.split()


class _Rows:
    """The rows of a chunk, by prefix: those of prefix p are row_ids[starts[p] : starts[p + 1]]."""

    def __init__(self, count: int) -> None:
        self.row_ids, self.starts = np.arange(count), np.array([0, count])
        self.codes = np.zeros(1, np.int32)  # (P,) the last code of each prefix
        self.parents = np.zeros(1, np.int32)  # (P,) the prefix without that code

    def draw(self, logits: Tensor, generator: torch.Generator, drawn: np.ndarray) -> None:
        """Draw a code for each row into `drawn`, (B,); rows with another code have another
        prefix from now on."""
        from tabmt.method.kernels import draw_and_split

        count = len(self.row_ids)
        uniform = torch.rand(count, generator=generator, dtype=torch.float64)
        codes, parents = np.empty(count, np.int32), np.empty(count, np.int32)
        starts = np.empty(count + 1, np.int64)
        prefixes = draw_and_split(
            logits.numpy(),
            uniform.numpy(),
            self.starts,
            self.row_ids,
            drawn,
            parents,
            codes,
            starts,
        )
        self.codes, self.parents = codes[:prefixes], parents[:prefixes]
        self.starts = starts[: prefixes + 1]


class _State:
    """The prefixes of all chunks, one chunk after the other, and the keys and values of each token.

    `_cache_rows` says where a prefix has them in the caches: in the first block there is one row
    per code of the column before, in the other blocks one per prefix of that step.
    """

    def __init__(self, net: CompiledNetwork, counts: Sequence[int], steps: int) -> None:
        self._net, self._step = net, 0
        self.rows = [_Rows(count) for count in counts]
        width = net.inputs.shape[1]
        in_first = sum(min(count, max(net.sizes)) for count in counts) * steps
        sizes = [in_first] + [sum(counts) * steps] * (len(net.blocks) - 1)
        self._caches = [torch.empty(size, 2 * width, dtype=net.dtype) for size in sizes]
        self._used = [0] * len(sizes)
        # (P, T) of the first block, and of the others
        self._cache_rows = [np.zeros((len(counts), steps), np.int32) for _ in range(2)]

    def advance(self, before: Sequence[int | None], columns: Sequence[int]) -> list[Tensor]:
        """One more token for each prefix: what the next column is predicted from, (P, D)."""
        net, kernels = self._net, self._net.kernels
        inputs, input_rows = self._inputs(before, columns)  # (N, D) and (P,)
        x = F.embedding(torch.from_numpy(input_rows), inputs)  # (P, D)
        count, width = x.shape
        every = np.arange(count, dtype=np.int32)
        hidden = torch.zeros(_padded(count), width, dtype=net.dtype)
        normed = F.layer_norm(inputs, (width,))
        for index, block in enumerate(net.blocks):
            projected = block.queries_keys_values(normed).to(net.dtype)  # (N or P, 3 D)
            size, rows = (len(inputs), input_rows) if index == 0 else (count, every)
            cache, used = self._caches[index], self._used[index]
            cache[used : used + size] = projected[:size, width:]
            self._used[index] += size
            cache_rows = self._cache_rows[min(index, 1)]
            cache_rows[:, self._step] = rows + used
            kernels.attend(
                _numpy(projected), rows, _numpy(cache), cache_rows, self._step + 1, _numpy(hidden)
            )
            change = block.attention_out(hidden)
            kernels.add_and_normalise(_numpy(x), _numpy(change), _numpy(hidden))
            is_last = index + 1 == len(net.blocks)
            normed = torch.empty_like(x) if is_last else hidden  # the output layer is in float32
            parts = zip(
                *(torch.split(each, MLP_ROWS) for each in (x, hidden, normed)), strict=False
            )
            for part, inputs_of_part, out in parts:
                change = block.mlp_out(F.gelu(block.mlp_in(inputs_of_part)))
                kernels.add_and_normalise(_numpy(part), _numpy(change), _numpy(out))
        self._step += 1
        return list(torch.split(normed, [len(rows.codes) for rows in self.rows]))

    def split(self) -> None:
        """Continue with the prefixes of the rows as they are now."""
        parents, first = [], 0
        for rows, count in zip(self.rows, self._counts, strict=True):
            parents.append(rows.parents + first)
            first += count
        self._cache_rows = [cache_rows[np.concatenate(parents)] for cache_rows in self._cache_rows]

    def _inputs(
        self, before: Sequence[int | None], columns: Sequence[int]
    ) -> tuple[Tensor, np.ndarray]:
        """The distinct inputs of a step, (N, D), and which of them each prefix has, (P,).

        There is one for each code of the column before, unless a chunk has fewer prefixes.
        """
        net, first = self._net, 0
        inputs, input_rows = [], []
        self._counts = [len(rows.codes) for rows in self.rows]
        for rows, previous, column in zip(self.rows, before, columns, strict=True):
            codes = rows.codes
            if previous is None:
                table = net.inputs[-1:]  # the start token
            elif net.sizes[previous] <= len(codes):
                start = net.offsets[previous]
                table = net.inputs[start : start + net.sizes[previous]]
            else:
                table = net.inputs[torch.from_numpy(codes) + net.offsets[previous]]
                codes = np.arange(len(codes), dtype=np.int32)
            inputs.append(table + net.next_positions[column])
            input_rows.append(codes + np.int32(first))
            first += len(table)
        return torch.cat(inputs), np.concatenate(input_rows)


def _padded(rows: int) -> int:
    """At least so many rows. For every new shape PyTorch prepares a product again, which takes as
    long as a hundred rows; so there are few shapes."""
    step = 1 << max(4, rows.bit_length() - 4)
    return -(-rows // step) * step


def _numpy(x: Tensor) -> np.ndarray:
    """The numbers of a tensor as the kernels read them: bfloat16 as uint16."""
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def _folded(norm: nn.LayerNorm, weight: Tensor, bias: Tensor) -> Linear:
    """A linear layer with the affine part of the LayerNorm before it."""
    return Linear(weight * norm.weight, bias + weight @ norm.bias)


def _folded_block(block: Block, first: torch.dtype, dtype: torch.dtype) -> FoldedBlock:
    width = len(block.attention_out.weight)
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
    types = (first, dtype, dtype, dtype)
    return FoldedBlock(
        *(
            Linear(*(parameter.to(of_layer).contiguous() for parameter in layer))
            for layer, of_layer in zip(layers, types, strict=True)
        )
    )
