"""Layers of any network whose gradients or precision are not right in Paddle's own."""

import paddle
from paddle import nn

from . import autocast


class Linear(nn.Linear):
    """x (..., in) @ weight (in, out) + bias, in the precision of its product."""

    is_capturable = True
    finds_half_weights = True  # see ``core/runtime/half_weights.py``

    def forward(self, x):
        """Map (..., in) to (..., out)."""
        own = self._parameters  # attributes of a layer are looked up in three dictionaries, and raise an error first
        weight = own.get("weight")
        if weight is None:  # Paddle's weight_norm computes it
            weight = self.weight
        return autocast.linear(x, weight, own.get("bias"))


class LayerNorm(nn.LayerNorm):
    """Paddle's layer norm, with the right gradient where weight and bias are frozen."""

    is_capturable = True

    def forward(self, x):
        """Normalize the last axis."""
        if not paddle.in_dynamic_mode():
            return nn.LayerNorm.forward(self, x)
        own = self._parameters  # see ``Linear``
        weight, bias = own.get("weight"), own.get("bias")
        if weight is None or bias is None:  # there is none, or Paddle's weight_norm computes it
            weight, bias = self.weight, self.bias
        is_usual = weight is not None and bias is not None and len(self._normalized_shape) == 1
        if is_usual and _keeps_epsilon_in_float32(x):
            centered = x - x.mean(axis=-1, keepdim=True)
            return centered / ((centered**2).mean(axis=-1, keepdim=True) + self._epsilon).sqrt() * weight + bias
        if weight is not None and weight.stop_gradient and _is_scaled_apart(x, bias):
            return bias + weight * nn.functional.layer_norm(x, self._normalized_shape, epsilon=self._epsilon)
        first_axis = len(x.shape) - len(self._normalized_shape)
        return paddle._C_ops.layer_norm(x, weight, bias, self._epsilon, first_axis)


class GELU(nn.GELU):
    """The exact GELU; ``paddle.nn.GELU`` has the approximation."""

    is_capturable = True

    def __init__(self):
        super().__init__()

    def forward(self, x):
        """Compute the GELU of each value."""
        return paddle._C_ops.gelu(x, False) if paddle.in_dynamic_mode() else nn.GELU.forward(self, x)


def _keeps_epsilon_in_float32(x: paddle.Tensor) -> bool:
    """Return whether Paddle's layer norm of ``x`` adds an epsilon that is rounded to fewer digits than ``x`` has."""
    return bool(x.dtype == paddle.float64)


@paddle.jit.not_to_static
def _is_scaled_apart(x: paddle.Tensor, bias: paddle.Tensor | None) -> bool:
    """Return whether Paddle's layer norm with a frozen weight would give ``x`` a gradient as if all weights were 1.

    On a CPU (2.6 and 3.3) it does.
    """
    return not x.stop_gradient and x.place.is_cpu_place() and bias is not None
