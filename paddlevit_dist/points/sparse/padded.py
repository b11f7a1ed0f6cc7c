"""spconv's strided convolution with padding, its inverse, and its pooling.

Source of the rule: Y. Yan, Y. Mao, B. Li, "SECOND: Sparsely Embedded Convolutional Detection", Sensors 2018, section
3.2, and spconv's ``SparseConv3d``: an output voxel exists wherever the kernel, moved in steps of the stride from
``-padding`` on, meets an input voxel. MinkowskiEngine keeps those that contain one, ``floor(c / stride) * stride``.
"""

import functools
import itertools
from typing import Any

import numpy as np

from .coordinate_keys import Steps, along_axes, distinct
from .coordinate_levels import kernel_offsets
from .device_plan import Plan
from .layers import SpconvConvolution, require
from .pooling import MaxPooling
from .tensor import SparseTensor, require_sparse, times, whole


class PaddedRule:
    """Which voxels a kernel meets that is moved in steps; arguments as of ``PaddedConvolution``."""

    def __init__(
        self, kernel_size: Steps, stride: Steps, padding: Steps, dilation: Steps, dimension: int, spatial_shape: Any
    ) -> None:
        self.dimension = dimension
        self.sides, self.stride = along_axes(kernel_size, dimension), along_axes(stride, dimension)
        self.dilation = along_axes(dilation, dimension)
        self.padding = along_axes(whole("padding", padding, dimension, least=0), dimension)
        shape = (
            None if spatial_shape is None else along_axes(whole("spatial_shape", spatial_shape, dimension), dimension)
        )
        self.spatial_shape = shape

    def offsets(self, fine: Steps) -> np.ndarray:
        """Of the kernel from an output voxel, int64 (K, D), in units of the coordinates, in the order of
        ``kernel_offsets``."""
        offsets = kernel_offsets(self.sides, self.dimension)
        steps = (offsets - offsets.min(axis=0)) * self.dilation
        return (steps - self.padding) * along_axes(fine, self.dimension)

    def find_reached(self, x: SparseTensor) -> np.ndarray:
        """The output's voxels, int32 (M, 1 + D), in lexicographic order."""
        if x.dimension != self.dimension:
            raise ValueError(f"this layer is for {self.dimension}-D voxels, but gets {x}: give both the same dimension")
        given, own = x.coordinates.astype(np.int64), along_axes(x.stride, self.dimension)
        along = [self._places(axis, given[:, 1 + axis] // own[axis]) for axis in range(self.dimension)]
        found = [np.zeros((0, 1 + self.dimension), np.int64)]
        for choice in itertools.product(*along):  # one voxel of the kernel
            rows = np.flatnonzero(functools.reduce(np.logical_and, (is_met for _, is_met in choice)))
            columns = [given[rows, 0], *(places[rows] * step for (places, _), step in zip(choice, own))]
            found.append(np.stack(columns, axis=1))
        return distinct(np.concatenate(found))[0]

    def _places(self, axis: int, given: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each step of the kernel along an axis where it starts if it meets the voxels with it, a multiple of the
        stride, int64 (N,); and whether it can, bool (N,)."""
        step, gap, padding = self.stride[axis], self.dilation[axis], self.padding[axis]
        last = None
        if self.spatial_shape is not None:
            reach = gap * (self.sides[axis] - 1) + 1
            last = (self.spatial_shape[axis] + 2 * padding - reach) // step * step
        found = []
        for number in range(self.sides[axis]):
            starts = given + (padding - gap * number)
            is_met = starts % step == 0
            found.append((starts, is_met if last is None else is_met & (starts >= 0) & (starts <= last)))
        return found


class PaddedConvolution(SpconvConvolution):
    """spconv's ``SparseConv1d`` to ``4d``, with its ``weight`` (k, ..., k, C_in, C_out); the result is on a plan of its
    own. Output voxel ``o`` of spconv's grid has the coordinates ``o * stride`` here.

    Args:
        in_channels, out_channels: of the features.
        kernel_size, stride, dilation: one number, or one for each axis.
        padding: voxels in front of the first of the grid, likewise, from 0.
        bias: add a learned vector.
        dimension: spatial axes, 1 to 4.
        spatial_shape: voxels of the input's grid along each axis, from 0 on, of which spconv keeps no output voxel
            outside; None: the grid has no end, to either side.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Steps = 3,
        stride: Steps = 1,
        padding: Steps = 0,
        dilation: Steps = 1,
        bias: bool = False,
        dimension: int = 3,
        spatial_shape: Steps | None = None,
        **others: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, bias, dimension, **others)
        self.rule = PaddedRule(self.kernel_size, self.stride, padding, self.dilation, dimension, spatial_shape)
        self.is_pointwise = self.is_pointwise and not any(self.rule.padding)

    def forward(self, x: SparseTensor, coordinates: Any = None) -> SparseTensor:
        if coordinates is None and not self._to_fine:
            require(self, x, self.weight, self.in_channels, self.dimension)
            coordinates = self.rule.find_reached(x)
        return super().forward(x, coordinates)

    def _offsets(self, fine: Steps) -> np.ndarray:
        return self.rule.offsets(fine)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, padding={self.rule.padding}, spatial_shape={self.rule.spatial_shape}"


class PaddedInverseConvolution(PaddedConvolution):
    """spconv's ``SparseInverseConv``: back onto the voxels that a ``PaddedConvolution`` with the same sizes started
    from: ``inverse(y, x)`` for ``y = convolution(x)``."""

    _to_fine = True
    _fan_channels = "out"

    def forward(self, x: SparseTensor, coordinates: Any = None) -> SparseTensor:
        if coordinates is None:
            raise ValueError("PaddedInverseConvolution goes back to given voxels: call it with the finer sparse tensor")
        return super().forward(x, coordinates)


class PaddedMaxPooling(MaxPooling):
    """spconv's ``SparseMaxPool1d`` to ``4d``: the maximum of each channel over the existing voxels in the kernel, on
    the voxels of a ``PaddedConvolution`` with the same arguments. spconv begins with 0 where all are negative."""

    def __init__(
        self,
        kernel_size: Steps = 2,
        stride: Steps = 2,
        padding: Steps = 0,
        dilation: Steps = 1,
        dimension: int = 3,
        spatial_shape: Steps | None = None,
        **others: Any,
    ) -> None:
        super().__init__(kernel_size, stride, dilation, dimension, **others)
        self.rule = PaddedRule(self.kernel_size, self.stride, padding, self.dilation, dimension, spatial_shape)

    def forward(self, x: SparseTensor) -> SparseTensor:
        require_sparse("PaddedMaxPooling", x)
        stride = times(x.stride, self.stride, x.dimension)
        plan = Plan.of_coordinates(self.rule.find_reached(x), x.plan.num_scenes, stride)
        kernel_map = x.plan.map_to(x.stride, plan.coordinates(stride), self.rule.offsets(x.stride))
        return SparseTensor(self._pool(x.features, kernel_map, plan.rows(stride)), plan=plan, stride=stride)
