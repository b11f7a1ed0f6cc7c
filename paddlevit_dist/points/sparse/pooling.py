"""Pooling of sparse tensors: over a kernel's voxels, or over all voxels of each scene."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn

from ...distributed import build_zero
from ...runtime import autocast
from ...runtime.autocast import as_dtype
from .coordinate_keys import Steps
from .coordinate_plan import MapKey, SceneRanges
from .device_plan import KernelDirection, KernelMap
from .switching import take_arguments
from .tensor import SparseTensor, finer_stride, put_rows, require_sparse, times, whole


class _PoolingLayer(nn.Layer):
    """Base class of the pooling layers.

    Args:
        kernel_size: voxels along each axis.
        stride: tensor stride of the output over that of the input.
        dilation: distance between kernel offsets in voxels.
        dimension: spatial axes; None: any.
        others: of MinkowskiEngine or spconv, see ``switching``.
    """

    _to_fine = False

    def __init__(
        self,
        kernel_size: Steps = 2,
        stride: Steps = 2,
        dilation: Steps = 1,
        dimension: int | None = None,
        **others: Any,
    ) -> None:
        super().__init__()
        take_arguments(self, others)
        self.dimension = dimension
        self.kernel_size, self.stride = whole("kernel_size", kernel_size), whole("stride", stride)
        self.dilation = whole("dilation", dilation)

    def forward(self, x: SparseTensor) -> SparseTensor:
        require_sparse(type(self).__name__, x)
        if self.dimension not in (None, x.dimension):
            raise ValueError(
                f"this pooling is for {self.dimension}-D voxels, but gets {x}: give both the same dimension"
            )
        stride = finer_stride(x, self.stride) if self._to_fine else times(x.stride, self.stride, x.dimension)
        fine, coarse = (stride, x.stride) if self._to_fine else (x.stride, stride)
        key = MapKey(fine, coarse, self.kernel_size, self.dilation)
        features = self._pool(x.features, x.plan.kernel_map(key), x.plan.rows(stride))
        return SparseTensor(features, plan=x.plan, stride=stride)

    def _pool(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        """(rows, C) from the input's features (n, C)."""
        return _SumFunction.apply(features, kernel_map, rows, self._to_fine)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, dilation={self.dilation}"


class SumPooling(_PoolingLayer):
    """Sum over the existing voxels in the kernel."""


class AveragePooling(_PoolingLayer):
    """Mean over the existing voxels in the kernel, as in MinkowskiEngine; 0 if there are none."""

    def _pool(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        with paddle.no_grad():
            counts = _SumFunction.apply(paddle.ones([features.shape[0], 1], dtype=features.dtype), kernel_map, rows)
        return _divide(_SumFunction.apply(features, kernel_map, rows), counts)


class MaxPooling(_PoolingLayer):
    """Maximum of each channel over the existing voxels in the kernel; 0 if there are none.

    In a tie, the first kernel offset gets the gradient. What is not a number stays so.
    """

    def _pool(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        return _MaxFunction.apply(features, kernel_map, rows)


class Unpooling(_PoolingLayer):
    """The transpose of ``SumPooling``: every coarse voxel's features are added to the finer voxels in its kernel."""

    _to_fine = True


class GlobalPooling(nn.Layer):
    """One row for each scene of the batch, (scenes, C), a dense tensor; zeros for a scene without voxels.

    Args:
        mode: "average", "sum" or "max".
    """

    def __init__(self, mode: str = "average", **others: Any) -> None:
        super().__init__()
        take_arguments(self, others, dimension=None)  # it is the same for any
        if mode not in _OF_SCENES:
            raise ValueError(f"mode is '{mode}', expected one of {', '.join(_OF_SCENES)}")
        self.mode = mode

    def forward(self, x: SparseTensor) -> paddle.Tensor:
        require_sparse("GlobalPooling", x, computes=False)
        # Sums of all voxels of a scene leave the range of half precision.
        is_double = x.features.dtype == paddle.float64
        features = as_dtype(x.features, paddle.float64 if is_double else paddle.float32)
        with autocast.off():
            return of_each_scene(features, x.plan.scenes(x.stride), _OF_SCENES[self.mode])

    def extra_repr(self) -> str:
        return f"mode={self.mode}"


def of_each_scene(features: paddle.Tensor, scenes: SceneRanges, reduce: Callable[..., paddle.Tensor]) -> paddle.Tensor:
    """(scenes, C) from (N, C), zeros for scenes without voxels.

    A scene's voxels are added one by one, in full precision: a product with ones would be rounded by a GPU's TF32, and
    a mean that is off by 1e-3 is no mean of features that differ by less.

    Args:
        reduce: of (C, rows) along an axis, ``paddle.mean``, ``paddle.sum`` or the like.
    """
    present = np.flatnonzero(scenes.sizes)
    if not len(present):
        return paddle.zeros([len(scenes.sizes), features.shape[1]], dtype=features.dtype) + build_zero(features).astype(
            features.dtype
        )
    ordered = paddle.gather(features, scenes.order) if scenes.order.shape[0] else features
    parts = paddle.split(ordered, [scenes.sizes[scene] for scene in present])
    # Along the last axis Paddle's CPU kernels take a tenth of the time.
    found = paddle.stack([reduce(part.transpose([1, 0]), axis=1) for part in parts])
    return found if len(present) == len(scenes.sizes) else put_rows(found, present, len(scenes.sizes))


def _largest(channels: paddle.Tensor, axis: int) -> paddle.Tensor:
    """The maximum, one row of which gets the gradient; that of ``paddle.max`` takes quadratic time on CPUs."""
    places = channels.argmax(axis=axis, keepdim=True)
    return paddle.take_along_axis(channels, places, axis).squeeze(axis)


_OF_SCENES: dict[str, Callable[..., paddle.Tensor]] = {"average": paddle.mean, "sum": paddle.sum, "max": _largest}


def _divide(total: paddle.Tensor, counts: paddle.Tensor) -> paddle.Tensor:
    return total / paddle.clip(counts, min=1.0) if total.shape[0] else total


class _SumFunction(paddle.autograd.PyLayer):
    """Sum of the giving rows of all kernel offsets; the center of a symmetric map gives too."""

    @staticmethod
    def forward(
        ctx: Any, features: paddle.Tensor, kernel_map: KernelMap, rows: int, to_fine: bool = False
    ) -> paddle.Tensor:
        directions = kernel_map.to_fine, kernel_map.to_coarse
        forward, ctx.back = directions if to_fine else directions[::-1]
        ctx.has_center, ctx.rows = kernel_map.is_symmetric, features.shape[0]
        with paddle.no_grad():
            return summed(features, forward, rows, ctx.has_center)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        with paddle.no_grad():
            return summed(gradient, ctx.back, ctx.rows, ctx.has_center)


def summed(
    source: paddle.Tensor,
    direction: KernelDirection,
    rows: int,
    has_center: bool,
    scales: Sequence[paddle.Tensor] | None = None,
) -> paddle.Tensor:
    """Sum what each of ``rows`` rows receives: the sum of the giving rows (n, C), and of itself if the map has a
    center, each times the ``scales`` (C,) of its kernel offset."""
    if has_center and rows:  # some kernels reject no rows
        received = source.clone() if scales is None else source * scales[len(scales) // 2]
    else:
        received = paddle.zeros([rows, source.shape[1]], dtype=source.dtype)
    for offset, receivers, givers in direction.lists():  # within a list no row receives twice
        given = paddle.gather(source, givers)
        total = paddle.gather(received, receivers) + (given if scales is None else given * scales[offset])
        paddle.scatter_(received, receivers, total)
    return received


class _MaxFunction(paddle.autograd.PyLayer):
    """Maximum over the giving rows for each row and channel."""

    @staticmethod
    def forward(ctx: Any, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        with paddle.no_grad():
            largest = paddle.full([rows, features.shape[1]], -float("inf"), dtype=features.dtype)
            winner = paddle.full([rows, features.shape[1]], -1, dtype="int32")  # kernel offset of the largest
            for offset, receivers, givers in _by_offset(kernel_map, rows):
                old = paddle.gather(largest, receivers)
                new = paddle.gather(features, givers)
                number = paddle.gather(winner, receivers)
                wins = (new > old) | (new != new) | (number < 0)  # not a number: whatever has been seen before
                paddle.scatter_(largest, receivers, paddle.where(wins, new, old))
                paddle.scatter_(winner, receivers, paddle.where(wins, paddle.full_like(number, offset), number))
            ctx.kernel_map = kernel_map
            ctx.save_for_backward(features, winner)
            return paddle.where(winner >= 0, largest, paddle.zeros_like(largest)) if rows else largest

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        features, winner = ctx.saved_tensor()
        with paddle.no_grad():
            received = paddle.zeros(features.shape, dtype=features.dtype)
            for offset, receivers, givers in _by_offset(ctx.kernel_map, winner.shape[0]):
                share = paddle.gather(gradient, receivers) * (paddle.gather(winner, receivers) == offset).astype(
                    gradient.dtype
                )
                total = paddle.gather(received, givers) + share  # no voxel gives twice at one offset
                paddle.scatter_(received, givers, total)
            return received


def _by_offset(kernel_map: KernelMap, rows: int) -> list[tuple[int, paddle.Tensor, paddle.Tensor]]:
    """(kernel offset, receivers, givers) of all pairs to the coarse level, including the center, by ascending
    offset."""
    center: int | None = kernel_map.num_offsets // 2 if kernel_map.is_symmetric and rows else None
    offsets: dict[int, list[Any]] = {}
    for pairs in kernel_map.to_coarse.lists():
        offsets.setdefault(pairs.offset, []).append(pairs)
    result = [
        (offset, paddle.concat([p.receivers for p in pairs]), paddle.concat([p.givers for p in pairs]))
        for offset, pairs in offsets.items()
    ]
    if center is not None:
        every_row = paddle.arange(rows, dtype="int32")
        result.append((center, every_row, every_row))
    return sorted(result, key=lambda entry: entry[0])
