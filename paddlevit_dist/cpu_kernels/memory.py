"""Where a tensor's numbers lie, and Paddle's own matrix product as a function of addresses."""

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

PLAIN, TURNED = 111, 112  # a factor as it is or transposed, cblas's numbers
_ROW_MAJOR = 101


def empty(*shape: int) -> paddle.Tensor:
    """A float32 tensor in the host's memory, not filled."""
    return paddle._C_ops.empty(list(shape), paddle.float32, _HOST)


_HOST = paddle.CPUPlace()


def in_order(tensor: paddle.Tensor) -> paddle.Tensor:
    """The tensor itself, or a copy whose numbers lie row by row without gaps."""
    return tensor if tensor.is_contiguous() else tensor.contiguous()


class MklSgemm:
    """``cblas_sgemm`` of the MKL that Paddle brings.

    Attributes:
        pointer: its address, for compiled loops.
    """

    def __init__(self, function: Any) -> None:
        whole, number, place = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
        function.restype = None
        function.argtypes = [*[whole] * 6, number, place, whole, place, whole, number, place, whole]
        self._function = function
        self.pointer = ctypes.cast(function, ctypes.c_void_p).value or 0

    def __call__(
        self,
        left: int,
        right: int,
        out: int,
        sizes: Sequence[int],
        turned: Sequence[int] = (PLAIN, PLAIN),
        beta: float = 0.0,
        widths: Sequence[int] = (0, 0, 0),
    ) -> None:
        """out = op(left) op(right) + beta out, of addresses of float32.

        Args:
            sizes: rows m and columns n of ``out``, and the length k of its sums.
            turned: TURNED for a factor stored as (k, m) or (n, k), else PLAIN.
            widths: of the arrays that ``left``, ``right`` and ``out`` are leading columns of; 0 where there are no more
                columns.
        """
        m, n, k = sizes
        left_width = widths[0] or (k if turned[0] == PLAIN else m)
        right_width = widths[1] or (n if turned[1] == PLAIN else k)
        out_width = widths[2] or n
        self._function(_ROW_MAJOR, *turned, m, n, k, 1.0, left, left_width, right, right_width, beta, out, out_width)


@functools.cache
def product() -> MklSgemm | None:
    """The matrix product of Paddle's MKL; None where Paddle has another library, or if it is wrong."""
    library = Path(paddle.__file__).parent / "libs" / "libmklml_intel.so"
    if not library.exists():
        return None
    try:
        function = ctypes.CDLL(str(library)).cblas_sgemm
    except (OSError, AttributeError):
        return None
    found = MklSgemm(function)
    return found if _is_right(found) else None


def _is_right(function: Callable[..., None]) -> bool:
    """Whether a small product and a transposed one added to it are exact: their numbers are whole."""
    left, right = (np.arange(count, dtype=np.float32) for count in (35, 21))
    a, b, out = left.reshape(5, 7), right.reshape(7, 3), np.ones((5, 3), dtype=np.float32)
    other = np.ascontiguousarray(b.T)
    function(a.ctypes.data, b.ctypes.data, out.ctypes.data, (5, 3, 7))
    function(a.ctypes.data, other.ctypes.data, out.ctypes.data, (5, 3, 7), (PLAIN, TURNED), 1.0)
    return bool(np.array_equal(out, 2 * (a @ b)))
