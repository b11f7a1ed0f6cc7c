"""Layers of any network whose gradients or precision are not right in Paddle's own, and what a call of one does."""

import paddle
from paddle import nn

from . import autocast


class Linear(nn.Linear):
    """x (..., in) @ weight (in, out) + bias, in the precision of its product."""

    finds_half_weights = True  # see ``core/runtime/half_weights.py``

    def forward(self, x):
        """Map (..., in) to (..., out)."""
        return autocast.linear(x, self.weight, self.bias)


class LayerNorm(nn.LayerNorm):
    """Paddle's layer norm, with the right gradient where weight and bias are frozen."""

    def forward(self, x):
        """Normalize the last axis."""
        weight, bias = self.weight, self.bias
        if weight is not None and bias is not None and paddle.in_dynamic_mode():
            if len(self._normalized_shape) == 1 and _keeps_epsilon_in_float32(x):
                centered = x - x.mean(axis=-1, keepdim=True)
                return centered / ((centered**2).mean(axis=-1, keepdim=True) + self._epsilon).sqrt() * weight + bias
            if weight.stop_gradient and _is_scaled_apart(x):
                return bias + weight * nn.functional.layer_norm(x, self._normalized_shape, epsilon=self._epsilon)
        return nn.functional.layer_norm(x, self._normalized_shape, weight, bias, self._epsilon)


class GELU(nn.GELU):
    """The exact GELU; ``paddle.nn.GELU`` has the approximation."""

    def __init__(self):
        super().__init__()


def is_changed(layer: nn.Layer) -> bool:
    """Return whether a call of a layer does more than its class says: it has hooks or a separate ``forward``."""
    return bool(layer._forward_pre_hooks or layer._forward_post_hooks or "forward" in vars(layer))


def _keeps_epsilon_in_float32(x: paddle.Tensor) -> bool:
    """Return whether Paddle's layer norm of ``x`` adds an epsilon that is rounded to fewer digits than ``x`` has."""
    return bool(x.dtype == paddle.float64)


@paddle.jit.not_to_static
def _is_scaled_apart(x: paddle.Tensor) -> bool:
    """Return whether Paddle's layer norm with a frozen weight would give ``x`` a gradient as if all weights were 1.

    On a CPU (2.6 and 3.3) it does.
    """
    return not x.stop_gradient and x.place.is_cpu_place()
