"""Norm and clipping of all gradients in one compiled pass.

The loops get the gradients' addresses anew in each step, and sum the norm in another order than Paddle. If a gradient
is not a plain float32 tensor in host memory, ``engine/multi_tensor`` computes.
"""

from collections.abc import Sequence

import numpy as np
import paddle

from ..engine import multi_tensor

WORTHWHILE = 1_000_000  # values: with fewer, loading numba costs more than several hundred updates save


def _is_plain(tensor: paddle.Tensor) -> bool:
    """Return whether a loop can access the tensor's memory: contiguous float32 values on the host."""
    return (
        tensor.dtype == paddle.float32
        and tensor.is_dense()
        and tensor.place.is_cpu_place()
        and tensor._is_initialized()
        and tensor.is_contiguous()
    )


class FastGradients(multi_tensor.GradientList):
    """Gradients that loops read and scale if they are plain."""

    def sum_of_squares(self, gradients: Sequence[paddle.Tensor]) -> np.float32:
        """Sum the squares of all gradients, in float64."""
        if not all(map(_is_plain, gradients)):
            return super().sum_of_squares(gradients)
        from .gradient_kernels import sum_of_squares

        return np.float32(sum_of_squares(*_table(gradients)))

    def multiply(self, gradients: Sequence[paddle.Tensor], factor: np.float32) -> None:
        """Multiply all gradients by ``factor``."""
        if not all(map(_is_plain, gradients)):
            return super().multiply(gradients, factor)
        from .gradient_kernels import scale

        return scale(*_table(gradients), factor)


def _table(tensors: Sequence[paddle.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """Return addresses, int64 (tensors, 1), and numbers of values, int64 (tensors,)."""
    addresses = np.array([[tensor.data_ptr()] for tensor in tensors], np.int64)
    return addresses, np.array([tensor.size for tensor in tensors], np.int64)


def gradients(parameters: Sequence[paddle.Tensor]) -> FastGradients | None:
    """Return all gradients of the parameters; None if these are not on the host, or too few for loops."""
    is_worthwhile = sum(p.size for p in parameters) >= WORTHWHILE and all(p.place.is_cpu_place() for p in parameters)
    return FastGradients(parameters) if is_worthwhile else None
