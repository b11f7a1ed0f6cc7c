"""Paddle's layers, computed by the fast functions where these apply.

Classes keep the names of Paddle's, by which Paddle names parameters; parameters and initial values are Paddle's own.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import nn

from .switch import applies


class Linear(nn.Linear):
    """x (..., in) @ weight (in, out) + bias."""

    def forward(self, x):
        if applies(x, self) and x.shape[-1] == self.weight.shape[0]:
            return _functions().linear(x, self.weight, self.bias)
        return nn.Linear.forward(self, x)  # not super(): Paddle 2.6 cannot export it


class LayerNorm(nn.LayerNorm):
    """Layer norm; fast over the last axis with weight and bias."""

    def forward(self, x):
        if applies(x, self) and has_usual_parameters(self) and x.shape[-1] == self.weight.shape[0]:
            return _functions().layer_norm(x, self.weight, self.bias, self._epsilon)
        return nn.LayerNorm.forward(self, x)


def has_usual_parameters(norm: nn.LayerNorm) -> bool:
    """Whether a layer norm has weight and bias, over one axis."""
    return norm.weight is not None and norm.bias is not None and len(norm.weight.shape) == 1


def gelu(x: paddle.Tensor) -> paddle.Tensor:
    """The exact GELU."""
    return _functions().gelu(x) if applies(x) else nn.functional.gelu(x)


def is_fast_mlp(x: paddle.Tensor, first: nn.Layer, second: nn.Layer) -> bool:
    """Whether ``mlp`` may compute two Linear layers with a GELU between them."""
    return (
        type(first) is Linear
        and type(second) is Linear
        and first.bias is not None
        and second.bias is not None
        and applies(x, first, second)
    )


def mlp(x: paddle.Tensor, first: Linear, second: Linear) -> paddle.Tensor:
    """second(GELU(first(x))); only if ``is_fast_mlp``."""
    return _functions().mlp(x, first.weight, first.bias, second.weight, second.bias)


@paddle.jit.not_to_static
def _functions() -> Any:
    from . import functions  # numba takes half a second to import, which static graphs and GPUs do without

    return functions
