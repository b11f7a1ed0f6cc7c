"""Depth-wise convolution on a CPU: one kernel (K, K) per channel, stride 1, zero padding that keeps the size.

Images are (batch, height, width, channels), so that 16 neighboring channels are one vector of the processor. The
innermost parts are LLVM instructions, because they depend on register allocation: registers contain the K weights of
one row of a kernel, and the sums of ``_TILE`` neighboring columns, which share the pixels they read. Some rows and
channels at a time are first copied into a small array with zero margins, so that no column is a special case.

Arguments are as in ``row_kernels.py``. Only ``image_functions.py`` calls these loops. The depth-wise cases of
``tests/unit/extensions/cpu_kernels/test_layers.py`` are their tests. ``_TILE``, ``_GROUPS`` and ``_CACHED_BYTES`` only
decide the speed, which ``benchmarks/depthwise.py`` measures; ``LANES`` also decides for which channels ``layers.py``
calls them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable

from ...core.runtime.compiled import compiled
from .intrinsics import Values

if TYPE_CHECKING:
    from numba.core.base import BaseContext
    from numba.core.typing import BaseContext as TypingContext
    from numba.core.typing import Signature

LANES = 16  # channels of one vector
_TILE = 7  # columns at a time: with K = 7 their sums, one row of weights and a pixel take 15 of 32 registers
_BYTES = 4 * LANES  # bytes of one vector
_GROUPS = 4  # vectors copied from one pixel at a time, 256 bytes
_CACHED_BYTES = 1 << 18  # size of a copy that stays in the processor's L2 cache

_INTEGER, _FLOAT = ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_Step = Callable[[list[ir.Value]], list[ir.Value]]


def _pointer(builder: ir.IRBuilder, address: ir.Value, offset: int, kind: ir.Type) -> ir.Value:
    return builder.inttoptr(builder.add(address, _INTEGER(offset)), kind.as_pointer())


def _load(builder: ir.IRBuilder, address: ir.Value, offset: int = 0, kind: ir.Type = _VECTOR) -> ir.Value:
    value = builder.load(_pointer(builder, address, offset, kind))
    value.align = 4
    return value


def _store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, offset: int = 0) -> None:
    builder.store(value, _pointer(builder, address, offset, value.type)).align = 4


def _multiply_add(builder: ir.IRBuilder, left: ir.Value, right: ir.Value, total: ir.Value) -> ir.Value:
    """Compute ``left * right + total``, in one instruction if the processor has it."""
    name = f"llvm.fmuladd.v{LANES}f32"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), name)
    return builder.call(function, [left, right, total])


def _repeat(builder: ir.IRBuilder, count: ir.Value, start: list[ir.Value], step: _Step) -> list[ir.Value]:
    """Emit a loop of ``count`` passes and return its final values; ``step(values)`` returns the next ones."""
    before = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    values = [builder.phi(item.type) for item in [_INTEGER(0), *start]]
    for phi, value in zip(values, [_INTEGER(0), *start]):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", values[0], count), body, after)
    builder.position_at_end(body)
    following = [builder.add(values[0], _INTEGER(1)), *step(values[1:])]
    for phi, value in zip(values, following):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return values[1:]


def _copying(kind: ir.Type) -> Any:
    """Return a function for compiled loops that copies one value of ``kind`` from an address to another."""

    @intrinsic
    def copy(context: "TypingContext", source: types.Type, target: types.Type) -> Any:
        def generate(context: "BaseContext", builder: ir.IRBuilder, _: "Signature", arguments: Values) -> ir.Value:
            _store(builder, _load(builder, arguments[0], kind=kind), arguments[1])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return copy


_copy_vector, _copy_number = _copying(_VECTOR), _copying(_FLOAT)


@intrinsic
def _add_sum(context: "TypingContext", vectors: types.Type, count: types.Type, out: types.Type) -> Any:
    """Add the sum of ``count`` consecutive vectors to the vector at ``out``."""

    def generate(context: "BaseContext", builder: ir.IRBuilder, _: "Signature", arguments: Values) -> ir.Value:
        vectors, count, out = arguments

        def step(values: list[ir.Value]) -> list[ir.Value]:
            return [builder.add(values[0], _INTEGER(_BYTES)), builder.fadd(values[1], _load(builder, values[0]))]

        total = _repeat(builder, count, [vectors, ir.Constant(_VECTOR, [0.0] * LANES)], step)[1]
        _store(builder, builder.fadd(_load(builder, out), total), out)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _correlating(columns: int) -> Any:
    """Return a function for compiled loops that computes this many neighboring columns of a row."""

    @intrinsic
    def correlate_columns(
        context: "TypingContext",
        taps: types.Type,
        image: types.Type,
        image_row: types.Type,
        rows: types.Type,
        weight: types.Type,
        bias: types.Type,
        out: types.Type,
        out_column: types.Type,
    ) -> Any:
        """Compute ``bias + sum over row, k of image[row, column + k] * weight[row, k]`` for some neighboring columns.

        Vectors are given by address; ``image_row`` and ``out_column`` are distances in bytes. The length of the tuple
        ``taps``, part of its type, for which numba compiles, is the number of weights in a row.
        """

        def generate(context: "BaseContext", builder: ir.IRBuilder, _: "Signature", arguments: Values) -> ir.Value:
            _, image, image_row, rows, weight, bias, out, out_column = arguments

            def one_row(values: list[ir.Value]) -> list[ir.Value]:
                image, weight, totals = values[0], values[1], values[2:]
                weights = [_load(builder, weight, _BYTES * k) for k in range(taps.count)]
                for position in range(columns + taps.count - 1):
                    pixel = _load(builder, image, _BYTES * position)
                    for column in range(max(0, position - taps.count + 1), min(columns, position + 1)):
                        totals[column] = _multiply_add(builder, pixel, weights[position - column], totals[column])
                next_weight = builder.add(weight, _INTEGER(_BYTES * taps.count))
                return [builder.add(image, image_row), next_weight, *totals]

            start = [image, weight] + [_load(builder, bias)] * columns
            for total in _repeat(builder, rows, start, one_row)[2:]:
                _store(builder, total, out)
                out = builder.add(out, out_column)
            return context.get_dummy_value()

        return types.void(taps, *[types.int64] * 7), generate

    return correlate_columns


_correlate_tile, _correlate_column = _correlating(_TILE), _correlating(1)


@intrinsic
def _add_products(
    context: "TypingContext",
    taps: types.Type,
    image: types.Type,
    image_row: types.Type,
    gradient: types.Type,
    gradient_row: types.Type,
    rows: types.Type,
    columns: types.Type,
    out: types.Type,
) -> Any:
    """Add to ``out[k]`` the sum over row, column of ``image[row, column + k] * gradient[row, column]``.

    Arguments are addresses and distances in bytes, see ``correlate_columns``.
    """

    def generate(context: "BaseContext", builder: ir.IRBuilder, _: "Signature", arguments: Values) -> ir.Value:
        _, image, image_row, gradient, gradient_row, rows, columns, out = arguments
        tiles, rest = builder.sdiv(columns, _INTEGER(_TILE)), builder.srem(columns, _INTEGER(_TILE))

        def some_columns(width: int) -> _Step:
            def step(values: list[ir.Value]) -> list[ir.Value]:
                image, gradient, totals = values[0], values[1], values[2:]
                gradients = [_load(builder, gradient, _BYTES * column) for column in range(width)]
                for position in range(width + taps.count - 1):
                    pixel = _load(builder, image, _BYTES * position)
                    for k in range(max(0, position - width + 1), min(taps.count, position + 1)):
                        totals[k] = _multiply_add(builder, pixel, gradients[position - k], totals[k])
                distance = _INTEGER(_BYTES * width)
                return [builder.add(image, distance), builder.add(gradient, distance), *totals]

            return step

        def one_row(values: list[ir.Value]) -> list[ir.Value]:
            after = _repeat(builder, tiles, values, some_columns(_TILE))
            totals = _repeat(builder, rest, after, some_columns(1))[2:]
            return [builder.add(values[0], image_row), builder.add(values[1], gradient_row), *totals]

        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        totals = _repeat(builder, rows, [image, gradient] + [zero] * taps.count, one_row)[2:]
        for k, total in enumerate(totals):
            _store(builder, builder.fadd(_load(builder, out, _BYTES * k), total), out, _BYTES * k)
        return context.get_dummy_value()

    return types.void(taps, *[types.int64] * 7), generate


@register_jitable
def _band(height, width, channels, margin):
    """Return the number of rows, and of vectors of one pixel, to copy at a time."""
    groups = min(channels // LANES, _GROUPS)
    rows = _CACHED_BYTES // (groups * _BYTES * (width + 2 * margin)) - 2 * margin
    return min(height, max(rows, 4 * margin)), groups


@register_jitable
def _copy_band(image, height, width, channels, top, groups, margin, padded):
    """Copy ``groups`` vectors of each pixel into ``padded`` (groups, rows, width + 2 margin, LANES).

    The first row of ``padded`` is the image's row ``top``. Rows outside the image and the margins are unchanged.
    """
    group_bytes = padded.shape[1] * padded.shape[2] * _BYTES
    for line in range(max(0, -top), min(padded.shape[1], height - top)):
        source = image + (top + line) * width * channels * 4
        target = padded.ctypes.data + (line * padded.shape[2] + margin) * _BYTES
        for _ in range(width):
            for group in range(groups):
                _copy_vector(source + group * _BYTES, target + group * group_bytes)
            source += channels * 4
            target += _BYTES


@register_jitable
def _regroup(weight, kernel, is_flipped, is_back, channels, grouped):
    """Reorder kernels (channels, K, K), rotated by 180 degrees if ``is_flipped``, to (channels / LANES, K, K, LANES).

    If ``is_back``, the other way round.
    """
    taps = kernel * kernel
    for channel in range(channels):
        for tap in range(taps):
            other = taps - 1 - tap if is_flipped else tap
            source = weight + (channel * taps + tap) * 4
            target = grouped + ((channel // LANES * taps + other) * LANES + channel % LANES) * 4
            if is_back:
                _copy_number(target, source)
            else:
                _copy_number(source, target)


@compiled
def correlate(images, weight, bias, is_flipped, taps, out, batch, height, width, channels):
    """Compute the convolution; with ``is_flipped`` and no bias, the gradient by its input.

    ``images`` and ``out`` are (batch, height, width, channels), channels a multiple of ``LANES``; ``weight`` is
    (channels, 1, K, K), K odd, ``bias`` (channels), or 0, and ``taps`` a tuple of K integers.
    """
    kernel, margin = len(taps), len(taps) // 2
    band, groups_at_once = _band(height, width, channels, margin)
    padded = np.zeros((groups_at_once, band + 2 * margin, width + 2 * margin, LANES), np.float32)
    weights = np.empty(channels * kernel * kernel, np.float32)
    _regroup(weight, kernel, is_flipped, is_back=False, channels=channels, grouped=weights.ctypes.data)
    zero_bias = np.zeros(LANES, np.float32)
    padded_row, column_bytes = padded.shape[2] * _BYTES, channels * 4
    # Band after band of each image, and some channels at a time, so that what is copied stays in the cache.
    bands = (height + band - 1) // band
    for item in range(batch * bands):
        number, top = item // bands, item % bands * band
        for first in range(0, channels, groups_at_once * LANES):
            groups = min(groups_at_once, (channels - first) // LANES)
            image = images + (number * height * width * channels + first) * 4
            _copy_band(image, height, width, channels, top - margin, groups, margin, padded)
            lines = min(band, height - top)
            for line in range(groups * lines):
                group, row = line // lines, top + line % lines
                channel = first + group * LANES
                first_tap = max(0, margin - row)  # the rows of the kernel before this one are above the image
                rows = min(kernel, height + margin - row) - first_tap
                source_row = padded.ctypes.data + (group * padded.shape[1] + row - top + first_tap) * padded_row
                weight_at = weights.ctypes.data + (channel // LANES * kernel + first_tap) * kernel * _BYTES
                bias_at = bias + channel * 4 if bias != 0 else zero_bias.ctypes.data
                target_row = out + ((number * height + row) * width * channels + channel) * 4
                column = 0
                while column < width:
                    source, target = source_row + column * _BYTES, target_row + column * column_bytes
                    if width < _TILE:
                        _correlate_column(taps, source, padded_row, rows, weight_at, bias_at, target, column_bytes)
                        column += 1
                    else:
                        _correlate_tile(taps, source, padded_row, rows, weight_at, bias_at, target, column_bytes)
                        # The last tile ends with the row and repeats a few columns.
                        column = width - _TILE if width - 2 * _TILE < column < width - _TILE else column + _TILE


@compiled
def weight_gradient(images, gradient, taps, weight_out, bias_out, batch, height, width, channels):
    """Compute the gradients by weight (channels, 1, K, K) and bias (channels), which are overwritten.

    See ``correlate`` for the other arguments.
    """
    kernel, margin = len(taps), len(taps) // 2
    band, groups_at_once = _band(height, width, channels, margin)
    padded = np.zeros((groups_at_once, band + 2 * margin, width + 2 * margin, LANES), np.float32)
    gradients = np.empty((groups_at_once, band, width, LANES), np.float32)
    sums = np.zeros(channels * kernel * kernel, np.float32)
    bias_sums = np.zeros(channels, np.float32)
    padded_row, gradient_row = padded.shape[2] * _BYTES, width * _BYTES
    # The same bands and channels as in ``correlate``.
    bands = (height + band - 1) // band
    for item in range(batch * bands):
        number, top = item // bands, item % bands * band
        end = min(top + band, height)
        for first in range(0, channels, groups_at_once * LANES):
            groups = min(groups_at_once, (channels - first) // LANES)
            offset = (number * height * width * channels + first) * 4
            _copy_band(images + offset, height, width, channels, top - margin, groups, margin, padded)
            _copy_band(gradient + offset, height, width, channels, top, groups, 0, gradients)
            for group in range(groups):
                channel = first + group * LANES
                group_gradients = gradients.ctypes.data + group * band * gradient_row
                _add_sum(group_gradients, (end - top) * width, bias_sums.ctypes.data + channel * 4)
                for kernel_row in range(kernel):
                    begin = max(top, margin - kernel_row)  # first row with a row of the image at this offset
                    rows = min(end, height + margin - kernel_row) - begin
                    source = padded.ctypes.data + (group * padded.shape[1] + begin - top + kernel_row) * padded_row
                    sums_at = sums.ctypes.data + (channel // LANES * kernel + kernel_row) * kernel * _BYTES
                    gradient_at = group_gradients + (begin - top) * gradient_row
                    _add_products(taps, source, padded_row, gradient_at, gradient_row, rows, width, sums_at)
    _regroup(weight_out, kernel, is_flipped=False, is_back=True, channels=channels, grouped=sums.ctypes.data)
    sums[0] = 0.0  # keeps the array alive until here; numba frees arrays after their last use
    for first in range(0, channels, LANES):
        _copy_vector(bias_sums.ctypes.data + first * 4, bias_out + first * 4)
