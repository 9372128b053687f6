"""Compiled loops for sampling with one token per row: attention, LayerNorm, drawing.

Needs numba (`pip install tabmt[fast]`); only compiled_sample.py imports this module. Activations
are float32, or bfloat16 as uint16, which numpy does not know; sums are float32, and cumulated
probabilities float64. numba compiles a function at its first call and stores it on disk.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LEAST_EXPONENT = np.float32(-80.0)  # exp of less is 0
EPSILON = np.float32(1e-5)  # of LayerNorm, as in PyTorch
BLOCK = 16  # codes whose weights are summed before one of them is drawn
TILE = 16  # rows whose attention is computed together
FEW = 24  # so many rows are sorted by insertion, more by counting


def compiled(function: Callable[..., Any]) -> Any:
    """Compile at the first call. Sums may be rounded in any order; infinite numbers are allowed."""
    options = {"nogil": True, "fastmath": {"reassoc", "nsz", "contract", "arcp", "nnan"}}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the compiled code can be written
        return njit(**options)(function)


# --- single numbers ------------------------------------------------------------------------


@intrinsic
def widen(typing_context: Any, x: Any) -> Any:
    """float32, or the upper half of one as uint16, to float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if x != types.uint16:
            return arguments[0]
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.IntType(32)(16)), ir.FloatType())

    return types.float32(x), generate


@intrinsic
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


@intrinsic
def float_of_bits(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic(prefer_literal=True)
def floats_on_stack(typing_context: Any, count: Any) -> Any:
    """A pointer to so many float32. The compiler knows that nothing else points there, so it can
    hold them in registers, and need not check whether arrays overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory = cgutils.alloca_once(builder, ir.ArrayType(ir.FloatType(), count.literal_value))
        return builder.bitcast(memory, ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(count), generate


@njit(inline="always", fastmath={"contract"})
def exponential(x: Any) -> Any:
    """exp of a float32 that is 0 or less, to 2e-7 of its value; 0 below LEAST_EXPONENT."""
    bounded = max(x, LEAST_EXPONENT)
    # x = power * log(2) + rest; the conversion truncates, so the number is made positive first.
    shifted = np.int32(bounded * np.float32(1.4426950408889634) + np.float32(128.5))
    power = np.int32(shifted - np.int32(128))
    rest = bounded - np.float32(power) * np.float32(0.693359375)
    rest = rest + np.float32(power) * np.float32(2.12194440e-4)
    series = np.float32(1.9875691500e-4)
    series = series * rest + np.float32(1.3981999507e-3)
    series = series * rest + np.float32(8.3334519073e-3)
    series = series * rest + np.float32(4.1665795894e-2)
    series = series * rest + np.float32(1.6666665459e-1)
    series = series * rest + np.float32(5.0000001201e-1)
    series = series * rest * rest + rest + np.float32(1.0)
    scaled = series * float_of_bits(np.int32((power + np.int32(127)) << np.int32(23)))
    return scaled if x > LEAST_EXPONENT else np.float32(0.0)


# --- vectors of numbers --------------------------------------------------------------------
#
# The heads alternate: number i of a query, key or value belongs to head i % heads. So a vector
# holds the same numbers of every head, and attention computes all heads at once.

NUMBER, INDEX = ir.FloatType(), ir.IntType(64)
INEXACT = ("contract", "nsz", "reassoc")


def _lanes(width: int, heads: int) -> int:
    """The numbers of a vector: as many for each head, and at most 16 if possible."""
    lanes = heads
    while lanes <= 8 and width % (2 * lanes) == 0:
        lanes *= 2
    return lanes


def _address(context: Any, builder: Any, array: Any, value: Any, row: Any, column: Any) -> Any:
    """Of array[row, column], for a contiguous array."""
    fields = context.make_array(array)(context, builder, value)
    columns = cgutils.unpack_tuple(builder, fields.shape)[1]
    return builder.gep(fields.data, [builder.add(builder.mul(row, columns), column)])


def _load(builder: Any, address: Any, dtype: Any, offset: int, count: int) -> Any:
    """`count` numbers as a vector of float32."""
    halves = dtype == types.uint16
    vector = ir.VectorType(ir.IntType(16) if halves else NUMBER, count)
    address = builder.bitcast(builder.gep(address, [INDEX(offset)]), vector.as_pointer())
    read = builder.load(address, align=2 if halves else 4)
    if not halves:
        return read
    words = ir.VectorType(ir.IntType(32), count)
    upper = builder.shl(builder.zext(read, words), ir.Constant(words, [16] * count))
    return builder.bitcast(upper, ir.VectorType(NUMBER, count))


def _store(builder: Any, vector: Any, address: Any, offset: int) -> None:
    address = builder.gep(address, [INDEX(offset)])
    builder.store(vector, builder.bitcast(address, vector.type.as_pointer()), align=4)


def _pick(builder: Any, vector: Any, positions: Sequence[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(positions)), list(positions))
    return builder.shuffle_vector(vector, vector, mask)


def _signature(context: Any, *arguments: Any) -> Any:
    numbers, cached, scores, width, heads = (arguments[i] for i in (0, 1, 3, 6, 7))
    return types.void(numbers, cached, types.int32, scores, types.int64, types.int64, width, heads)


@intrinsic(prefer_literal=True)
def score(context, query, cached, cache_row, scores, step, first, width, heads):
    """scores[step, first : first + heads] = query . key of each head; the key is in
    cached[cache_row]."""
    count, size = heads.literal_value, width.literal_value
    lanes = _lanes(size, count)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cache_row = builder.sext(arguments[2], INDEX)
        key = _address(context, builder, cached, arguments[1], cache_row, INDEX(0))
        total = ir.Constant(ir.VectorType(NUMBER, lanes), [0.0] * lanes)
        for offset in range(0, size, lanes):
            left = _load(builder, arguments[0], types.float32, offset, lanes)
            right = _load(builder, key, cached.dtype, offset, lanes)
            total = builder.fadd(total, builder.fmul(left, right, flags=INEXACT), flags=INEXACT)
        left_over = lanes
        while left_over > count:
            left_over //= 2
            halves = (range(left_over), range(left_over, 2 * left_over))
            total = builder.fadd(*(_pick(builder, total, half) for half in halves), flags=INEXACT)
        _store(builder, total, _address(context, builder, scores, *arguments[3:6]), 0)
        return context.get_dummy_value()

    return _signature(
        context, query, cached, cache_row, scores, step, first, width, heads
    ), generate


@intrinsic(prefer_literal=True)
def add_weighted(context, mixed, cached, cache_row, scores, step, first, width, heads):
    """mixed += the value in cached[cache_row], weighted by scores[step, first : first + heads]."""
    count, size = heads.literal_value, width.literal_value
    lanes = _lanes(size, count)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cache_row = builder.sext(arguments[2], INDEX)
        value = _address(context, builder, cached, arguments[1], cache_row, INDEX(size))
        address = _address(context, builder, scores, *arguments[3:6])
        weights = _load(builder, address, types.float32, 0, count)
        weights = _pick(builder, weights, [lane % count for lane in range(lanes)])
        for offset in range(0, size, lanes):
            numbers = _load(builder, value, cached.dtype, offset, lanes)
            product = builder.fmul(weights, numbers, flags=INEXACT)
            before = _load(builder, arguments[0], types.float32, offset, lanes)
            _store(builder, builder.fadd(before, product, flags=INEXACT), arguments[0], offset)
        return context.get_dummy_value()

    return _signature(
        context, mixed, cached, cache_row, scores, step, first, width, heads
    ), generate


# --- the network ---------------------------------------------------------------------------


class NetworkKernels(NamedTuple):
    """The kernels for one width and number of heads, which the compiler has to know."""

    attend: Callable[..., None]
    add_and_normalise: Callable[..., None]


@cache
def network_kernels(width: int, heads: int) -> NetworkKernels:
    @compiled
    def attend(queries, query_rows, cached, cache_rows, steps, out):
        """Attention of one token per row over its earlier tokens and itself.

        Row i has the query `queries[query_rows[i]]`, already scaled, and its tokens have their key
        and value, side by side, in `cached[cache_rows[i, :steps]]`. Writes `out`, (B, width).
        """
        query = floats_on_stack(width)
        mixed = floats_on_stack(width)
        query_numbers, mixed_numbers = carray(query, width), carray(mixed, width)
        # Some rows at a time, so that the softmax runs over long arrays: (T, TILE * heads)
        scores = np.zeros((steps, TILE * heads), np.float32)
        largest = np.empty(TILE * heads, np.float32)
        total = np.empty(TILE * heads, np.float32)
        for first in range(0, len(query_rows), TILE):
            rows = min(TILE, len(query_rows) - first)
            for row in range(rows):
                source = query_rows[first + row]
                for i in range(width):
                    query_numbers[i] = widen(queries[source, i])
                for step in range(steps):
                    cache_row = cache_rows[first + row, step]
                    score(query, cached, cache_row, scores, step, row * heads, width, heads)
            for i in range(TILE * heads):
                largest[i] = scores[0, i]
                total[i] = 0.0
            for step in range(1, steps):
                for i in range(TILE * heads):
                    largest[i] = max(largest[i], scores[step, i])
            for step in range(steps):
                for i in range(TILE * heads):
                    weight = exponential(scores[step, i] - largest[i])
                    scores[step, i] = weight
                    total[i] += weight
            for i in range(TILE * heads):
                total[i] = np.float32(1.0) / total[i]
            for step in range(steps):
                for i in range(TILE * heads):
                    scores[step, i] *= total[i]
            for row in range(rows):
                for i in range(width):
                    mixed_numbers[i] = 0.0
                for step in range(steps):
                    cache_row = cache_rows[first + row, step]
                    add_weighted(mixed, cached, cache_row, scores, step, row * heads, width, heads)
                for i in range(width):
                    out[first + row, i] = narrow(mixed_numbers[i], out[0, 0])

    @compiled
    def add_and_normalise(x, change, out):
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
def draw_and_split(logits, uniform, starts, row_ids, drawn, parents, codes, next_starts):
    """Draw a code for each row, and group the rows by prefix and code.

    Prefix p has the rows `row_ids[starts[p] : starts[p + 1]]`, which draw from softmax(logits[p]);
    each has a number from U(0, 1) in `uniform`, (B,). Writes the codes into `drawn`, by row; sorts
    `row_ids`; writes the parent, the code and the first row of each prefix after the draw, and
    returns how many prefixes there are.
    """
    prefixes, size = logits.shape
    blocks = (size + BLOCK - 1) // BLOCK
    weights = np.zeros(blocks * BLOCK, np.float32)
    ends = np.empty(blocks, np.float64)  # cumulated weights of blocks of codes
    counts = np.empty(size + 1, np.int64)
    sorted_ids = np.empty(len(row_ids), np.int64)
    count = 0
    for prefix in range(prefixes):
        first, last = starts[prefix], starts[prefix + 1]
        largest = logits[prefix, 0]
        for k in range(1, size):
            largest = logits[prefix, k] if logits[prefix, k] > largest else largest
        for k in range(size):
            weights[k] = exponential(logits[prefix, k] - largest)
        total = np.float64(0.0)
        for block in range(blocks):
            block_sum = np.float32(0.0)
            for k in range(block * BLOCK, block * BLOCK + BLOCK):
                block_sum += weights[k]
            total += np.float64(block_sum)
            ends[block] = total
        for row in range(first, last):
            drawn[row_ids[row]] = code_at(uniform[row_ids[row]] * total, weights, ends)
        if last - first > 1:
            sort_by_code(row_ids[first:last], drawn, counts, sorted_ids)
        for row in range(first, last):
            code = drawn[row_ids[row]]
            if row == first or code != codes[count - 1]:
                parents[count], codes[count], next_starts[count] = prefix, code, row
                count += 1
    next_starts[count] = len(row_ids)
    return count


@compiled
def code_at(point, weights, ends):
    """The code at a point of the cumulated weights: first its block, then the code in it."""
    low, high = 0, len(ends) - 1  # the first block whose end lies above the point
    while low < high:
        middle = (low + high) // 2
        if ends[middle] > point:
            high = middle
        else:
            low = middle + 1
    code = low * BLOCK
    last = code + BLOCK - 1
    reached = np.float64(weights[code]) + (ends[low - 1] if low > 0 else np.float64(0.0))
    while reached <= point and code < last:
        code += 1
        reached += np.float64(weights[code])
    while weights[code] == 0.0:  # sums are rounded, and may end just below the point
        code -= 1
    return code


@compiled
def sort_by_code(row_ids, drawn, counts, sorted_ids):
    """Sort the rows of a prefix by what they have drawn."""
    if len(row_ids) <= FEW:
        for row in range(1, len(row_ids)):
            moving = row_ids[row]
            to = row
            while to > 0 and drawn[row_ids[to - 1]] > drawn[moving]:
                row_ids[to] = row_ids[to - 1]
                to -= 1
            row_ids[to] = moving
        return
    counts[:] = 0
    for row in row_ids:
        counts[drawn[row] + 1] += 1
    for k in range(len(counts) - 1):
        counts[k + 1] += counts[k]  # where the rows of each code begin
    for row in row_ids:
        sorted_ids[counts[drawn[row]]] = row
        counts[drawn[row]] += 1
    row_ids[:] = sorted_ids[: len(row_ids)]
