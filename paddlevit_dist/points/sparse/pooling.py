"""Pooling of sparse tensors: over a kernel's voxels, or over all voxels of each scene."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.autograd import PyLayerContext

from ...core.distributed import build_zero
from ...core.runtime import autocast
from ...core.runtime.autocast import as_dtype, widen_for_sum
from .coordinate_keys import Steps
from .coordinate_plan import MapKey, SceneRanges
from .device_plan import KernelDirection, KernelMap
from .switching import resolve_arguments
from .tensor import SparseTensor, finer_stride, multiply_steps, parse_steps, require_sparse, scatter_rows


class _PoolingLayer(nn.Layer):
    """Base class of the pooling layers, with arguments as for ``Convolution``; ``dimension`` None: any."""

    _transposed = False

    def __init__(
        self,
        kernel_size: Steps = 2,
        stride: Steps = 2,
        dilation: Steps = 1,
        dimension: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        resolve_arguments(self, kwargs)
        self.dimension = dimension
        self.kernel_size, self.stride = parse_steps("kernel_size", kernel_size), parse_steps("stride", stride)
        self.dilation = parse_steps("dilation", dilation)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Return the pooled features on the output's voxels."""
        require_sparse(type(self).__name__, x)
        if self.dimension not in (None, x.dimension):
            raise ValueError(
                f"this pooling is for {self.dimension}-D voxels, but gets {x}: give both the same dimension"
            )
        stride = (
            finer_stride(x, self.stride) if self._transposed else multiply_steps(x.stride, self.stride, x.dimension)
        )
        fine, coarse = (stride, x.stride) if self._transposed else (x.stride, stride)
        key = MapKey(fine, coarse, self.kernel_size, self.dilation)
        features = self._pool(x.features, x.plan.kernel_map(key), x.plan.rows(stride))
        return SparseTensor(features, plan=x.plan, stride=stride)

    def _pool(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        """Return (rows, C) from the input's features (n, C)."""
        return _SumFunction.apply(features, kernel_map, rows, self._transposed)

    def extra_repr(self) -> str:
        """Return the arguments that ``print(layer)`` shows."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, dilation={self.dilation}"


class SumPooling(_PoolingLayer):
    """Sum over the existing voxels in the kernel."""


class AveragePooling(_PoolingLayer):
    """Mean over the existing voxels in the kernel, as in MinkowskiEngine; 0 if there are none."""

    def _pool(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        with paddle.no_grad():
            counts = _SumFunction.apply(paddle.ones([features.shape[0], 1], dtype=features.dtype), kernel_map, rows)
        total = _SumFunction.apply(features, kernel_map, rows)
        return total / paddle.clip(counts, min=1.0) if rows else total


class MaxPooling(_PoolingLayer):
    """Maximum of each channel over the existing voxels in the kernel; 0 if there are none.

    In a tie, the first kernel offset gets the gradient. NaN propagates.
    """

    def _pool(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        return max_over_pairs(features, kernel_map, rows)


class Unpooling(_PoolingLayer):
    """The transpose of ``SumPooling``: every coarse voxel's features are added to the finer voxels in its kernel."""

    _transposed = True


class GlobalPooling(nn.Layer):
    """Dense tensor (scenes, C), zeros for a scene without voxels; ``mode`` is "average", "sum" or "max"."""

    def __init__(self, mode: str = "average", **kwargs: Any) -> None:
        super().__init__()
        resolve_arguments(self, kwargs, dimension=None)  # the layer works in any dimension
        if mode not in _REDUCTIONS:
            raise ValueError(f"mode is '{mode}', expected one of {', '.join(_REDUCTIONS)}")
        self.mode = mode

    def forward(self, x: SparseTensor) -> paddle.Tensor:
        """Return the pooled features (scenes, C)."""
        require_sparse("GlobalPooling", x, computes=False)
        # Sums over all voxels of a scene exceed the range of half precision.
        is_double = x.features.dtype == paddle.float64
        features = as_dtype(x.features, paddle.float64 if is_double else paddle.float32)
        with autocast.off():
            return reduce_by_scene(features, x.plan.scenes(x.stride), _REDUCTIONS[self.mode])

    def extra_repr(self) -> str:
        """Return the arguments that ``print(layer)`` shows."""
        return f"mode={self.mode}"


def reduce_by_scene(
    features: paddle.Tensor, scenes: SceneRanges, reduce: Callable[..., paddle.Tensor]
) -> paddle.Tensor:
    """Return (scenes, C) from (N, C), zeros for scenes without voxels. Rows are added in full precision.

    A product with ones would be rounded to TF32 on a GPU, and an error of 1e-3 in the mean is too large for features
    that differ by less. ``reduce`` reduces (C, rows) along an axis, such as ``paddle.mean`` or ``paddle.sum``.
    """
    present = np.flatnonzero(scenes.sizes)
    if not len(present):
        return paddle.zeros([len(scenes.sizes), features.shape[1]], dtype=features.dtype) + build_zero(features).astype(
            features.dtype
        )
    ordered = paddle.gather(features, scenes.order) if scenes.order.shape[0] else features
    parts = paddle.split(ordered, [scenes.sizes[scene] for scene in present])
    # Paddle's CPU kernels are ten times as fast along the last axis.
    turned = [widen_for_sum(part.transpose([1, 0]), part.shape[0]) for part in parts]
    reduced = paddle.stack([as_dtype(reduce(part, axis=1), features.dtype) for part in turned])
    return reduced if len(present) == len(scenes.sizes) else scatter_rows(reduced, present, len(scenes.sizes))


def _largest(channels: paddle.Tensor, axis: int) -> paddle.Tensor:
    """Return the maximum, with the gradient to one row; the gradient of ``paddle.max`` takes quadratic time on CPUs."""
    places = channels.argmax(axis=axis, keepdim=True)
    return paddle.take_along_axis(channels, places, axis).squeeze(axis)


_REDUCTIONS: dict[str, Callable[..., paddle.Tensor]] = {"average": paddle.mean, "sum": paddle.sum, "max": _largest}


class _SumFunction(paddle.autograd.PyLayer):
    """Sum of the input rows of all kernel offsets, including the center of a symmetric map."""

    @staticmethod
    def forward(
        ctx: PyLayerContext, features: paddle.Tensor, kernel_map: KernelMap, rows: int, transposed: bool = False
    ) -> paddle.Tensor:
        directions = kernel_map.to_fine, kernel_map.to_coarse
        forward, ctx.backward_direction = directions if transposed else directions[::-1]
        ctx.has_center, ctx.rows = kernel_map.is_symmetric, features.shape[0]
        with paddle.no_grad():
            return sum_pairs(features, forward, rows, ctx.has_center)

    @staticmethod
    def backward(ctx: PyLayerContext, gradient: paddle.Tensor) -> paddle.Tensor:
        with paddle.no_grad():
            return sum_pairs(gradient, ctx.backward_direction, ctx.rows, ctx.has_center)


def sum_pairs(
    source: paddle.Tensor,
    direction: KernelDirection,
    rows: int,
    has_center: bool,
    scales: Sequence[paddle.Tensor] | None = None,
) -> paddle.Tensor:
    """Return (rows, C): for each output row the sum of its input rows in ``source`` (n, C).

    If the map has a center, each row is also its own input row. Each input row is multiplied by the ``scales`` (C,) of
    its kernel offset.
    """
    if has_center and rows:  # some kernels reject zero rows
        received = source.clone() if scales is None else source * scales[len(scales) // 2]
    else:
        received = paddle.zeros([rows, source.shape[1]], dtype=source.dtype)
    for offset, out_rows, in_rows in direction.lists():  # within a list no output row occurs twice
        gathered = paddle.gather(source, in_rows)
        total = paddle.gather(received, out_rows) + (gathered if scales is None else gathered * scales[offset])
        paddle.scatter_(received, out_rows, total)
    return received


def max_over_pairs(features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
    """Return (rows, C), the maximum over the pairs to the coarse level; in a tie the first list gets the gradient."""
    return _MaxFunction.apply(features, kernel_map, rows)


class _MaxFunction(paddle.autograd.PyLayer):
    """Maximum over the input rows for each output row and channel."""

    @staticmethod
    def forward(ctx: PyLayerContext, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        with paddle.no_grad():
            largest = paddle.full([rows, features.shape[1]], -float("inf"), dtype=features.dtype)
            winner = paddle.full([rows, features.shape[1]], -1, dtype="int32")  # kernel offset of the largest
            for offset, out_rows, in_rows in _by_offset(kernel_map, rows):
                old = paddle.gather(largest, out_rows)
                new = paddle.gather(features, in_rows)
                old_winner = paddle.gather(winner, out_rows)
                wins = (new > old) | (new != new) | (old_winner < 0)  # NaN wins over any value
                paddle.scatter_(largest, out_rows, paddle.where(wins, new, old))
                paddle.scatter_(winner, out_rows, paddle.where(wins, paddle.full_like(old_winner, offset), old_winner))
            ctx.kernel_map = kernel_map
            ctx.save_for_backward(features, winner)
            return paddle.where(winner >= 0, largest, paddle.zeros_like(largest)) if rows else largest

    @staticmethod
    def backward(ctx: PyLayerContext, gradient: paddle.Tensor) -> paddle.Tensor:
        features, winner = ctx.saved_tensor()
        with paddle.no_grad():
            received = paddle.zeros(features.shape, dtype=features.dtype)
            for offset, out_rows, in_rows in _by_offset(ctx.kernel_map, winner.shape[0]):
                share = paddle.gather(gradient, out_rows) * (paddle.gather(winner, out_rows) == offset).astype(
                    gradient.dtype
                )
                total = paddle.gather(received, in_rows) + share  # at one offset no input row occurs twice
                paddle.scatter_(received, in_rows, total)
            return received


def _by_offset(kernel_map: KernelMap, rows: int) -> list[tuple[int, paddle.Tensor, paddle.Tensor]]:
    """Return (kernel offset, output rows, input rows) of all pairs to the coarse level, ascending, with the center."""
    center: int | None = kernel_map.num_offsets // 2 if kernel_map.is_symmetric and rows else None
    offsets: dict[int, list[Any]] = {}
    for pairs in kernel_map.to_coarse.lists():
        offsets.setdefault(pairs.offset, []).append(pairs)
    result = [
        (offset, paddle.concat([p.out_rows for p in members]), paddle.concat([p.in_rows for p in members]))
        for offset, members in offsets.items()
    ]
    if center is not None:
        every_row = paddle.arange(rows, dtype="int32")
        result.append((center, every_row, every_row))
    return sorted(result, key=lambda entry: entry[0])
