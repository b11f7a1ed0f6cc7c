"""Paddle's layers, computed by the fast functions where these apply.

Classes keep the names of Paddle's, by which Paddle names parameters; parameters and initial values are Paddle's own.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import nn

from ...autocast import like_products
from .switch import applies


class Linear(nn.Linear):
    """x (..., in) @ weight (in, out) + bias."""

    def forward(self, x):
        if applies(x, self) and x.shape[-1] == self.weight.shape[0]:
            return _functions().linear(x, self.weight, self.bias)
        return nn.functional.linear(x, self.weight, like_products(self.bias))


class Conv2D(nn.Conv2D):
    """A convolution padded with zeros, whose result has the precision of its products."""

    def forward(self, x):
        return nn.functional.conv2d(
            x, self.weight, like_products(self.bias), self._stride, self._padding, self._dilation, self._groups
        )


class Conv2DTranspose(nn.Conv2DTranspose):
    """A transposed convolution, likewise."""

    def forward(self, x):
        return nn.functional.conv2d_transpose(
            x, self.weight, like_products(self.bias), self._stride, self._padding, self.output_padding
        )


class LayerNorm(nn.LayerNorm):
    """Layer norm; fast over the last axis with weight and bias."""

    def forward(self, x):
        if applies(x, self) and has_usual_parameters(self) and x.shape[-1] == self.weight.shape[0]:
            return _functions().layer_norm(x, self.weight, self.bias, self._epsilon)
        if _is_scaled_apart(self, x):
            return self.bias + self.weight * nn.functional.layer_norm(x, self._normalized_shape, epsilon=self._epsilon)
        return nn.LayerNorm.forward(self, x)


@paddle.jit.not_to_static
def _is_scaled_apart(norm: nn.LayerNorm, x: Any) -> bool:
    """Whether Paddle's layer norm would give ``x`` a gradient as if all weights were 1: on a CPU (2.6 and 3.3) it does
    where the weight itself asks for none."""
    if not paddle.in_dynamic_mode() or norm.weight is None or norm.bias is None:
        return False
    return norm.weight.stop_gradient and not x.stop_gradient and x.place.is_cpu_place()


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


def is_fast_patches(x: paddle.Tensor, convolution: nn.Layer) -> bool:
    """Whether ``patches`` may compute a convolution; it also has to be one of patches that touch, in one group."""
    return type(convolution) is nn.Conv2D and convolution.bias is not None and applies(x, convolution)


def patches(x: paddle.Tensor, convolution: nn.Conv2D) -> paddle.Tensor:
    """convolution(x) as (batch, patches, out); only if ``is_fast_patches``."""
    return _functions().patches(x, convolution.weight, convolution.bias)


@paddle.jit.not_to_static
def is_fast_block(x: paddle.Tensor, block: Any) -> bool:
    """Whether ``branches`` may compute a pre-norm transformer block.

    Args:
        block: with layers ``norm1``, ``attn``, ``norm2`` and ``mlp``; ``attn`` with ``qkv``, ``proj``, the products
            ``query_key`` and ``attention_value``, and ``attention_dropout`` and ``dropout``; ``mlp`` with ``fc1``,
            ``fc2`` and ``dropout``.
    """
    attention, mlp = block.attn, block.mlp
    dropouts = attention.attention_dropout, attention.dropout, mlp.dropout
    if any(layer.training and layer.p for layer in dropouts) or x.shape[-1] != block.norm1.weight.shape[0]:
        return False
    norms, linears = (block.norm1, block.norm2), (attention.qkv, attention.proj, mlp.fc1, mlp.fc2)
    is_usual = all(type(norm) is LayerNorm and has_usual_parameters(norm) for norm in norms)
    is_usual = is_usual and all(type(layer) is Linear for layer in linears)
    if not is_usual or any(layer.bias is None for layer in linears[1:]):
        return False
    others = attention, mlp, attention.query_key, attention.attention_value
    return applies(x, *norms, *linears, *dropouts, *others)


@paddle.jit.not_to_static
def branches() -> Any:
    """The module ``branches``; it is only imported where it can compute."""
    from . import branches as module

    return module


@paddle.jit.not_to_static
def readers() -> Any:
    """The module ``readers``, likewise."""
    from . import readers as module

    return module


@paddle.jit.not_to_static
def _functions() -> Any:
    from . import (
        functions,  # compiled loops: numba takes half a second to import, which static graphs and GPUs do without
    )

    return functions
