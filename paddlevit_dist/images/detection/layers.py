"""First values of detectors' layers, and the precision of what leaves them."""

from __future__ import annotations

import paddle
from paddle import nn

from ..kernels.layers import Linear


def normal(deviation: float) -> paddle.ParamAttr:
    """Normally distributed around 0."""
    return paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, deviation))


def uniform(bound: float) -> paddle.ParamAttr:
    """Evenly distributed between -bound and bound."""
    return paddle.ParamAttr(initializer=nn.initializer.Uniform(-bound, bound))


def zeros() -> paddle.ParamAttr:
    return paddle.ParamAttr(initializer=nn.initializer.Constant(0.0))


def dense(inputs: int, outputs: int) -> Linear:
    """A linear layer whose weights and bias are uniform up to 1 / sqrt(inputs), as PyTorch begins."""
    bound = inputs**-0.5
    return Linear(inputs, outputs, weight_attr=uniform(bound), bias_attr=uniform(bound))


def single_or_double(x: paddle.Tensor) -> paddle.Tensor:
    """As float32, unless it is float64: boxes and losses in 16 bits would be off by pixels."""
    return x if x.dtype == paddle.float64 else x.astype("float32")
