"""Addresses of tensors, and Paddle's matrix product as a function of addresses."""

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import paddle

PLAIN, TRANSPOSED = 111, 112  # constants of cblas for a plain and a transposed factor
_ROW_MAJOR = 101


def empty(*shape: int) -> paddle.Tensor:
    """Create an uninitialized float32 tensor in host memory."""
    return paddle._C_ops.empty(list(shape), paddle.float32, _HOST)


_HOST = paddle.CPUPlace()


def as_contiguous(tensor: paddle.Tensor) -> paddle.Tensor:
    """Return the tensor itself, or a contiguous row-major copy."""
    return tensor if tensor.is_contiguous() else tensor.contiguous()


class MklSgemm:
    """``cblas_sgemm`` of Paddle's MKL library, with its address ``pointer`` for compiled loops."""

    def __init__(self, function: "ctypes._NamedFuncPointer") -> None:
        int_type, float_type, pointer_type = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
        function.restype = None
        function.argtypes = [
            *[int_type] * 6,
            float_type,
            pointer_type,
            int_type,
            pointer_type,
            int_type,
            float_type,
            pointer_type,
            int_type,
        ]
        self._function = function
        self.pointer = ctypes.cast(function, ctypes.c_void_p).value or 0

    def __call__(
        self,
        left: int,
        right: int,
        out: int,
        sizes: Sequence[int],
        transposed: Sequence[int] = (PLAIN, PLAIN),
        beta: float = 0.0,
        widths: Sequence[int] = (0, 0, 0),
    ) -> None:
        """Compute out = op(left) op(right) + beta out from addresses of float32.

        Args:
            sizes: rows m and columns n of ``out``, and the length k of its sums.
            transposed: TRANSPOSED for a factor stored as (k, m) or (n, k), else PLAIN.
            widths: row lengths of the arrays that ``left``, ``right`` and ``out`` are leading columns of; 0 if they
                have all columns.
        """
        m, n, k = sizes
        left_width = widths[0] or (k if transposed[0] == PLAIN else m)
        right_width = widths[1] or (n if transposed[1] == PLAIN else k)
        out_width = widths[2] or n
        self._function(
            _ROW_MAJOR, *transposed, m, n, k, 1.0, left, left_width, right, right_width, beta, out, out_width
        )


@functools.cache
def product() -> MklSgemm | None:
    """Return the matrix product of Paddle's MKL; None if Paddle has another library or the product is wrong."""
    library = Path(paddle.__file__).parent / "libs" / "libmklml_intel.so"
    if not library.exists():
        return None
    try:
        function = ctypes.CDLL(str(library)).cblas_sgemm
    except (OSError, AttributeError):
        return None
    sgemm = MklSgemm(function)
    return sgemm if is_exact(sgemm) else None


def require_product() -> MklSgemm:
    """Return the matrix product of Paddle's MKL, which ``product`` has found. Raises RuntimeError if there is none."""
    sgemm = product()
    if sgemm is None:
        raise RuntimeError("Paddle has no exact matrix product of MKL")
    return sgemm


def is_exact(function: Callable[..., None]) -> bool:
    """Return whether a small product plus a transposed one is exact; its numbers are integers."""
    left, right = (np.arange(count, dtype=np.float32) for count in (35, 21))
    a, b, out = left.reshape(5, 7), right.reshape(7, 3), np.ones((5, 3), dtype=np.float32)
    other = np.ascontiguousarray(b.T)
    function(a.ctypes.data, b.ctypes.data, out.ctypes.data, (5, 3, 7))
    function(a.ctypes.data, other.ctypes.data, out.ctypes.data, (5, 3, 7), (PLAIN, TRANSPOSED), 1.0)
    return bool(np.array_equal(out, 2 * (a @ b)))
