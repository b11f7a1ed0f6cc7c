"""Compiled loops with exponentials for ``functions.py`` and ``branches.py``: GELU, and attention with its softmax.

Arguments are as in ``row_kernels.py``.
"""

import numba
import numpy as np

from ...core.runtime.compiled import compiled
from .intrinsics import (
    FAST,
    ORDERED,
    add_bits,
    as_exponent,
    bits_to_float,
    float_to_bits,
    floats_at,
    integers_at,
    multiply,
)

f32 = np.float32
_NEGLIGIBLE = f32(-60.0)  # exponent of a share that is 0
_CACHED_FLOATS = 1 << 17  # attention weights at a time, which stay in the processor's L2 cache


@numba.njit(**ORDERED)
def exponential(x):
    """Compute e ** x of a float32 up to 88, to about one unit in the last place; at least e ** -60 = 9e-27.

    That is negligible compared with 1 and avoids subnormal products, which are 20 times as slow. x = n log 2 + f:
    adding 1.5 * 2 ** 23 rounds to the integer n and leaves it in the low bits.
    """
    x = f32(-60.0) if x < f32(-60.0) else x  # NaN stays NaN
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
    return bits_to_float(add_bits(float_to_bits(p), as_exponent(float_to_bits(shifted))))


@numba.njit(**ORDERED)
def _tail(x, density):
    """Compute the share of the unit normal distribution above |x|, given exp(-x^2 / 2).

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


@compiled(**FAST)
def gelu(x, bias, out, slope, rows, width):
    """Compute out = GELU(x + bias) and slope = GELU'(x + bias). ``bias`` and ``slope`` may be 0, ``out`` ``x``."""
    source, target = numba.carray(floats_at(x), (rows, width)), numba.carray(floats_at(out), (rows, width))
    derivative = numba.carray(floats_at(slope), (rows, width))
    b = numba.carray(floats_at(bias), width) if bias != 0 else np.zeros(width, dtype=np.float32)
    for row in range(rows):
        # In place from here on: the compiler emits slow code for a loop over arrays that may overlap.
        if out != x:
            for j in range(width):
                target[row, j] = source[row, j]
        if slope != 0:
            for j in range(width):
                v = target[row, j] + b[j]
                density = exponential(f32(-0.5) * v * v)
                tail = _tail(v, density)
                below = tail if v < f32(0.0) else f32(1.0) - tail
                target[row, j] = v * below
                derivative[row, j] = below + v * (density * f32(0.3989422804014327))
        else:
            for j in range(width):
                v = target[row, j] + b[j]
                tail = _tail(v, exponential(f32(-0.5) * v * v))
                target[row, j] = v * (tail if v < f32(0.0) else f32(1.0) - tail)


@compiled(**FAST)
def attention(sgemm, qkv, weights, out, bias, mask, index, batch, windows, tokens, heads, head_dim, scale, is_kept):
    """Compute softmax(scale q k^T + bias + mask) v of each window and head.

    Args:
        sgemm: address of ``cblas_sgemm``.
        qkv: (batch, windows * tokens, 3, heads, head_dim).
        weights: (batch * windows * heads, tokens, tokens), receives the softmax; memory for one head unless
            ``is_kept``.
        out: (batch, windows * tokens, heads * head_dim).
        bias: (heads, tokens, tokens), or 0.
        mask: (windows, tokens, tokens), or 0.
        index: int64 (windows, tokens), row in the item of each token of a window; 0 for windows in order.
    """
    width, square = heads * head_dim, tokens * tokens
    step = 3 * width
    gathered, result = np.empty((tokens, step), dtype=np.float32), np.empty((tokens, width), dtype=np.float32)
    head_weights = weights
    for window in range(batch * windows):
        item, number = window // windows, window % windows
        first = (item * windows if index != 0 else window) * tokens
        base, target = qkv + 4 * first * step, out + 4 * first * width
        if index != 0:
            _gather(base, index + 8 * number * tokens, gathered.ctypes.data, tokens, step)
            base, target = gathered.ctypes.data, result.ctypes.data
        for head in range(heads):
            q = base + 4 * head * head_dim
            k, v = q + 4 * width, q + 8 * width
            if is_kept:
                head_weights = weights + 4 * square * (window * heads + head)
            multiply(
                sgemm, 111, 112, tokens, tokens, head_dim, f32(scale), q, step, k, step, f32(0.0), head_weights, tokens
            )
            head_bias = bias + 4 * square * head if bias != 0 else bias
            window_mask = mask + 4 * square * number if mask != 0 else mask
            _softmax(head_weights, head_bias, window_mask, tokens, tokens)
            head_out = target + 4 * head * head_dim
            multiply(
                sgemm,
                111,
                111,
                tokens,
                head_dim,
                tokens,
                f32(1.0),
                head_weights,
                tokens,
                v,
                step,
                f32(0.0),
                head_out,
                width,
            )
        if index != 0:
            _scatter(target, index + 8 * number * tokens, out + 4 * first * width, tokens, width)


@numba.njit(**FAST)
def _gather(source, index, out, rows, width):
    values, target = numba.carray(floats_at(source), (rows, width)), numba.carray(floats_at(out), (rows, width))
    positions = numba.carray(integers_at(index), rows)
    for row in range(rows):
        position = positions[row]
        for j in range(width):
            target[row, j] = values[position, j]


@numba.njit(**FAST)
def _scatter(source, index, out, rows, width):
    values, target = numba.carray(floats_at(source), (rows, width)), numba.carray(floats_at(out), (rows, width))
    positions = numba.carray(integers_at(index), rows)
    for row in range(rows):
        position = positions[row]
        for j in range(width):
            target[position, j] = values[row, j]


@numba.njit(**FAST)
def _softmax(address, bias, mask, rows, width):
    values = numba.carray(floats_at(address), (rows, width))
    if bias != 0:
        _add(address, bias, rows * width)
    if mask != 0:
        _add(address, mask, rows * width)
    for row in range(rows):
        largest = values[row, 0]
        for j in range(1, width):
            largest = values[row, j] if values[row, j] > largest else largest
        for j in range(width):  # a masked weight is 0, so that its gradient is not subnormal
            below = values[row, j] - largest
            values[row, j] = f32(0.0) if below < _NEGLIGIBLE else exponential(below)
        total = f32(0.0)
        for j in range(width):
            total += values[row, j]
        share = f32(1.0) / total
        for j in range(width):
            values[row, j] *= share


@numba.njit(**FAST)
def _add(out, other, count):
    target, source = numba.carray(floats_at(out), count), numba.carray(floats_at(other), count)
    for i in range(count):
        target[i] += source[i]


@compiled(**FAST)
def attention_gradient(
    sgemm, gradient, qkv, weights, out, bias_out, index, batch, windows, tokens, heads, head_dim, scale
):
    """Compute the gradient of ``attention`` by ``qkv``, to ``out``, with its kept ``weights``.

    ``gradient`` is like the result. ``bias_out`` (heads, tokens, tokens), unless 0, receives the gradient by the bias.
    """
    width, square = heads * head_dim, tokens * tokens
    step = 3 * width
    one, zero = f32(1.0), f32(0.0)
    gathered, result = np.empty((tokens, step), dtype=np.float32), np.empty((tokens, step), dtype=np.float32)
    gathered_gradient, slope_buffer = np.empty((tokens, width), dtype=np.float32), np.empty(square, dtype=np.float32)
    if bias_out != 0:
        numba.carray(floats_at(bias_out), heads * square)[:] = zero
    for window in range(batch * windows):
        item, number = window // windows, window % windows
        first = (item * windows if index != 0 else window) * tokens
        base, target, out_gradient = qkv + 4 * first * step, out + 4 * first * step, gradient + 4 * first * width
        if index != 0:
            _gather(base, index + 8 * number * tokens, gathered.ctypes.data, tokens, step)
            _gather(out_gradient, index + 8 * number * tokens, gathered_gradient.ctypes.data, tokens, width)
            base, target, out_gradient = gathered.ctypes.data, result.ctypes.data, gathered_gradient.ctypes.data
        for head in range(heads):
            q, dq, g = base + 4 * head * head_dim, target + 4 * head * head_dim, out_gradient + 4 * head * head_dim
            k, v, dk, dv = q + 4 * width, q + 8 * width, dq + 4 * width, dq + 8 * width
            head_weights = weights + 4 * square * (window * heads + head)
            slope = slope_buffer.ctypes.data  # taken here: numba frees arrays after their last use
            multiply(sgemm, 112, 111, tokens, head_dim, tokens, one, head_weights, tokens, g, width, zero, dv, step)
            multiply(sgemm, 111, 112, tokens, tokens, head_dim, one, g, width, v, step, zero, slope, tokens)
            _softmax_gradient(slope, head_weights, tokens, tokens)
            if bias_out != 0:
                _add(bias_out + 4 * square * head, slope, square)
            multiply(sgemm, 111, 111, tokens, head_dim, tokens, f32(scale), slope, tokens, k, step, zero, dq, step)
            multiply(sgemm, 112, 111, tokens, head_dim, tokens, f32(scale), slope, tokens, q, step, zero, dk, step)
        if index != 0:
            _scatter(target, index + 8 * number * tokens, out + 4 * first * step, tokens, step)


@numba.njit(**FAST)
def _softmax_gradient(gradient, weights, rows, width):
    g, w = numba.carray(floats_at(gradient), (rows, width)), numba.carray(floats_at(weights), (rows, width))
    for row in range(rows):
        total = f32(0.0)
        for j in range(width):
            total += g[row, j] * w[row, j]
        for j in range(width):
            g[row, j] = (g[row, j] - total) * w[row, j]


@compiled(**FAST)
def cross_attention(sgemm, q, kv, weights, out, batch, tokens, readers, heads, head_dim, scale):
    """Compute the attention of ``readers`` tokens of each item to all tokens: softmax(scale q k^T) v.

    ``q`` and ``out`` are (batch, readers, heads, head_dim), ``kv`` is (batch, tokens, 2, heads, head_dim), keys and
    values; ``weights``, (batch, heads, readers, tokens), receive the softmax.
    """
    width, step, one, zero = heads * head_dim, 2 * heads * head_dim, f32(1.0), f32(0.0)
    band = max(1, min(readers, _CACHED_FLOATS // tokens))
    for item in range(batch):
        for head in range(heads):
            key = kv + 4 * (item * tokens * 2 * width + head * head_dim)
            value = key + 4 * width
            for first in range(0, readers, band):
                count, offset = min(band, readers - first), 4 * ((item * readers + first) * width + head * head_dim)
                head_weights = weights + 4 * ((item * heads + head) * readers + first) * tokens
                factor = f32(scale)
                multiply(
                    sgemm,
                    111,
                    112,
                    count,
                    tokens,
                    head_dim,
                    factor,
                    q + offset,
                    width,
                    key,
                    step,
                    zero,
                    head_weights,
                    tokens,
                )
                _softmax(head_weights, 0, 0, count, tokens)
                result = out + offset
                multiply(
                    sgemm,
                    111,
                    111,
                    count,
                    head_dim,
                    tokens,
                    one,
                    head_weights,
                    tokens,
                    value,
                    step,
                    zero,
                    result,
                    width,
                )


@compiled(**FAST)
def cross_attention_gradient(
    sgemm, gradient, q, kv, weights, q_out, kv_out, batch, tokens, readers, heads, head_dim, scale
):
    """Compute the gradients of ``cross_attention`` by ``q`` and ``kv`` from the gradient by its result."""
    width, step, one, zero = heads * head_dim, 2 * heads * head_dim, f32(1.0), f32(0.0)
    scaled, band = f32(scale), max(1, min(readers, _CACHED_FLOATS // tokens))
    slope_buffer = np.empty(band * tokens, dtype=np.float32)
    for item in range(batch):
        for head in range(heads):
            offset = 4 * (item * tokens * 2 * width + head * head_dim)
            key, dk = kv + offset, kv_out + offset
            value, dv = key + 4 * width, dk + 4 * width
            for first in range(0, readers, band):
                count, offset = min(band, readers - first), 4 * ((item * readers + first) * width + head * head_dim)
                query, out_gradient, dq = q + offset, gradient + offset, q_out + offset
                head_weights = weights + 4 * ((item * heads + head) * readers + first) * tokens
                slope = slope_buffer.ctypes.data  # taken here: numba frees arrays after their last use
                beta = zero if first == 0 else one  # keys and values accumulate over bands
                multiply(
                    sgemm,
                    112,
                    111,
                    tokens,
                    head_dim,
                    count,
                    one,
                    head_weights,
                    tokens,
                    out_gradient,
                    width,
                    beta,
                    dv,
                    step,
                )
                multiply(
                    sgemm, 111, 112, count, tokens, head_dim, one, out_gradient, width, value, step, zero, slope, tokens
                )
                _softmax_gradient(slope, head_weights, count, tokens)
                multiply(sgemm, 111, 111, count, head_dim, tokens, scaled, slope, tokens, key, step, zero, dq, width)
                multiply(sgemm, 112, 111, tokens, head_dim, count, scaled, slope, tokens, query, width, beta, dk, step)
