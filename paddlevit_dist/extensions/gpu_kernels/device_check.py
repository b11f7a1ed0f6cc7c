"""Comparison of the fused kernels with Paddle's operations on the device that is to train by them."""

from collections.abc import Sequence

import numpy as np
import paddle
from paddle.nn import functional as F

from ...core.runtime.differences import measure_difference
from ...core.runtime.transfers import to_device
from .functions import add_and_normalize, add_bias_and_gelu

_ITEMS, _TOKENS, _EPSILON = 8, 129, 1e-6


def measure_norm(width: int, dtype: str) -> float:
    """Compute the largest difference of ``add_and_normalize`` of a branch in ``dtype``, and of its gradients.

    Products have the same ``dtype`` where this is called.

    Returns:
        The difference as a share of the largest value; inf if a value is not finite.
    """
    generator = np.random.default_rng(0)
    shape = [_ITEMS, _TOKENS, width]
    x, branch, *gradients = (_draw(generator, shape) for _ in range(4))
    weight, shift, bias = (_draw(generator, [width]) for _ in range(3))
    keep = to_device((generator.random((_ITEMS, 1, 1)) < 0.7).astype("float32") / 0.7)
    inputs = [x, branch.astype(dtype), weight, shift, bias]

    def fused(x, branch, weight, shift, bias):
        return add_and_normalize(x, branch, weight, shift, _EPSILON, bias, keep)

    def plain(x, branch, weight, shift, bias):
        total = x + keep * (branch + bias.astype(dtype))
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


MEASURES = {"norm": measure_norm, "gelu": measure_gelu}


def _draw(generator: np.random.Generator, shape: Sequence[int]) -> paddle.Tensor:
    return to_device(generator.standard_normal(shape).astype("float32"))
