"""Comparison of the fused kernels with Paddle's operations on the device that is to train by them."""

from collections.abc import Sequence

import numpy as np
import paddle
from paddle.autograd import PyLayer
from paddle.nn import functional as F

from ...core.runtime import autocast
from ...core.runtime.differences import measure_difference
from ...core.runtime.transfers import to_device
from .functions import TENSORS, HiddenTensor, add_bias_and_gelu, attend_packed, draw_seeds
from .launches import AddNorm, AddNormBackward, DropRates, SumTypes

_ITEMS, _TOKENS, _EPSILON = 8, 129, 1e-6
_DROPS = DropRates(1, 0.2, 0.3)


class _NormalizedSum(PyLayer):
    """A residual sum and its norm as a differentiable function."""

    @staticmethod
    def forward(ctx, compute, compute_backward, seeds, x, branch, weight, shift, bias):
        total, normal, statistics = compute(x, branch, bias, weight, shift, seeds.tensor)
        ctx.compute_backward, ctx.seeds = compute_backward, seeds.tensor
        ctx.save_for_backward(total.detach(), statistics, weight)
        return total, normal

    @staticmethod
    def backward(ctx, total_gradient, normal_gradient):
        total, statistics, weight = ctx.saved_tensor()
        return tuple(ctx.compute_backward(total, statistics, normal_gradient, total_gradient, weight, ctx.seeds))


def measure_norm(width: int, dtype: str) -> float:
    """Compute the largest difference of a residual sum of a branch in ``dtype``, its norm, and their gradients.

    Products have the same ``dtype`` where this is called. What is dropped is found by the sum of a branch of ones; the
    plain sum multiplies by it.

    Returns:
        The difference as a share of the largest value; inf if a value is not finite, or if another share is dropped.
    """
    generator = np.random.default_rng(0)
    shape = [_ITEMS, _TOKENS, width]
    x, branch, *gradients = (_draw(generator, shape) for _ in range(4))
    weight, shift, bias = (_draw(generator, [width]) for _ in range(3))
    inputs = [x, branch.astype(dtype), weight, shift, bias]
    types = SumTypes("float32", dtype, "float32", "float32", "float32", dtype)
    seeds = draw_seeds()
    compute = AddNorm(TENSORS, shape, types, _EPSILON, _DROPS)
    compute_backward = AddNormBackward(TENSORS, shape, types, _DROPS)
    factor = compute(x * 0.0, paddle.ones(shape, dtype), bias * 0.0, weight, shift, seeds).total
    kept = (factor.numpy() != 0).reshape([_ITEMS, -1]).mean(axis=1)
    if abs(kept[kept > 0].mean() - (1 - _DROPS.rate)) > 0.1:  # of items that are kept
        return np.inf

    def fused(*inputs):
        return _NormalizedSum.apply(compute, compute_backward, HiddenTensor(seeds), *inputs)

    def plain(x, branch, weight, shift, bias):
        total = x + factor * (branch + bias.astype(dtype))
        return total, F.layer_norm(total, [width], weight, shift, _EPSILON).astype(dtype)

    return measure_difference(fused, plain, inputs, [gradients[0], gradients[1].astype(dtype)])


def measure_gelu(width: int, dtype: str) -> float:
    """Compute the largest difference of ``add_bias_and_gelu`` of ``dtype``, as ``measure_norm`` does."""
    generator = np.random.default_rng(0)
    x, gradient = (_draw(generator, [_ITEMS * _TOKENS, width]).astype(dtype) for _ in range(2))

    def fused(x, bias):
        return [add_bias_and_gelu(x, bias)]

    def plain(x, bias):
        return [F.gelu(x + bias.astype(dtype))]

    return measure_difference(fused, plain, [x, _draw(generator, [width])], [gradient])


def measure_attention(channels: int, dtype: str) -> float:
    """Compute the largest difference of ``attend_packed`` of ``dtype`` from attention in float32 of the same values.

    Products of float32 are rounded to TF32 in both.
    """
    generator = np.random.default_rng(0)
    packed = _draw(generator, [2, _TOKENS, 6, channels]).astype(dtype)
    gradient = _draw(generator, [2, _TOKENS, 2 * channels]).astype(dtype)

    def plain(packed):
        with autocast.off():
            q, k, v = packed.astype("float32").transpose([0, 2, 1, 3]).split(3, axis=1)
            weights = F.softmax(paddle.matmul(q * channels**-0.5, k, transpose_y=True), axis=-1)
            out = paddle.matmul(weights, v).transpose([0, 2, 1, 3]).reshape(gradient.shape)
        return [out.astype(dtype)]

    return measure_difference(lambda packed: [attend_packed(packed, channels**-0.5)], plain, [packed], [gradient])


MEASURES = {"norm": measure_norm, "gelu": measure_gelu, "attention": measure_attention}


def _draw(generator: np.random.Generator, shape: Sequence[int]) -> paddle.Tensor:
    return to_device(generator.standard_normal(shape).astype("float32"))
