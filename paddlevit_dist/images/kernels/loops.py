"""Compiled loops over float32 memory: layer norm, GELU, softmax, sums of columns, attention of one batch.

Arguments are addresses of contiguous row-major float32 arrays and their sizes; nothing is checked here. Only
``functions.py`` and ``branches.py`` call these loops. A sum over many rows is formed in groups of ``_GROUP`` rows,
which keeps its rounding error small; each loop runs on one thread, and equal arguments give equal bits.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ...compiled import compiled

_GROUP = 64
_FAST = {"fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy"}
f32 = np.float32


@intrinsic
def _floats(typing_context: Any, address: Any):
    """A pointer to the float32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.int64), generate


@intrinsic
def _whole(typing_context: Any, address: Any):
    """A pointer to the int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(types.int64), generate


@intrinsic
def _bits(typing_context: Any, value: Any):
    """The 32 bits of a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def _from_bits(typing_context: Any, bits: Any):
    """The float32 with these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def _shift(typing_context: Any, bits: Any):
    """32 bits moved 23 places up, from a number to the place of a float32's exponent."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.shl(arguments[0], ir.Constant(ir.IntType(32), 23))

    return types.int32(types.int32), generate


@intrinsic
def _add_bits(typing_context: Any, left: Any, right: Any):
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.add(*arguments)

    return types.int32(types.int32, types.int32), generate


# void cblas_sgemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
_PRODUCT = (types.int64, *[types.int64] * 5, types.float32, *[types.int64] * 4, types.float32, *[types.int64] * 2)


@intrinsic
def _product(typing_context, function, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # noqa: PLR0913
    """Call a ``cblas_sgemm`` with 32-bit sizes by its address: c = alpha op(a) op(b) + beta c, row-major."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i32, f, p = ir.IntType(32), ir.FloatType(), ir.IntType(8).as_pointer()
        kinds = [i32, i32, i32, i32, i32, i32, f, p, i32, p, i32, f, p, i32]
        called = builder.inttoptr(arguments[0], ir.FunctionType(ir.VoidType(), kinds).as_pointer())
        values = [ir.Constant(i32, 101)]
        for kind, value in zip(kinds[1:], arguments[1:]):
            if kind is i32:
                value = builder.trunc(value, i32)
            elif kind is p:
                value = builder.inttoptr(value, p)
            values.append(value)
        builder.call(called, values)
        return context.get_dummy_value()

    return types.void(*_PRODUCT), generate


@numba.njit(fastmath={"contract"}, error_model="numpy")
def _exp(x):
    """e ** x of a float32 up to 88, to about one unit in the last place; never below e ** -60 = 9e-27.

    That is nothing beside 1, and keeps products with it from becoming subnormal, which takes a processor 20 times as
    long. x = n log 2 + f: adding 1.5 * 2 ** 23 rounds to the integer n and leaves it in the low bits.
    """
    x = f32(-60.0) if x < f32(-60.0) else x  # not a number stays so
    shifted = x * f32(1.4426950408889634) + f32(12582912.0)
    n = shifted - f32(12582912.0)
    f = x - n * f32(0.693359375)
    f = f + n * f32(2.12194440e-4)
    p = f32(1.9875691500e-4) * f + f32(1.3981999507e-3)
    p = p * f + f32(8.3334519073e-3)
    p = p * f + f32(4.1665795894e-2)
    p = p * f + f32(1.6666665459e-1)
    p = p * f + f32(5.0000001201e-1)
    p = p * (f * f) + f + f32(1.0)
    return _from_bits(_add_bits(_bits(p), _shift(_bits(shifted))))


@numba.njit(fastmath={"contract"}, error_model="numpy")
def _tail(x, density):
    """Share of the unit normal distribution above |x|, given exp(-x^2 / 2).

    (1 - erf(|x| / sqrt 2)) / 2 = exp(-x^2 / 2) t P(t) with t = 1 / (1 + 0.33 |x|), the form of Abramowitz and Stegun
    7.1.26; P fitted here by weighted least squares, 2e-8 relative to the share down to 1e-3, relative to 1e-3 below.
    """
    t = f32(1.0) / (f32(1.0) + f32(0.33) * abs(x))
    p = f32(0.04679924342249486) * t + f32(-0.22636701426976294)
    p = p * t + f32(0.34224667188363694)
    p = p * t + f32(-0.10037240442975061)
    p = p * t + f32(0.18723642289532522)
    p = p * t + f32(0.11761524009608956)
    p = p * t + f32(0.13284185003993218)
    return density * (p * t)


@compiled(**_FAST)
def add_bias(x, bias, out, rows, width):
    """out = x + bias on each row; ``x`` 0 for the bias alone."""
    target, b = numba.carray(_floats(out), (rows, width)), numba.carray(_floats(bias), width)
    if x == 0:
        for row in range(rows):
            target[row, :] = b
        return
    source = numba.carray(_floats(x), (rows, width))
    for row in range(rows):
        for j in range(width):
            target[row, j] = source[row, j] + b[j]


@compiled(**_FAST)
def layer_norm(x, weight, bias, epsilon, out, statistics, rows, width):
    """Normalise each row; ``statistics`` (rows, 2) receives mean and 1 / deviation, unless it is 0."""
    source, target = numba.carray(_floats(x), (rows, width)), numba.carray(_floats(out), (rows, width))
    w, b = numba.carray(_floats(weight), width), numba.carray(_floats(bias), width)
    kept = numba.carray(_floats(statistics), (rows, 2))
    part = f32(1.0) / f32(width)
    for row in range(rows):
        total = f32(0.0)
        for j in range(width):
            total += source[row, j]
        mean = total * part
        squares = f32(0.0)
        for j in range(width):
            difference = source[row, j] - mean
            squares += difference * difference
        scale = f32(1.0) / np.sqrt(squares * part + f32(epsilon))
        for j in range(width):
            target[row, j] = (source[row, j] - mean) * scale * w[j] + b[j]
        if statistics != 0:
            kept[row, 0] = mean
            kept[row, 1] = scale


@compiled(**_FAST)
def layer_norm_gradient(gradient, x, statistics, weight, added, out, sums, rows, width):
    """out = the gradient by the rows ``x``, plus the rows ``added`` unless that is 0.

    ``sums`` (2, width) receives the gradients by weight and bias. ``out`` shares no memory with the others.
    """
    g, source = numba.carray(_floats(gradient), (rows, width)), numba.carray(_floats(x), (rows, width))
    target, other = numba.carray(_floats(out), (rows, width)), numba.carray(_floats(added), (rows, width))
    w, kept = numba.carray(_floats(weight), width), numba.carray(_floats(statistics), (rows, 2))
    total = numba.carray(_floats(sums), (2, width))
    part = f32(1.0) / f32(width)
    group = np.zeros((2, width), dtype=np.float32)
    total[:] = f32(0.0)
    for first in range(0, rows, _GROUP):
        group[:] = f32(0.0)
        for row in range(first, min(rows, first + _GROUP)):
            mean, scale = kept[row, 0], kept[row, 1]
            plain = f32(0.0)
            turned = f32(0.0)
            for j in range(width):
                normal = (source[row, j] - mean) * scale
                by_normal = g[row, j] * w[j]
                plain += by_normal
                turned += by_normal * normal
                group[0, j] += g[row, j] * normal
                group[1, j] += g[row, j]
            plain *= part
            turned *= part
            for j in range(width):
                normal = (source[row, j] - mean) * scale
                target[row, j] = (g[row, j] * w[j] - plain - normal * turned) * scale
            if added != 0:
                for j in range(width):
                    target[row, j] += other[row, j]
        for kind in range(2):
            for j in range(width):
                total[kind, j] += group[kind, j]


@compiled(**_FAST)
def add_scaled(x, out, factors, items, size):
    """out = x + factor * out for each item's ``size`` numbers."""
    source, target = numba.carray(_floats(x), (items, size)), numba.carray(_floats(out), (items, size))
    factor = numba.carray(_floats(factors), items)
    for item in range(items):
        for j in range(size):
            target[item, j] = source[item, j] + factor[item] * target[item, j]


@compiled(**_FAST)
def scale(x, factors, items, size):
    """x *= factor for each item's ``size`` numbers."""
    values, factor = numba.carray(_floats(x), (items, size)), numba.carray(_floats(factors), items)
    for item in range(items):
        for j in range(size):
            values[item, j] *= factor[item]


@compiled(**_FAST)
def gelu(x, bias, out, slope, rows, width):
    """out = GELU(x + bias), and slope = GELU'(x + bias) unless it is 0. ``bias`` may be 0, ``out`` may be ``x``."""
    source, target = numba.carray(_floats(x), (rows, width)), numba.carray(_floats(out), (rows, width))
    derivative = numba.carray(_floats(slope), (rows, width))
    b = numba.carray(_floats(bias), width) if bias != 0 else np.zeros(width, dtype=np.float32)
    for row in range(rows):
        # In place from here on: with source and target in one loop, the compiler's code for overlapping arrays is slow.
        if out != x:
            for j in range(width):
                target[row, j] = source[row, j]
        if slope != 0:
            for j in range(width):
                v = target[row, j] + b[j]
                density = _exp(f32(-0.5) * v * v)
                tail = _tail(v, density)
                below = tail if v < f32(0.0) else f32(1.0) - tail
                target[row, j] = v * below
                derivative[row, j] = below + v * (density * f32(0.3989422804014327))
        else:
            for j in range(width):
                v = target[row, j] + b[j]
                tail = _tail(v, _exp(f32(-0.5) * v * v))
                target[row, j] = v * (tail if v < f32(0.0) else f32(1.0) - tail)


@compiled(**_FAST)
def times(x, factor, sums, rows, width):
    """x *= factor, and ``sums`` (width) receives the sums of its columns; ``factor`` 0 only sums."""
    values, by = numba.carray(_floats(x), (rows, width)), numba.carray(_floats(factor), (rows, width))
    total = numba.carray(_floats(sums), width)
    group = np.zeros(width, dtype=np.float32)
    total[:] = f32(0.0)
    for first in range(0, rows, _GROUP):
        group[:] = f32(0.0)
        for row in range(first, min(rows, first + _GROUP)):
            if factor != 0:
                for j in range(width):
                    value = values[row, j] * by[row, j]
                    values[row, j] = value
                    group[j] += value
            else:
                for j in range(width):
                    group[j] += values[row, j]
        for j in range(width):
            total[j] += group[j]


@compiled(**_FAST)
def patches(images, out, batch, channels, rows, columns, side, is_back):
    """out (batch, rows * columns, channels * side ** 2) = the square patches of ``images``, or back if ``is_back``."""
    width = channels * side * side
    pictures = numba.carray(_floats(images), (batch, channels, rows, side, columns, side))
    cut = numba.carray(_floats(out), (batch, rows, columns, width))
    for item in range(batch):
        for row in range(rows):
            for channel in range(channels):
                for line in range(side):
                    place = (channel * side + line) * side
                    for column in range(columns):
                        for j in range(side):
                            if is_back:
                                pictures[item, channel, row, line, column, j] = cut[item, row, column, place + j]
                            else:
                                cut[item, row, column, place + j] = pictures[item, channel, row, line, column, j]


@compiled(**_FAST)
def attention(sgemm, qkv, weights, out, bias, mask, index, batch, windows, tokens, heads, head_dim, scale, is_kept):
    """Attention inside windows: softmax(scale q k^T + bias + mask) v of each window and head.

    Args:
        qkv: (batch, windows * tokens, 3, heads, head_dim).
        weights: (batch * windows * heads, tokens, tokens), receives the softmax; room for one head unless ``is_kept``.
        out: (batch, windows * tokens, heads * head_dim).
        bias: (heads, tokens, tokens), or 0.
        mask: (windows, tokens, tokens), or 0.
        index: int64 (windows, tokens), the row of an item that each token of a window is; 0 for one window in order.
    """
    width, square = heads * head_dim, tokens * tokens
    step = 3 * width
    room, result = np.empty((tokens, step), dtype=np.float32), np.empty((tokens, width), dtype=np.float32)
    own = weights
    for window in range(batch * windows):
        item, number = window // windows, window % windows
        first = item * windows * tokens
        base, target = qkv + 4 * first * step, out + 4 * first * width
        if index != 0:
            _gather(base, index + 8 * number * tokens, room.ctypes.data, tokens, step)
            base, target = room.ctypes.data, result.ctypes.data
        for head in range(heads):
            q = base + 4 * head * head_dim
            k, v = q + 4 * width, q + 8 * width
            if is_kept:
                own = weights + 4 * square * (window * heads + head)
            _product(sgemm, 111, 112, tokens, tokens, head_dim, f32(scale), q, step, k, step, f32(0.0), own, tokens)
            added = bias + 4 * square * head if bias != 0 else bias
            masked = mask + 4 * square * number if mask != 0 else mask
            _softmax(own, added, masked, tokens, tokens)
            place = target + 4 * head * head_dim
            _product(sgemm, 111, 111, tokens, head_dim, tokens, f32(1.0), own, tokens, v, step, f32(0.0), place, width)
        if index != 0:
            _scatter(target, index + 8 * number * tokens, out + 4 * first * width, tokens, width)


@numba.njit(**_FAST)
def _gather(source, index, out, rows, width):
    values, target = numba.carray(_floats(source), (rows, width)), numba.carray(_floats(out), (rows, width))
    places = numba.carray(_whole(index), rows)
    for row in range(rows):
        place = places[row]
        for j in range(width):
            target[row, j] = values[place, j]


@numba.njit(**_FAST)
def _scatter(source, index, out, rows, width):
    values, target = numba.carray(_floats(source), (rows, width)), numba.carray(_floats(out), (rows, width))
    places = numba.carray(_whole(index), rows)
    for row in range(rows):
        place = places[row]
        for j in range(width):
            target[place, j] = values[row, j]


@numba.njit(**_FAST)
def _softmax(address, bias, mask, rows, width):
    values = numba.carray(_floats(address), (rows, width))
    if bias != 0:
        _add(address, bias, rows * width)
    if mask != 0:
        _add(address, mask, rows * width)
    for row in range(rows):
        largest = values[row, 0]
        for j in range(1, width):
            largest = values[row, j] if values[row, j] > largest else largest
        for j in range(width):
            values[row, j] = _exp(values[row, j] - largest)
        total = f32(0.0)
        for j in range(width):
            total += values[row, j]
        share = f32(1.0) / total
        for j in range(width):
            values[row, j] *= share


@numba.njit(**_FAST)
def _add(out, other, count):
    target, source = numba.carray(_floats(out), count), numba.carray(_floats(other), count)
    for i in range(count):
        target[i] += source[i]


@compiled(**_FAST)
def attention_gradient(
    sgemm, gradient, qkv, weights, out, bias_out, index, batch, windows, tokens, heads, head_dim, scale
):
    """out like ``qkv``: its gradient, from ``gradient`` like the result of ``attention`` with its kept ``weights``.

    ``bias_out`` (heads, tokens, tokens) receives the gradient by the bias, unless it is 0.
    """
    width, square = heads * head_dim, tokens * tokens
    step = 3 * width
    one, zero = f32(1.0), f32(0.0)
    room, result = np.empty((tokens, step), dtype=np.float32), np.empty((tokens, step), dtype=np.float32)
    given_room, square_room = np.empty((tokens, width), dtype=np.float32), np.empty(square, dtype=np.float32)
    slope = square_room.ctypes.data
    if bias_out != 0:
        numba.carray(_floats(bias_out), heads * square)[:] = zero
    for window in range(batch * windows):
        item, number = window // windows, window % windows
        first = item * windows * tokens
        base, target, given = qkv + 4 * first * step, out + 4 * first * step, gradient + 4 * first * width
        if index != 0:
            _gather(base, index + 8 * number * tokens, room.ctypes.data, tokens, step)
            _gather(given, index + 8 * number * tokens, given_room.ctypes.data, tokens, width)
            base, target, given = room.ctypes.data, result.ctypes.data, given_room.ctypes.data
        for head in range(heads):
            q, dq, g = base + 4 * head * head_dim, target + 4 * head * head_dim, given + 4 * head * head_dim
            k, v, dk, dv = q + 4 * width, q + 8 * width, dq + 4 * width, dq + 8 * width
            own = weights + 4 * square * (window * heads + head)
            _product(sgemm, 112, 111, tokens, head_dim, tokens, one, own, tokens, g, width, zero, dv, step)
            _product(sgemm, 111, 112, tokens, tokens, head_dim, one, g, width, v, step, zero, slope, tokens)
            _softmax_gradient(slope, own, tokens, tokens)
            if bias_out != 0:
                _add(bias_out + 4 * square * head, slope, square)
            _product(sgemm, 111, 111, tokens, head_dim, tokens, f32(scale), slope, tokens, k, step, zero, dq, step)
            _product(sgemm, 112, 111, tokens, head_dim, tokens, f32(scale), slope, tokens, q, step, zero, dk, step)
        if index != 0:
            _scatter(target, index + 8 * number * tokens, out + 4 * first * step, tokens, step)


@numba.njit(**_FAST)
def _softmax_gradient(gradient, weights, rows, width):
    g, w = numba.carray(_floats(gradient), (rows, width)), numba.carray(_floats(weights), (rows, width))
    for row in range(rows):
        total = f32(0.0)
        for j in range(width):
            total += g[row, j] * w[row, j]
        for j in range(width):
            g[row, j] = (g[row, j] - total) * w[row, j]
