"""Convolution of volumes (channels, depth, height, width) on a CPU with stride 1, and its gradient by the kernel.

A volume is copied between zeros first. It is then one long line of numbers in which each place of a kernel is a
distance, so that 16 neighbouring numbers are one vector of the processor whatever the number of channels; what the
line's margins give is computed, too, and left out. The innermost parts are written as LLVM instructions, because they
depend on what stays in registers: sums of ``_ROWS`` output channels by ``_VECTORS`` vectors.

Arguments are addresses of contiguous float32 arrays and their sizes, as in ``row_loops.py``; only
``volume_functions.py`` calls these loops. Each runs on one thread, and equal arguments give equal bits.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic, register_jitable

from ..runtime.compiled import compiled
from .intrinsics import (
    FAST,
    FLOAT,
    INTEGER,
    LANES,
    VECTOR,
    VECTOR_BYTES,
    floats_at,
    load,
    multiply_add,
    pointer,
    repeat,
    store,
)

# 24 sums of 32 registers; or 4 of 16, where a vector takes two
_ROWS, _VECTORS = (8, 3) if binding.get_host_cpu_features().get("avx512f") else (4, 1)
_TILE = _VECTORS * LANES
_CHUNK = 1024  # numbers: those of ``_ROWS`` channels stay in the processor's first cache


def _whole_number(builder: Any, address: Any, index: int = 0) -> Any:
    return builder.load(pointer(builder, address, 8 * index, INTEGER))


def _repeated(builder: Any, address: Any, index: int) -> Any:
    """A vector of one number."""
    number = builder.load(pointer(builder, address, 4 * index, FLOAT))
    one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


def _add_products(builder: Any, totals: list[Any], rows: list[Any], vectors: list[Any]) -> list[Any]:
    """totals[row, vector] + rows[row] * vectors[vector]."""
    pairs = [(row, vector) for row in rows for vector in vectors]
    return [multiply_add(builder, vector, row, total) for (row, vector), total in zip(pairs, totals)]


_NOTHING = [ir.Constant(VECTOR, [0.0] * LANES)] * (_ROWS * _VECTORS)


@intrinsic
def _correlate_tile(context: Any, line: Any, distances: Any, weight: Any, count: Any, out: Any, out_row: Any):
    """out[row, i] = sum over k < count of line[i + distances[k]] * weight[k, row], for ``_ROWS`` rows and ``_TILE`` i.

    Arrays are given by address; ``distances``, of int64, and ``out_row`` are in bytes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line, distances, weight, count, out, out_row = arguments

        def step(values: list[Any]) -> list[Any]:
            distances, weight, *totals = values
            place = builder.add(line, _whole_number(builder, distances))
            vectors = [load(builder, place, VECTOR_BYTES * vector) for vector in range(_VECTORS)]
            rows = [_repeated(builder, weight, row) for row in range(_ROWS)]
            following = [builder.add(distances, INTEGER(8)), builder.add(weight, INTEGER(4 * _ROWS))]
            return following + _add_products(builder, totals, rows, vectors)

        totals = repeat(builder, count, [distances, weight, *_NOTHING], step)[2:]
        for row in range(_ROWS):
            for vector in range(_VECTORS):
                store(builder, totals[row * _VECTORS + vector], out, VECTOR_BYTES * vector)
            out = builder.add(out, out_row)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


@intrinsic
def _add_correlations(context: Any, line: Any, distances: Any, gradient: Any, gradient_row: Any, count: Any, sums: Any):
    """sums[row, k] += sum over i < count of line[i + distances[k]] * gradient[row, i], for ``_ROWS`` rows and
    ``_VECTORS`` k, where i counts vectors and a sum is one. Arguments as above."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line, distances, gradient, gradient_row, count, sums = arguments
        starts = [builder.add(line, _whole_number(builder, distances, k)) for k in range(_VECTORS)]
        rows = [builder.add(gradient, builder.mul(gradient_row, INTEGER(row))) for row in range(_ROWS)]

        def step(values: list[Any]) -> list[Any]:
            place, *totals = values
            vectors, factors = ([load(builder, builder.add(one, place)) for one in many] for many in (starts, rows))
            return [builder.add(place, INTEGER(VECTOR_BYTES)), *_add_products(builder, totals, factors, vectors)]

        for number, total in enumerate(repeat(builder, count, [INTEGER(0), *_NOTHING], step)[1:]):
            place = VECTOR_BYTES * number
            store(builder, builder.fadd(load(builder, sums, place), total), sums, place)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


@register_jitable
def _up(number, multiple):
    return (number + multiple - 1) // multiple * multiple


@register_jitable
def _copy(source, size, line, channel_size, padded, margins):
    """(channels, *size) at an address into ``line``, from channel to channel ``channel_size`` numbers, as volumes of
    the size ``padded``."""
    depth, height, width = size
    volumes = numba.carray(floats_at(source), (len(line) // channel_size, depth, height, width))
    for row in range(len(volumes) * depth * height):
        channel, z, y = row // height // depth, row // height % depth, row % height
        start = channel * channel_size + ((z + margins[0]) * padded[1] + y + margins[1]) * padded[2] + margins[2]
        for x in range(width):
            line[start + x] = volumes[channel, z, y, x]


@register_jitable
def _distances(channels, kernel, padded, count):
    """In bytes, of each number that a kernel (channels, *kernel) meets in a line; ``count`` in all, the rest 0."""
    found, taps = np.zeros(count, np.int64), kernel[0] * kernel[1] * kernel[2]
    for k in range(channels * taps):
        z, y, x = k // taps * padded[0] + k % taps // (kernel[1] * kernel[2]), k // kernel[2] % kernel[1], k % kernel[2]
        found[k] = 4 * ((z * padded[1] + y) * padded[2] + x)
    return found


@register_jitable
def _sizes(size, kernel, margins):
    """Of the volumes between zeros, and of what the convolution gives."""
    d, h, w = size[0] + 2 * margins[0], size[1] + 2 * margins[1], size[2] + 2 * margins[2]
    return (d, h, w), (d - kernel[0] + 1, h - kernel[1] + 1, w - kernel[2] + 1)


@compiled
def correlate(volumes, weight, is_turned, bias, out, batch, inputs, outputs, size, kernel, margins):
    """The convolution; with ``is_turned`` and margins of kernel - 1 - margins the gradient by its input.

    Args:
        volumes: (batch, inputs, *size).
        weight: (outputs, inputs, *kernel); with ``is_turned`` (inputs, outputs, *kernel), each kernel read backwards.
        bias: (outputs), or 0.
        out: (batch, outputs, *(size + 2 margins - kernel + 1)); overwritten.
        size, kernel, margins: three integers each; margins are of zeros, on both sides.
    """
    padded, out_size = _sizes(size, kernel, margins)
    plane, taps = padded[1] * padded[2], kernel[0] * kernel[1] * kernel[2]
    blocks, count = (outputs + _ROWS - 1) // _ROWS, inputs * taps
    line = np.zeros(inputs * padded[0] * plane + _TILE, np.float32)
    distances = _distances(inputs, kernel, padded, count)
    weights = np.zeros((blocks, count, _ROWS), np.float32)
    given = numba.carray(floats_at(weight), inputs * outputs * taps)
    for k in range(count):
        channel, tap = k // taps, k % taps
        for row in range(outputs):
            own = (channel * outputs + row + 1) * taps - 1 - tap if is_turned else (row * inputs + channel) * taps + tap
            weights[row // _ROWS, k, row % _ROWS] = given[own]
    length = _up((out_size[1] - 1) * padded[2] + out_size[2], _TILE)
    found = np.empty((_ROWS, length), np.float32)
    target = numba.carray(floats_at(out), (batch, outputs, out_size[0], out_size[1], out_size[2]))
    added = numba.carray(floats_at(bias), outputs)
    for item in range(batch):
        source = volumes + 4 * item * inputs * size[0] * size[1] * size[2]
        _copy(source, size, line[: inputs * padded[0] * plane], padded[0] * plane, padded, margins)
        for part in range(out_size[0] * blocks):
            z, block = part // blocks, part % blocks
            own = weights.ctypes.data + 4 * block * count * _ROWS
            for start in range(0, length, _TILE):
                place, to = line.ctypes.data + 4 * (z * plane + start), found.ctypes.data + 4 * start
                _correlate_tile(place, distances.ctypes.data, own, count, to, 4 * length)
            for row in range(block * _ROWS, min(block * _ROWS + _ROWS, outputs)):
                shift = added[row] if bias != 0 else np.float32(0.0)
                for y in range(out_size[1]):
                    for x in range(out_size[2]):
                        target[item, row, z, y, x] = found[row - block * _ROWS, y * padded[2] + x] + shift
    line[0], distances[0], weights[0] = 0.0, 0, 0.0  # until here, as numba frees an array once it is used no more


@compiled(**FAST)
def weight_gradient(volumes, gradient, out, batch, inputs, outputs, size, kernel, margins):
    """The gradient by the weight, like it, overwritten, from that by the convolution's result; arguments as above."""
    padded, out_size = _sizes(size, kernel, margins)
    volume, count = padded[0] * padded[1] * padded[2], inputs * kernel[0] * kernel[1] * kernel[2]
    groups, blocks = (count + _VECTORS - 1) // _VECTORS, (outputs + _ROWS - 1) // _ROWS
    length = _up(((out_size[0] - 1) * padded[1] + out_size[1] - 1) * padded[2] + out_size[2], LANES)
    line = np.zeros(inputs * volume + LANES, np.float32)
    distances = _distances(inputs, kernel, padded, groups * _VECTORS)
    gradients = np.zeros(blocks * _ROWS * length, np.float32)
    sums = np.empty((groups, _ROWS, _VECTORS, LANES), np.float32)
    target = numba.carray(floats_at(out), (outputs, count))
    target[:] = np.float32(0.0)
    for item in range(batch):
        _copy(volumes + 4 * item * inputs * size[0] * size[1] * size[2], size, line[:-LANES], volume, padded, margins)
        own = gradient + 4 * item * outputs * out_size[0] * out_size[1] * out_size[2]
        _copy(own, out_size, gradients[: outputs * length], length, padded, (0, 0, 0))
        for block in range(blocks):
            sums[:] = np.float32(0.0)
            for start in range(0, length, _CHUNK):
                row, vectors = 4 * (block * _ROWS * length + start), min(_CHUNK, length - start) // LANES
                for group in range(groups):
                    _add_correlations(
                        line.ctypes.data + 4 * start,
                        distances.ctypes.data + 8 * group * _VECTORS,
                        gradients.ctypes.data + row,
                        4 * length,
                        vectors,
                        sums.ctypes.data + group * _ROWS * _VECTORS * VECTOR_BYTES,
                    )
            for row in range(min(_ROWS, outputs - block * _ROWS)):
                for k in range(count):
                    total = np.float32(0.0)
                    for lane in range(LANES):
                        total += sums[k // _VECTORS, row, k % _VECTORS, lane]
                    target[block * _ROWS + row, k] += total
    line[0], distances[0], gradients[0] = 0.0, 0, 0.0  # until here, as numba frees an array once it is used no more
