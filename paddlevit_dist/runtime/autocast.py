"""Automatic mixed precision: which operations Paddle computes in half precision, and what of ours has to follow it.

Paddle has three kinds of operations. What is on its white list computes in half precision whatever it is given, what is
on its black list in float32, and everything else in float32 if one of its inputs is float32. Paddle's own lists leave
out products that networks here consist of, so these are added; of the other kinds nothing is changed at O1, which is
torch's choice too: softmax, norms over channels, exponents, sums and losses in float32, GELU, dropout and batch norm
(whose statistics are float32 in its kernels) as what came in, and sums of both types in float32, so that a residual
stream is. At O2 softmax and norms follow what came in as well; their kernels accumulate in float32.

Biases are the one thing that lists cannot say: Paddle adds that of a product by an operation of its own, and half
precision plus a float32 parameter is float32. So layers here give ``like_products(bias)``, or ask for ``linear``.
"""

from contextlib import AbstractContextManager
from typing import Any

import paddle
from paddle.amp.amp_lists import black_list

PRODUCTS = ("conv3d", "depthwise_conv2d", "conv2d_transpose")  # by the names that Paddle's dispatcher asks for
_FOLLOW_AT_O2 = {"softmax", "layer_norm", "group_norm"}


def options(dtype: str, level: str) -> dict[str, Any]:
    """Return what ``paddle.amp.auto_cast`` takes to compute in ``dtype``, "float16" or "bfloat16", at "O1" or "O2".

    At O2 float32 is kept where it comes in, as at O1. Paddle can also cast it down, but boxes, distances in meters and
    heatmaps come in as float32 because half precision counts no pixels.
    """
    chosen: dict[str, Any] = {"dtype": dtype, "level": level, "custom_white_list": set(PRODUCTS)}
    if level == "O2":  # Paddle's own black list of O2 has neither losses nor sums
        chosen.update(custom_black_list=black_list()[dtype]["O1"] - _FOLLOW_AT_O2, use_promote=True)
    return chosen


def off() -> AbstractContextManager:
    """Inside the block float32 is computed in float32, products too."""
    return paddle.amp.auto_cast(enable=False)


@paddle.jit.not_to_static
def product_dtype() -> Any:
    """Return what products are computed in, ``paddle.float16`` or ``paddle.bfloat16``; None without mixed precision."""
    tracer = paddle.base.framework._dygraph_tracer()
    is_on = tracer is not None and tracer._amp_level != paddle.base.core.AmpLevel.O0
    return getattr(paddle, tracer._amp_dtype) if is_on else None


def like_products(tensor: paddle.Tensor | None) -> paddle.Tensor | None:
    """The tensor, or None, in the dtype of products here. Outside of mixed precision it keeps its own."""
    dtype = None if tensor is None else product_dtype()
    return tensor if dtype is None else as_dtype(tensor, dtype)


def as_dtype(tensor: paddle.Tensor, dtype: Any) -> paddle.Tensor:
    """``tensor.astype(dtype)``, which is a copy in Paddle 2.6 where the dtype is the same; here it is the tensor."""
    return tensor if tensor.dtype == dtype else tensor.astype(dtype)


def linear(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None) -> paddle.Tensor:
    """Compute ``x (..., in) @ weight (in, out) + bias`` in the precision of products here."""
    bias = like_products(bias)
    if paddle.in_dynamic_mode():
        return paddle._C_ops.linear(x, weight, bias)  # Paddle 3.3 looks at its flags first, for twice the time
    return paddle.nn.functional.linear(x, weight, bias)
