"""spconv's strided convolution with padding, and its inverse.

Source of the rule: Y. Yan, Y. Mao, B. Li, "SECOND: Sparsely Embedded Convolutional Detection", Sensors 2018, section
3.2, and spconv's ``SparseConv3d``: an output voxel exists wherever the kernel, moved in steps of the stride from
``-padding`` on, meets an input voxel. MinkowskiEngine keeps those that contain one, ``floor(c / stride) * stride``.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...checkpoint.load import from_torch_names
from .coordinate_keys import Steps, along_axes, distinct
from .coordinate_levels import kernel_offsets
from .layers import SpconvConvolution, require
from .tensor import SparseTensor, times


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
        spatial_shape: Sequence[int] | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, bias, dimension)
        self.padding = along_axes(padding if isinstance(padding, int) else tuple(padding), dimension)
        self.spatial_shape = None if spatial_shape is None else along_axes(tuple(spatial_shape), dimension)
        if min(self.padding) < 0:
            raise ValueError(f"padding is {padding!r}, expected whole numbers from 0")
        self.is_pointwise = self.is_pointwise and not any(self.padding)

    def forward(self, x: SparseTensor, coordinates: Any = None) -> SparseTensor:
        if coordinates is None and not self._to_fine:
            require(self, x, self.weight, self.in_channels, self.dimension)
            coordinates = self._reached(x)
        return super().forward(x, coordinates)

    def _steps(self) -> np.ndarray:
        """Of the kernel from its first voxel, int64 (K, D), in voxels of the input, in the order of its offsets."""
        offsets = kernel_offsets(self.kernel_size, self.dimension)
        return (offsets - offsets.min(axis=0)) * along_axes(self.dilation, self.dimension)

    def _offsets(self, fine: Steps) -> np.ndarray:
        return (self._steps() - self.padding) * along_axes(fine, self.dimension)

    def _reached(self, x: SparseTensor) -> np.ndarray:
        """The output's voxels, int32 (M, 1 + D)."""
        own, stride = along_axes(x.stride, self.dimension), along_axes(self.stride, self.dimension)
        given = x.coordinates.astype(np.int64)
        starts = given[:, None, 1:] // own + self.padding - self._steps()  # (N, K, D), of the kernel
        is_met = (starts % stride == 0).all(axis=2)
        places = starts // stride
        if self.spatial_shape is not None:
            reach = self._steps().max(axis=0) + 1
            sizes = (np.array(self.spatial_shape) + 2 * np.array(self.padding) - reach) // stride + 1
            is_met &= ((places >= 0) & (places < sizes)).all(axis=2)
        scenes = np.broadcast_to(given[:, None, :1], (*is_met.shape, 1))
        coarse = along_axes(times(x.stride, self.stride, self.dimension), self.dimension)
        return distinct(np.concatenate([scenes, places * coarse], axis=2)[is_met])[0]


class PaddedInverseConvolution(PaddedConvolution):
    """spconv's ``SparseInverseConv``: back onto the voxels that a ``PaddedConvolution`` with the same sizes started
    from: ``inverse(y, x)`` for ``y = convolution(x)``."""

    _to_fine = True
    _fan_channels = "out"

    def forward(self, x: SparseTensor, coordinates: Any = None) -> SparseTensor:
        if coordinates is None:
            raise ValueError("PaddedInverseConvolution goes back to given voxels: call it with the finer sparse tensor")
        return super().forward(x, coordinates)


def from_spconv(state: Mapping[str, np.ndarray], dimension: int = 3) -> dict[str, np.ndarray]:
    """A state of spconv 1 or 2 as the layers here have it, for the ``key_maps`` of a network.

    spconv 2 has the output channels of a convolution's ``weight`` in front, (C_out, k, k, k, C_in), and spconv 1 has
    them behind. Which one it is shows in all convolutions together: sides of kernels are smaller than channels.
    """
    weights = [name for name in state if name.endswith("weight") and np.ndim(state[name]) == dimension + 2]
    shapes = [state[name].shape for name in weights]
    is_second = sum(math.prod(shape[1:-1]) - math.prod(shape[:-2]) for shape in shapes) < 0
    moved = {name: np.moveaxis(state[name], 0, -1) for name in weights} if is_second else {}
    return from_torch_names({**state, **moved})
