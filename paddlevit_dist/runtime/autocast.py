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

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import paddle
from paddle.amp.amp_lists import black_list
from paddle.incubate.nn.functional import fused_linear

PRODUCTS = ("conv3d", "depthwise_conv2d", "conv2d_transpose")  # by the names that Paddle's dispatcher asks for
_FOLLOW_AT_O2 = {"softmax", "layer_norm", "group_norm"}

_required: list[bool] = []  # one entry for each open ``epilogues``
_chosen: dict[tuple, bool] = {}  # by rows to a power of two, weight's shape and precision: whether the bias is fused


def options(dtype: str, level: str) -> dict[str, Any]:
    """Return what ``paddle.amp.auto_cast`` takes to compute in ``dtype``, "float16" or "bfloat16", at "O1" or "O2".

    At O2 float32 is kept where it comes in, as at O1. Paddle can also cast it down, but boxes, distances in metres and
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
    """``x (..., in) @ weight (in, out) + bias`` in the precision of products here.

    In half precision cuBLASLt can add the bias before it writes the product, and add up the bias's gradient while it
    multiplies for the weight's. How fast that is depends on the shape, so a GPU is tried once for each. In float32 that
    operation does without TF32, and its GELU is the approximation by tanh: neither is used.
    """
    dtype = None if bias is None else product_dtype()
    if dtype is not None:
        if _is_fused(x, weight, bias, dtype):
            return fused_linear(x, weight, bias)
        bias = as_dtype(bias, dtype)
    if paddle.in_dynamic_mode():
        return paddle._C_ops.linear(x, weight, bias)  # Paddle 3.3 looks at its flags first, for twice the time
    return paddle.nn.functional.linear(x, weight, bias)


@contextlib.contextmanager
def epilogues(used: bool) -> Iterator[None]:
    """Inside the block the biases of ``linear`` are always fused in mixed precision, or never, untried."""
    _required.append(used)
    try:
        yield
    finally:
        _required.pop()


@paddle.jit.not_to_static
def _is_fused(x: Any, weight: Any, bias: Any, dtype: Any) -> bool:
    # Paddle 2.6 has no gradient for the bias without the weight's, nor for what comes in.
    if not paddle.in_dynamic_mode() or weight.stop_gradient or x.ndim < 2:
        return False
    if _required:
        return _required[-1]
    rows = math.prod(x.shape[:-1])
    if not x.place.is_gpu_place() or not rows:
        return False
    shape = rows.bit_length(), *weight.shape, dtype
    if shape not in _chosen:
        _chosen[shape] = _is_faster(x, weight, bias)
    return _chosen[shape]


def _is_faster(*inputs: paddle.Tensor) -> bool:
    """Whether ``fused_linear`` takes less time than the plain way and gives the same, to half precision's rounding.
    Never where results are to repeat (``launch/gpu.py``): which one wins depends on the moment."""
    flags = paddle.base.core.globals()
    if "FLAGS_cudnn_deterministic" in flags and flags["FLAGS_cudnn_deterministic"]:
        return False
    ways = linear, fused_linear
    try:
        with epilogues(False):
            pairs = zip(*([one.astype("float32") for one in _with_gradients(way, inputs)] for way in ways))
            if not all((a - b).abs().max().item() <= a.abs().max().item() / 64 for a, b in pairs):
                return False
            plain, fused = (_seconds(functools.partial(_with_gradients, way, inputs)) for way in ways)
    except Exception:  # whatever Paddle raises for a device or a shape that it has no product for
        return False
    return fused < plain


def _with_gradients(way: Callable, inputs: Any) -> list[paddle.Tensor]:
    """The result for the inputs' values, and their gradients."""
    inputs = [one.detach() for one in inputs]
    for one in inputs:
        one.stop_gradient = False
    with paddle.enable_grad():
        result = way(*inputs)
        gradient = result.detach() * (inputs[0].shape[-1] / inputs[0].size)  # of a size that float16 can add up
        return [result, *paddle.grad(result, inputs, gradient)]


def _seconds(compute: Callable[[], list[paddle.Tensor]], repetitions: int = 10) -> float:
    compute()[-1].numpy()  # waits
    start = time.perf_counter()
    results = [compute()[-1] for _ in range(repetitions)]
    results[-1].numpy()
    return time.perf_counter() - start
