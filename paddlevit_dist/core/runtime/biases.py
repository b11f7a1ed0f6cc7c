"""Biases of products on CUDA GPUs, where Paddle's kernel for the gradient of a bias takes longer than a product.

There the gradient of a bias is a row of ones times the gradient of the result. In float32 the GPU rounds the latter to
TF32 first, as in every product, unless TRAIN.TF32 is false: each of its values is off by at most 2^-11 of itself. In
half precision cuBLASLt can also add the bias before it writes the product (an epilogue): one operation, and the result
is rounded once. No CPU has that operation. So the device itself is asked before the first step, once for each shape of
a layer, whether it computes the same.

A bias or weight that is frozen, and any layer of a static program, is computed as on a CPU.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.incubate.nn.functional import fused_linear

from . import device_graph, differences
from .transfers import to_device

Linear = Callable[[paddle.Tensor, paddle.Tensor, paddle.Tensor], paddle.Tensor]  # of x, weight and bias

# The largest difference from the reference, as a share of the largest value: four roundings.
_BOUNDS = {paddle.float16: 2.0**-9, paddle.bfloat16: 2.0**-6}
_ROWS = 1024  # of the inputs with which a device is asked

# (in, out, Paddle's dtype) -> whether this GPU may add biases
_may_add: dict[tuple[int, int, Any], bool] = {}


class _BiasAddition(paddle.autograd.PyLayer):
    """Add a bias whose gradient is a product with ones."""

    @staticmethod
    def forward(ctx: Any, product: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
        ctx.bias_shape, ctx.is_input_fixed = bias.shape, product.stop_gradient
        return product + bias

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, paddle.Tensor]:
        rows = gradient.reshape([-1, gradient.shape[-1]])
        return None if ctx.is_input_fixed else gradient, sum_rows(rows, ctx.bias_shape)


def sum_rows(rows: paddle.Tensor, shape: Sequence[int]) -> paddle.Tensor:
    """Sum (rows, out) over rows by a product with ones, in a shape of the same size."""
    ones = device_graph.keep(_ones(rows.shape[0], rows.dtype))
    return paddle.matmul(ones, rows).reshape(shape)


@functools.lru_cache(maxsize=32)
def _ones(number: int, dtype: paddle.dtype) -> paddle.Tensor:
    """Return a row of ones, (1, number), on this process's device; callers must not change it."""
    return paddle.ones([1, number], dtype=dtype)


def add(product: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
    """Add a bias, (out,) or (1, out), to a product (..., out) of the same dtype."""
    return add_with_product(product, bias) if sums_by_product(product, bias) else product + bias


def add_with_product(product: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
    """Add a bias whose gradient is a product with ones, where ``sums_by_product`` says so."""
    return _BiasAddition.apply(product, bias)


def sums_by_product(x: paddle.Tensor, bias: paddle.Tensor) -> bool:
    """Return whether the gradient of this bias is to be a product with ones; ``x`` says where it is computed."""
    if not paddle.in_dynamic_mode() or bias.stop_gradient or not paddle.is_grad_enabled():
        return False
    return _is_on_gpu(x) and 0 not in x.shape


def _is_on_gpu(tensor: paddle.Tensor) -> bool:  # a test on a CPU replaces it
    return tensor.place.is_gpu_place()


def has_epilogue(weight: paddle.Tensor, bias: paddle.Tensor, dtype: paddle.dtype) -> bool:
    """Return whether a product with this weight (in, out) in Paddle's ``dtype`` is to add its bias itself.

    Evaluations use it, too, so that they compute what the training passes compute.
    """
    if weight.stop_gradient or bias.stop_gradient:  # Paddle 2.6 then has no gradient for the other
        return False
    return _may_add.get((*weight.shape, dtype), False)


def ask_device(model: paddle.nn.Layer, dtype: paddle.dtype, reference: Linear) -> list[str]:
    """Try on this GPU, once for each shape of a trained ``paddle.nn.Linear``, whether products can add their biases.

    Args:
        model: the model with these layers.
        dtype: ``paddle.float16`` or ``paddle.bfloat16``.
        reference: computes the same without an epilogue.

    Returns:
        Log lines: the shapes for which this GPU computes something else.
    """
    layers = [layer for layer in model.sublayers() if isinstance(layer, paddle.nn.Linear) and layer.bias is not None]
    trained = [layer for layer in layers if not (layer.weight.stop_gradient or layer.bias.stop_gradient)]
    lines = []
    for shape in sorted({tuple(layer.weight.shape) for layer in trained}):
        key = (*shape, dtype)
        if key in _may_add:
            continue
        difference = measure_difference(fused_linear, reference, shape[0], shape[1], dtype)
        _may_add[key] = difference <= _BOUNDS[dtype]
        if not _may_add[key]:
            lines.append(
                f"biases of {shape[0]} x {shape[1]}: added after the product, since with both in one operation this "
                f"GPU is off by {difference:.1e} of the largest value"
            )
    return lines


def measure_difference(linear: Linear, reference: Linear, num_in: int, num_out: int, dtype: paddle.dtype) -> float:
    """Compute the largest difference between two linear layers in result and gradients, for inputs drawn by NumPy.

    Returns:
        The largest difference as a share of the largest value of the reference; inf if ``linear`` raises.
    """
    generator = np.random.default_rng(0)
    shapes = ([_ROWS, num_in], [num_in, num_out], [num_out], [_ROWS, num_out])
    arrays = [generator.standard_normal(shape).astype("float32") for shape in shapes]
    *inputs, gradient = [to_device(array).astype(dtype) for array in arrays]

    def listing(layer: Linear) -> Callable[..., list[paddle.Tensor]]:
        return lambda x, weight, bias: [layer(x, weight, bias)]

    try:
        return differences.measure_difference(listing(linear), listing(reference), inputs, [gradient])
    except Exception:  # Paddle raises several types for a device or shape without this kernel
        return np.inf
