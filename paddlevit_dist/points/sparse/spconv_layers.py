"""Convolutions with the weight layout of spconv 1.x: ``weight`` (k, k, k, C_in, C_out), axes as the spatial columns.

The arithmetic is that of ``layers``. What differs is the order of the kernel's offsets: here the last spatial axis runs
fastest. An inverse convolution takes the pairs of the strided one that made the level, which for kernel 2 and stride 2
is the transposed convolution.
"""

from __future__ import annotations

import math
from typing import List

import paddle
from paddle import nn

from .convolution import convolve
from .layers import finer_stride, pointwise
from .plan_spec import MapKey
from .tensor import SparseTensor


class _WeightLayer(nn.Layer):
    """The parameter of a convolution without bias, uniform within 1 / sqrt(C_in k^3).

    Args:
        in_channels, out_channels: of the features.
        kernel_size: voxels along each axis.
        stride: tensor stride of the coarser side over that of the finer.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = kernel_size, stride
        bound = 1.0 / math.sqrt(in_channels * kernel_size**3)
        self.weight = self.create_parameter(
            [kernel_size] * 3 + [in_channels, out_channels], default_initializer=nn.initializer.Uniform(-bound, bound)
        )
        self._order = last_axis_fastest(kernel_size)

    def _matrices(self) -> paddle.Tensor:
        return self.weight.reshape([-1, self.in_channels, self.out_channels])

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


class StridedConv3D(_WeightLayer):
    """Onto the voxels ``floor(c / stride) * stride``; kernel 2 and stride 2 are spconv's SparseConv3d of PointGroup."""

    def forward(self, x: SparseTensor) -> SparseTensor:
        if self.kernel_size == self.stride == 1:
            return x.with_features(pointwise(x.features, self._matrices()[0]))
        stride = x.stride * self.stride
        kernel_map = x.plan.kernel_map(MapKey(x.stride, stride, self.kernel_size))
        features = convolve(x.features, self._matrices(), kernel_map, x.plan.rows(stride), weight_order=self._order)
        return SparseTensor(features, plan=x.plan, stride=stride)


class SubmanifoldConv3D(StridedConv3D):
    """Voxels stay the same; an odd kernel is centred."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 3) -> None:
        super().__init__(in_channels, out_channels, kernel_size)


class InverseConv3D(_WeightLayer):
    """Back onto the finer voxels: ``fine[2 q + i] = coarse[q] @ weight[i]`` for kernel 2 and stride 2."""

    def forward(self, x: SparseTensor) -> SparseTensor:
        stride = finer_stride(x, self.stride)
        kernel_map = x.plan.kernel_map(MapKey(stride, x.stride, self.kernel_size))
        features = convolve(
            x.features, self._matrices(), kernel_map, x.plan.rows(stride), to_fine=True, weight_order=self._order
        )
        return SparseTensor(features, plan=x.plan, stride=stride)


def last_axis_fastest(kernel_size: int) -> List[int]:
    """For each offset of ``kernel_offsets`` in 3-D, its number when the last axis runs fastest."""
    size = kernel_size
    return [(n % size) * size * size + (n // size % size) * size + n // (size * size) for n in range(size**3)]
