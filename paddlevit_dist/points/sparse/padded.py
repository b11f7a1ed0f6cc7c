"""spconv's strided convolution with padding, its inverse, and its pooling.

Source of the rule: Y. Yan, Y. Mao, B. Li, "SECOND: Sparsely Embedded Convolutional Detection", Sensors 2018, section
3.2, and spconv's ``SparseConv3d``: an output voxel exists wherever the kernel, moved in steps of the stride from
``-padding`` on, covers an input voxel. MinkowskiEngine instead creates ``floor(c / stride) * stride`` for each voxel.
"""

import functools
import itertools
from typing import Any

import numpy as np

from .coordinate_keys import Steps, along_axes, unique_voxels
from .coordinate_levels import kernel_offsets
from .device_plan import Plan
from .layers import SpconvConvolution, Voxels, require
from .pooling import MaxPooling
from .tensor import SparseTensor, multiply_steps, parse_steps, require_sparse


class PaddedRule:
    """spconv's rule for output voxels; the arguments are as for ``PaddedConvolution``."""

    def __init__(
        self,
        kernel_size: Steps,
        stride: Steps,
        padding: Steps,
        dilation: Steps,
        dimension: int,
        spatial_shape: Steps | None,
    ) -> None:
        self.dimension = dimension
        self.sides, self.stride = along_axes(kernel_size, dimension), along_axes(stride, dimension)
        self.dilation = along_axes(dilation, dimension)
        self.padding = along_axes(parse_steps("padding", padding, dimension, minimum=0), dimension)
        shape = (
            None
            if spatial_shape is None
            else along_axes(parse_steps("spatial_shape", spatial_shape, dimension), dimension)
        )
        self.spatial_shape = shape

    def offsets(self, fine: Steps) -> np.ndarray:
        """Return offsets from an output voxel, int64 (K, D), in units of the coordinates, as in ``kernel_offsets``."""
        offsets = kernel_offsets(self.sides, self.dimension)
        steps = (offsets - offsets.min(axis=0)) * self.dilation
        return (steps - self.padding) * along_axes(fine, self.dimension)

    def find_output_voxels(self, x: SparseTensor) -> np.ndarray:
        """Return the output's voxels, int32 (M, 1 + D), in lexicographic order."""
        if x.dimension != self.dimension:
            raise ValueError(f"this layer is for {self.dimension}-D voxels, but gets {x}: give both the same dimension")
        coordinates, input_stride = x.coordinates.astype(np.int64), along_axes(x.stride, self.dimension)
        starts_by_axis = [
            self._starts_along(axis, coordinates[:, 1 + axis] // input_stride[axis]) for axis in range(self.dimension)
        ]
        outputs = []
        for steps in itertools.product(*starts_by_axis):  # one voxel of the kernel
            rows = np.flatnonzero(functools.reduce(np.logical_and, (matches for _, matches in steps)))
            columns = [coordinates[rows, 0], *(starts[rows] * step for (starts, _), step in zip(steps, input_stride))]
            outputs.append(np.stack(columns, axis=1))
        return unique_voxels(np.concatenate(outputs))[0]

    def _starts_along(self, axis: int, positions: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return for each kernel voxel along an axis the kernel's start, int64 (N,), if it covers ``positions``.

        The start is a multiple of the stride; with it, bool (N,), whether the kernel can start there.
        """
        step, gap, padding = self.stride[axis], self.dilation[axis], self.padding[axis]
        last = None
        if self.spatial_shape is not None:
            reach = gap * (self.sides[axis] - 1) + 1
            last = (self.spatial_shape[axis] + 2 * padding - reach) // step * step
        candidates = []
        for number in range(self.sides[axis]):
            starts = positions + (padding - gap * number)
            matches = starts % step == 0
            candidates.append((starts, matches if last is None else matches & (starts >= 0) & (starts <= last)))
        return candidates


class PaddedConvolution(SpconvConvolution):
    """spconv's ``SparseConv1d`` to ``SparseConv4d``, with ``weight`` (k, ..., k, C_in, C_out).

    The result has a separate plan. Output voxel ``o`` of spconv's grid has the coordinates ``o * stride`` here. Sizes
    are one number, or one for each axis. ``padding`` is the voxels before the first voxel of the grid, from 0.
    ``spatial_shape`` is the voxels of the input's grid along each axis, starting at 0; spconv drops output voxels
    outside of it; None: the grid has no bounds. Other arguments are as for ``Convolution``.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, bias, dimension, **kwargs)
        self.rule = PaddedRule(self.kernel_size, self.stride, padding, self.dilation, dimension, spatial_shape)

    def forward(self, x: SparseTensor, coordinates: Voxels | None = None) -> SparseTensor:
        """Return the convolved features on the voxels of spconv's rule, or on ``coordinates`` if given."""
        if coordinates is None:
            require(self, x, self.weight, self.in_channels, self.dimension)
            coordinates = self.rule.find_output_voxels(x)
        return super().forward(x, coordinates)

    def _offsets(self, fine: Steps) -> np.ndarray:
        return self.rule.offsets(fine)

    def extra_repr(self) -> str:
        """Return the arguments that ``print(layer)`` shows."""
        return f"{super().extra_repr()}, padding={self.rule.padding}, spatial_shape={self.rule.spatial_shape}"


class PaddedInverseConvolution(PaddedConvolution):
    """spconv's ``SparseInverseConv``: ``inverse(y, x)`` has the voxels of ``x`` for ``y = convolution(x)``.

    Give it the sizes of the ``PaddedConvolution`` that it inverts.
    """

    _transposed = True
    _fan_channels = "out"

    def forward(self, x: SparseTensor, coordinates: Voxels | None = None) -> SparseTensor:
        """Return the convolved features on the voxels of ``coordinates``, the finer sparse tensor."""
        if coordinates is None:
            raise ValueError("PaddedInverseConvolution needs the output's voxels: call it with the finer sparse tensor")
        return super().forward(x, coordinates)


class PaddedMaxPooling(MaxPooling):
    """spconv's ``SparseMaxPool1d`` to ``SparseMaxPool4d``: maximum over the existing voxels in the kernel.

    The output has the voxels of a ``PaddedConvolution`` with the same arguments. spconv returns 0 if all values are
    negative; this layer returns their maximum.
    """

    def __init__(
        self,
        kernel_size: Steps = 2,
        stride: Steps = 2,
        padding: Steps = 0,
        dilation: Steps = 1,
        dimension: int = 3,
        spatial_shape: Steps | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(kernel_size, stride, dilation, dimension, **kwargs)
        self.rule = PaddedRule(self.kernel_size, self.stride, padding, self.dilation, dimension, spatial_shape)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Return the maximum of each channel on the output's voxels."""
        require_sparse("PaddedMaxPooling", x)
        stride = multiply_steps(x.stride, self.stride, x.dimension)
        plan = Plan.of_coordinates(self.rule.find_output_voxels(x), x.plan.num_scenes, stride)
        kernel_map = x.plan.map_to(x.stride, plan.coordinates(stride), self.rule.offsets(x.stride))
        return SparseTensor(self._pool(x.features, kernel_map, plan.rows(stride)), plan=plan, stride=stride)
