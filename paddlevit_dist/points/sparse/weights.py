"""Published weights of other libraries as the layers here have them, for the ``key_maps`` of a network."""

import math
from collections.abc import Mapping

import numpy as np

from ...checkpoint.load import from_torch_names
from ...runtime.errors import UserError


def from_spconv(state: Mapping[str, np.ndarray], dimension: int = 3) -> dict[str, np.ndarray]:
    """A state of spconv 1 or 2.

    spconv 2 has the output channels of a convolution's ``weight`` in front, (C_out, k, k, k, C_in), and spconv 1 has
    them behind. Which one it is shows in all convolutions together: sides of kernels are smaller than channels.
    """
    weights = [name for name in state if name.endswith("weight") and np.ndim(state[name]) == dimension + 2]
    shapes = [state[name].shape for name in weights]
    is_second = sum(math.prod(shape[1:-1]) - math.prod(shape[:-2]) for shape in shapes) < 0
    moved = {name: np.moveaxis(state[name], 0, -1) for name in weights} if is_second else {}
    return from_torch_names({**state, **moved})


def from_torchsparse(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A state of torchsparse for ``Convolution``, ``TransposedConvolution`` and ``BatchNorm``.

    Its kernels (K, C_in, C_out) have the order of MinkowskiEngine's, first axis fastest, where K is odd; where it is
    even the last axis is (``get_kernel_offsets`` in torchsparse/nn/utils/kernel.py). Biases are (C_out,) there.

    Raises:
        UserError: kernels with even sides other than 2, whose voxels lie elsewhere.
    """
    found = dict(state)
    for name in state:
        if not name.endswith("kernel"):
            continue
        number, bias = np.shape(state[name])[0], name.removesuffix("kernel") + "bias"
        if np.ndim(state[name]) == 3 and number % 2 == 0:
            if number != 8:
                raise UserError(f"{name} has {number} kernel voxels: of even kernels only 2 x 2 x 2 can be read")
            found[name] = state[name].reshape(2, 2, 2, *state[name].shape[1:]).swapaxes(0, 2).reshape(state[name].shape)
        if bias in state:
            found[bias] = np.reshape(state[bias], [1, -1])
    return from_torch_names(found)
