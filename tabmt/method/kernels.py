"""Compiled loops for sampling with one token per row: attention, LayerNorm, GELU, drawing.

Needs numba (`pip install tabmt[fast]`); only compiled_sample.py imports this module. Activations
are float32, or bfloat16 as uint16, which numpy does not know; sums are float32, and cumulated
probabilities float64. numba compiles a function at its first call and stores it on disk.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LEAST_EXPONENT = np.float32(-80.0)  # exp of less is 0
EPSILON = np.float32(1e-5)  # of LayerNorm, as in PyTorch
BLOCK = 16  # codes whose weights are summed before one of them is drawn
FEW = 24  # so many rows are sorted by insertion, more by counting


def compiled(function: Callable[..., Any]) -> Any:
    return njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract", "arcp"})(function)


# --- single numbers ------------------------------------------------------------------------


@intrinsic  # type: ignore[untyped-decorator]
def widen(typing_context: Any, x: Any) -> Any:
    """float32, or the upper half of one as uint16, to float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if x != types.uint16:
            return arguments[0]
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.IntType(32)(16)), ir.FloatType())

    return types.float32(x), generate


@intrinsic  # type: ignore[untyped-decorator]
def narrow(typing_context: Any, x: Any, like: Any) -> Any:
    """float32 to the type of `like`: float32, or uint16 as the upper half, rounded to even."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if like != types.uint16:
            return arguments[0]
        word = ir.IntType(32)
        bits = builder.bitcast(arguments[0], word)
        odd = builder.and_(builder.lshr(bits, word(16)), word(1))
        rounded = builder.add(bits, builder.add(odd, word(0x7FFF)))
        return builder.trunc(builder.lshr(rounded, word(16)), ir.IntType(16))

    return like(types.float32, like), generate


@intrinsic  # type: ignore[untyped-decorator]
def float_of_bits(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@njit(inline="always", fastmath={"contract"})  # type: ignore[untyped-decorator]
def exponential(x: Any) -> Any:
    """exp of a float32 that is 0 or less, to 2e-7 of its value; 0 below LEAST_EXPONENT."""
    bounded = max(x, LEAST_EXPONENT)
    # x = power * log(2) + rest; the conversion truncates, so the number is made positive first.
    power = np.int32(bounded * np.float32(1.4426950408889634) + np.float32(128.5)) - np.int32(128)
    rest = bounded - np.float32(power) * np.float32(0.693359375)
    rest = rest + np.float32(power) * np.float32(2.12194440e-4)
    series = np.float32(1.9875691500e-4)
    series = series * rest + np.float32(1.3981999507e-3)
    series = series * rest + np.float32(8.3334519073e-3)
    series = series * rest + np.float32(4.1665795894e-2)
    series = series * rest + np.float32(1.6666665459e-1)
    series = series * rest + np.float32(5.0000001201e-1)
    series = series * rest * rest + rest + np.float32(1.0)
    scaled = series * float_of_bits((power + np.int32(127)) << np.int32(23))
    return scaled if x > LEAST_EXPONENT else np.float32(0.0)


# --- the network ---------------------------------------------------------------------------


class NetworkKernels(NamedTuple):
    """The kernels for one width and number of heads, which the compiler has to know."""

    attend: Callable[..., None]
    add_and_normalise: Callable[..., None]


def head_lanes(width: int, heads: int) -> int:
    """How many numbers of a query are multiplied at once: a multiple of the heads."""
    lanes = heads * max(1, 16 // heads)
    return lanes if width % lanes == 0 else heads


@cache
def network_kernels(width: int, heads: int) -> NetworkKernels:
    lanes = head_lanes(width, heads)
    layers, copies = width // lanes, lanes // heads

    @compiled
    def attend(queries, query_rows, cached, places, steps, out):  # type: ignore[no-untyped-def]
        """Attention of one token per row over its earlier tokens and itself.

        Row i has the query `queries[query_rows[i]]`, already scaled, and its tokens have their key
        and value, side by side, in `cached[places[i, :steps]]`: (B, width) -> `out`, (B, width).
        The heads alternate: number i of a query, key or value belongs to head i % heads, so that
        all heads are computed at once.
        """
        query = np.empty(width, np.float32)
        mixed = np.empty(width, np.float32)
        wide = np.empty(steps * lanes, np.float32)  # the weight of each step, by lane
        scores = np.empty(steps * heads, np.float32)
        largest = np.empty(heads, np.float32)
        share = np.empty(heads, np.float32)
        for row in range(len(query_rows)):
            source = query_rows[row]
            for i in range(width):
                query[i] = widen(queries[source, i])
            for step in range(steps):
                place = places[row, step]
                for i in range(lanes):
                    product = np.float32(0.0)
                    for layer in range(layers):
                        product += query[layer * lanes + i] * widen(
                            cached[place, layer * lanes + i]
                        )
                    wide[step * lanes + i] = product
            for h in range(heads):
                largest[h] = -np.inf
            for step in range(steps):
                for h in range(heads):
                    score = np.float32(0.0)
                    for copy in range(copies):
                        score += wide[step * lanes + copy * heads + h]
                    scores[step * heads + h] = score
                    largest[h] = max(largest[h], score)
            for step in range(steps):
                for h in range(heads):
                    scores[step * heads + h] -= largest[h]
            for i in range(steps * heads):
                scores[i] = exponential(scores[i])
            for h in range(heads):
                total = np.float32(0.0)
                for step in range(steps):
                    total += scores[step * heads + h]
                share[h] = np.float32(1.0) / total
            for step in range(steps):
                for copy in range(copies):
                    for h in range(heads):
                        wide[step * lanes + copy * heads + h] = scores[step * heads + h] * share[h]
            mixed[:] = 0.0
            for step in range(steps):
                place = places[row, step]
                for i in range(lanes):
                    weight = wide[step * lanes + i]
                    for layer in range(layers):
                        mixed[layer * lanes + i] += weight * widen(
                            cached[place, width + layer * lanes + i]
                        )
            for i in range(width):
                out[row, i] = narrow(mixed[i], out[0, 0])

    @compiled
    def add_and_normalise(x, change, out):  # type: ignore[no-untyped-def]
        """x += change, and LayerNorm of the sum, without its affine part, into `out`; (B, width)"""
        for row in range(len(x)):
            total = np.float32(0.0)
            for i in range(width):
                x[row, i] += widen(change[row, i])
                total += x[row, i]
            mean = total / np.float32(width)
            squares = np.float32(0.0)
            for i in range(width):
                difference = x[row, i] - mean
                squares += difference * difference
            scale = np.float32(1.0) / np.sqrt(squares / np.float32(width) + EPSILON)
            for i in range(width):
                out[row, i] = narrow((x[row, i] - mean) * scale, out[0, 0])

    return NetworkKernels(attend, add_and_normalise)


# --- drawing -------------------------------------------------------------------------------


@compiled
def draw_and_split(logits, sharpness, uniform, starts, row_ids, drawn, parents, codes, next_starts):  # type: ignore[no-untyped-def]
    """Draw a code for each row, and group the rows by prefix and code.

    Prefix p has the rows `row_ids[starts[p] : starts[p + 1]]`, which draw from
    softmax(logits[p] * sharpness). Writes the codes into `drawn`, by row; sorts `row_ids`; writes
    the parent, the code and the first row of each prefix after the draw, and returns their number.
    """
    prefixes, size = logits.shape
    blocks = (size + BLOCK - 1) // BLOCK
    weights = np.zeros(blocks * BLOCK, np.float32)
    ends = np.empty(blocks, np.float64)  # cumulated weights of blocks of codes
    counts = np.zeros(size + 1, np.int64)
    ids = np.empty(len(row_ids), np.int64)
    count = 0
    for prefix in range(prefixes):
        first, last = starts[prefix], starts[prefix + 1]
        largest = logits[prefix, 0]
        for k in range(1, size):
            largest = max(largest, logits[prefix, k])
        for k in range(size):
            weights[k] = exponential((logits[prefix, k] - largest) * sharpness)
        total = np.float64(0.0)
        for block in range(blocks):
            block_sum = np.float32(0.0)
            for k in range(block * BLOCK, block * BLOCK + BLOCK):
                block_sum += weights[k]
            total += np.float64(block_sum)
            ends[block] = total
        for row in range(first, last):
            point = uniform[row_ids[row]] * total
            low, high = 0, blocks - 1  # the first block whose end lies above the point
            while low < high:
                middle = (low + high) // 2
                if ends[middle] > point:
                    high = middle
                else:
                    low = middle + 1
            reached = ends[low - 1] if low > 0 else np.float64(0.0)
            code = low * BLOCK
            final = code + BLOCK - 1
            reached += np.float64(weights[code])
            while reached <= point and code < final:
                code += 1
                reached += np.float64(weights[code])
            while weights[code] == 0.0:  # sums are rounded, and may end just below the point
                code -= 1
            drawn[row_ids[row]] = code
        if last - first == 1:
            parents[count], codes[count] = prefix, drawn[row_ids[first]]
            next_starts[count] = first
            count += 1
            continue
        if last - first <= FEW:
            for row in range(first + 1, last):
                moving = row_ids[row]
                code = drawn[moving]
                at = row
                while at > first and drawn[row_ids[at - 1]] > code:
                    row_ids[at] = row_ids[at - 1]
                    at -= 1
                row_ids[at] = moving
        else:
            counts[:] = 0
            for row in range(first, last):
                counts[drawn[row_ids[row]] + 1] += 1
            for k in range(size):
                counts[k + 1] += counts[k]
            for row in range(first, last):
                code = drawn[row_ids[row]]
                ids[counts[code]] = row_ids[row]
                counts[code] += 1
            for row in range(first, last):
                row_ids[row] = ids[row - first]
        for row in range(first, last):
            code = drawn[row_ids[row]]
            if row == first or code != codes[count - 1]:
                parents[count], codes[count], next_starts[count] = prefix, code, row
                count += 1
    next_starts[count] = len(row_ids)
    return count
