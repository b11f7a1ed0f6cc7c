"""Automatic mixed precision: Paddle's lists of operations, with additions, and helpers for biases.

Paddle has three kinds of operations. Operations on its white list always compute in half precision, operations on its
black list in float32, and all others in float32 if one of their inputs is float32. Paddle's white list lacks products
that networks here use, so these are added. At O1 nothing else changes, as in PyTorch: softmax, norms over channels,
exponents, sums and losses are float32; GELU, dropout and batch norm (with float32 statistics in its kernels) keep their
input's type; sums of both types are float32, and so is a residual stream. At O2 softmax and norms also keep their
input's type; their kernels accumulate in float32.

Lists cannot handle biases: Paddle adds the bias of a product by a separate operation, and half precision plus a float32
parameter is float32. So layers here use ``like_products(bias)``, ``add_bias`` or ``linear``.
"""

from contextlib import AbstractContextManager
from typing import Any

import paddle
from paddle.amp.amp_lists import black_list

from . import biases, half_weights

PRODUCTS = ("conv3d", "depthwise_conv2d", "conv2d_transpose")  # names in Paddle's dispatcher
_AUTOCAST_OFF = paddle.base.core.AmpLevel.O0
_MOST_IN_TURN = 2048
_FOLLOW_AT_O2 = {"softmax", "layer_norm", "group_norm"}


def options(dtype: str, level: str) -> dict[str, Any]:
    """Return the arguments of ``paddle.amp.auto_cast`` for ``dtype``, "float16" or "bfloat16", at "O1" or "O2".

    At O2 float32 inputs stay float32, as at O1. Paddle can also cast them, but boxes, distances in meters and heatmaps
    are float32 because half precision cannot count pixels.
    """
    chosen: dict[str, Any] = {"dtype": dtype, "level": level, "custom_white_list": set(PRODUCTS)}
    if level == "O2":  # Paddle's own black list of O2 has neither losses nor sums
        chosen.update(custom_black_list=black_list()[dtype]["O1"] - _FOLLOW_AT_O2, use_promote=True)
    return chosen


def off() -> AbstractContextManager:
    """Compute float32 in float32 inside the block, including products."""
    return paddle.amp.auto_cast(enable=False)


@paddle.jit.not_to_static
def product_dtype() -> Any:
    """Return the dtype of products, ``paddle.float16`` or ``paddle.bfloat16``; None without mixed precision."""
    tracer = paddle.base.framework._dygraph_tracer()
    name = None if tracer is None else tracer._amp_dtype
    if name is None or name == "float32" or tracer._amp_level == _AUTOCAST_OFF:
        return None
    return getattr(paddle, name)


def like_products(tensor: paddle.Tensor | None) -> paddle.Tensor | None:
    """Return the tensor in the dtype of products here; unchanged for None or outside of mixed precision."""
    dtype = None if tensor is None else product_dtype()
    return tensor if dtype is None else as_dtype(tensor, dtype)


def as_dtype(tensor: paddle.Tensor, dtype: paddle.dtype) -> paddle.Tensor:
    """Return ``tensor.astype(dtype)``, without the copy that Paddle 2.6 makes if the dtype is the same."""
    return tensor if tensor.dtype == dtype else tensor.astype(dtype)


def widen_for_sum(x: paddle.Tensor, number: int) -> paddle.Tensor:
    """Return ``x`` in float64 if a CPU would add ``number`` of its float32 values, more than 2,048; else unchanged.

    Paddle's CPU kernels of sums along axes, means, and norms over positions add one value after the other. If most are
    equal, all roundings have one direction: a sum of a million is off by up to 0.8 %.
    """
    is_added_in_turn = paddle.in_dynamic_mode() and x.place.is_cpu_place()
    return x.astype("float64") if is_added_in_turn and number > _MOST_IN_TURN and x.dtype == paddle.float32 else x


def linear(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None) -> paddle.Tensor:
    """Compute ``x (..., in) @ weight (in, out) + bias`` in the precision of products here."""
    dtype = product_dtype() if paddle.in_dynamic_mode() else None
    if dtype is not None:
        has_epilogue = bias is not None and biases.has_epilogue(weight, bias, dtype)
        weight, bias = half_weights.find(weight), None if bias is None else half_weights.find(bias)
        if has_epilogue:
            return biases.fused_linear(x, weight, bias)
    bias = like_products(bias)
    if bias is not None and biases.sums_by_product(x, bias):
        return biases.add_with_product(paddle.matmul(x, weight), bias)
    return paddle.nn.functional.linear(x, weight, bias)


def add_bias(product: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
    """Add a bias, (out,) or (1, out), to a product (..., out) in the precision of products here."""
    return biases.add(product, like_products(bias))


def ask_device_for_biases(model: paddle.nn.Layer, dtype: str) -> list[str]:
    """Ask the GPU whether products in ``dtype`` can add their biases; return log lines. See ``biases.ask_device``."""
    with off():
        return biases.ask_device(model, getattr(paddle, dtype), linear)
