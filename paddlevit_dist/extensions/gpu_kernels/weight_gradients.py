"""Gradients of weights in float32 from products in half precision, by one operation of CUDA GPUs instead of two.

cuBLASLt adds in float32 and can keep that; Paddle's product rounds it to half precision, and a cast follows. No CPU has
this operation. So the GPU itself is asked before the first step, once for each shape, whether it computes the same.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import paddle

from ...core.runtime.transfers import to_device

_ROWS = 1024  # of the inputs with which a device is asked
_BOUND = 2.0**-12  # largest difference, as a share of the largest value: sums of float32 in another order

_is_right: dict[tuple[int, int, str], bool] = {}  # (in, out, dtype of products)


def compute(x: paddle.Tensor, gradient: paddle.Tensor) -> paddle.Tensor:
    """Compute the gradient of a weight (in, out), float32, from x (rows, in) and that of the product (rows, out)."""
    weight, _ = paddle._C_ops.fused_linear_param_grad_add(x, gradient, None, None, True, False)
    return weight


def is_right(num_in: int, num_out: int, dtype: str) -> bool:
    """Return whether the device was asked for this shape of a weight and dtype of products, and agreed."""
    return _is_right.get((num_in, num_out, dtype), False)


def ask_device(shapes: Iterable[tuple[int, int]], dtype: str) -> list[str]:
    """Try ``compute`` on this GPU once for each shape of a weight; return a log line if it is not used for some."""
    wrong: dict[tuple[int, int], float] = {}
    for shape in sorted(set(shapes)):
        key = (*shape, dtype)
        if key not in _is_right:
            difference = _measure_difference(*shape, getattr(paddle, dtype))
            _is_right[key] = difference <= _BOUND
            if not _is_right[key]:
                wrong[shape] = difference
    if not wrong:
        return []
    names = ", ".join(f"{num_in} x {num_out}" for num_in, num_out in wrong)
    return [
        f"gradients of weights of {names}: cast to float32 after the product, since with both in one operation this "
        f"GPU is off by {max(wrong.values()):.1e} of the largest value"
    ]


def _measure_difference(num_in: int, num_out: int, dtype: Any) -> float:
    """Compute the largest difference from a product in float32, as a share of its largest value; inf if it fails."""
    generator = np.random.default_rng(0)
    x, gradient = (
        to_device(generator.standard_normal([_ROWS, width]).astype("float32")).astype(dtype)
        for width in (num_in, num_out)
    )
    try:
        found = compute(x, gradient)
        if found.dtype != paddle.float32:
            return np.inf
        found = found.numpy()
    except Exception:  # Paddle raises several types for a device or shape without this kernel
        return np.inf
    x, gradient = x.astype("float32").numpy().astype("f8"), gradient.astype("float32").numpy().astype("f8")
    expected = x.T @ gradient
    difference = float(np.abs(found - expected).max() / np.abs(expected).max())
    return difference if np.isfinite(difference) else np.inf
