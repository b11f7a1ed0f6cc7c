"""Conversion of other libraries' published weights, for the ``key_maps`` of a network."""

import math
from collections.abc import Mapping

import numpy as np

from ...core.checkpoint.foreign_names import from_torch_names
from ...core.runtime.errors import UserError


def from_spconv(state: Mapping[str, np.ndarray], dimension: int = 3) -> dict[str, np.ndarray]:
    """Convert a state dict of spconv 1 or 2.

    Version 2 has the output channels of a convolution's ``weight`` first, (C_out, k, k, k, C_in); version 1 has them
    last. The version is inferred from all convolutions together: the sides of kernels are smaller than channels.
    """
    weights = [name for name in state if name.endswith("weight") and np.ndim(state[name]) == dimension + 2]
    shapes = [state[name].shape for name in weights]
    is_version_2 = sum(math.prod(shape[1:-1]) - math.prod(shape[:-2]) for shape in shapes) < 0
    transposed = {name: np.moveaxis(state[name], 0, -1) for name in weights} if is_version_2 else {}
    return from_torch_names({**state, **transposed})


def from_torchsparse(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert a state dict of torchsparse for ``Convolution``, ``TransposedConvolution`` and ``BatchNorm``.

    Kernels (K, C_in, C_out) with odd K have the order of MinkowskiEngine's, first axis fastest; for even K the last
    axis is fastest (``get_kernel_offsets`` in torchsparse/nn/utils/kernel.py). Biases are (C_out,) there. UserError for
    kernels with even sides other than 2, whose voxel positions differ.
    """
    converted = dict(state)
    for name in state:
        if not name.endswith("kernel"):
            continue
        number, bias = np.shape(state[name])[0], name.removesuffix("kernel") + "bias"
        if np.ndim(state[name]) == 3 and number % 2 == 0:
            if number != 8:
                raise UserError(f"{name} has {number} kernel voxels: only 2 x 2 x 2 is supported for even kernels")
            converted[name] = (
                state[name].reshape(2, 2, 2, *state[name].shape[1:]).swapaxes(0, 2).reshape(state[name].shape)
            )
        if bias in state:
            converted[bias] = np.reshape(state[bias], [1, -1])
    return from_torch_names(converted)
