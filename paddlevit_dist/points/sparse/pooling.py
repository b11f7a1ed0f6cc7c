"""Pooling of sparse tensors: over a kernel's voxels, or over all voxels of each scene."""

from typing import Any

import paddle
from paddle import nn

from ...parallel import zero_of
from ...runtime import autocast
from .coordinate_keys import Steps
from .coordinate_plan import MapKey
from .device_plan import KernelMap
from .tensor import SparseTensor, finer_stride, require_sparse, times, whole


class _Pooling(nn.Layer):
    """Base class of the pooling layers.

    Args:
        kernel_size: voxels along each axis.
        stride: tensor stride of the output over that of the input.
        dilation: distance between kernel offsets in voxels.
    """

    _to_fine = False

    def __init__(self, kernel_size: Steps = 2, stride: Steps = 2, dilation: Steps = 1) -> None:
        super().__init__()
        self.kernel_size, self.stride = whole("kernel_size", kernel_size), whole("stride", stride)
        self.dilation = whole("dilation", dilation)

    def forward(self, x: SparseTensor) -> SparseTensor:
        require_sparse(type(self).__name__, x)
        stride = finer_stride(x, self.stride) if self._to_fine else times(x.stride, self.stride, x.dimension)
        fine, coarse = (stride, x.stride) if self._to_fine else (x.stride, stride)
        key = MapKey(fine, coarse, self.kernel_size, self.dilation)
        features = self._pooled(x.features, x.plan.kernel_map(key), x.plan.rows(stride))
        return SparseTensor(features, plan=x.plan, stride=stride)

    def _pooled(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        """(rows, C) from the input's features (n, C)."""
        return _Sum.apply(features, kernel_map, rows, self._to_fine)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, dilation={self.dilation}"


class SumPooling(_Pooling):
    """Sum over the existing voxels in the kernel."""


class AveragePooling(_Pooling):
    """Mean over the existing voxels in the kernel, as in MinkowskiEngine; 0 if there are none."""

    def _pooled(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        with paddle.no_grad():
            counts = _Sum.apply(paddle.ones([features.shape[0], 1], dtype=features.dtype), kernel_map, rows)
        return _divide(_Sum.apply(features, kernel_map, rows), counts)


class MaxPooling(_Pooling):
    """Maximum of each channel over the existing voxels in the kernel; 0 if there are none.

    In a tie, the first kernel offset gets the gradient. What is not a number stays so.
    """

    def _pooled(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        return _Max.apply(features, kernel_map, rows)


class Unpooling(_Pooling):
    """The transpose of ``SumPooling``: every coarse voxel's features are added to the finer voxels in its kernel."""

    _to_fine = True


class GlobalPooling(nn.Layer):
    """One row for each scene of the batch, (scenes, C), a dense tensor; zeros for a scene without voxels.

    Args:
        mode: "average", "sum" or "max".
    """

    def __init__(self, mode: str = "average") -> None:
        super().__init__()
        if mode not in ("average", "sum", "max"):
            raise ValueError(f"mode is '{mode}', expected 'average', 'sum' or 'max'")
        self.mode = mode

    def forward(self, x: SparseTensor) -> paddle.Tensor:
        require_sparse("GlobalPooling", x)
        scenes, channels = x.plan.num_scenes, x.features.shape[1]
        numbers = x.plan.scenes(x.stride)
        if not x.features.shape[0]:
            zeros = paddle.zeros([scenes, channels], dtype=x.features.dtype)
            return zeros + zero_of(x.features).astype(zeros.dtype)
        if self.mode == "max":
            return paddle.stack([_largest(x.features, numbers == scene) for scene in range(scenes)])
        is_of_scene = (numbers.unsqueeze(0) == paddle.arange(scenes, dtype="int32").unsqueeze(1)).astype(
            x.features.dtype
        )  # (scenes, rows)
        with autocast.off():  # sums of all voxels of a scene leave the range of half precision
            total = paddle.matmul(is_of_scene, x.features)
        return total if self.mode == "sum" else _divide(total, is_of_scene.sum(axis=1, keepdim=True))

    def extra_repr(self) -> str:
        return f"mode={self.mode}"


def _largest(features: paddle.Tensor, is_chosen: paddle.Tensor) -> paddle.Tensor:
    rows = paddle.nonzero(is_chosen).flatten()
    if not rows.shape[0]:
        return paddle.zeros([features.shape[1]], dtype=features.dtype)
    return paddle.gather(features, rows).max(axis=0)


def _divide(total: paddle.Tensor, counts: paddle.Tensor) -> paddle.Tensor:
    return total / paddle.clip(counts, min=1.0) if total.shape[0] else total


class _Sum(paddle.autograd.PyLayer):
    """Sum of the giving rows of all kernel offsets; the centre of a symmetric map gives too."""

    @staticmethod
    def forward(
        ctx: Any, features: paddle.Tensor, kernel_map: KernelMap, rows: int, to_fine: bool = False
    ) -> paddle.Tensor:
        ctx.kernel_map, ctx.to_fine, ctx.rows = kernel_map, to_fine, features.shape[0]
        return _summed(features, kernel_map, rows, to_fine)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        return _summed(gradient, ctx.kernel_map, ctx.rows, not ctx.to_fine)


def _summed(source: paddle.Tensor, kernel_map: KernelMap, rows: int, to_fine: bool) -> paddle.Tensor:
    with paddle.no_grad():
        has_centre = kernel_map.is_symmetric
        received = source.clone() if has_centre else paddle.zeros([rows, source.shape[1]], dtype=source.dtype)
        for _, receivers, givers in (kernel_map.to_fine if to_fine else kernel_map.to_coarse).lists():
            total = paddle.gather(received, receivers) + paddle.gather(source, givers)
            paddle.scatter_(received, receivers, total)
        return received


class _Max(paddle.autograd.PyLayer):
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
    """(kernel offset, receivers, givers) of all pairs to the coarse level, including the centre, by ascending
    offset."""
    centre: int | None = kernel_map.num_offsets // 2 if kernel_map.is_symmetric and rows else None
    offsets: dict[int, list[Any]] = {}
    for pairs in kernel_map.to_coarse.lists():
        offsets.setdefault(pairs.offset, []).append(pairs)
    result = [
        (offset, paddle.concat([p.receivers for p in pairs]), paddle.concat([p.givers for p in pairs]))
        for offset, pairs in offsets.items()
    ]
    if centre is not None:
        every_row = paddle.arange(rows, dtype="int32")
        result.append((centre, every_row, every_row))
    return sorted(result, key=lambda entry: entry[0])
