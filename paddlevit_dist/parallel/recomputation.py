"""Gradient recomputation: a layer's inner values are dropped after its forward pass and made again for its backward."""

from __future__ import annotations

from typing import Any, Callable, Iterable

import paddle
from paddle.distributed.fleet.utils import recompute


def recompute_layers(layers: Iterable[paddle.nn.Layer]) -> int:
    """Let each layer run its forward pass a second time during backward, in place of keeping what it computed.

    Only each layer's input stays in memory. Random numbers (dropout) are the same in both passes and so are the
    gradients. It happens in training mode alone; names, state and evaluation stay as they are.

    Args:
        layers: called with tensors; none inside another. Without batch normalisation, whose running statistics
            would count each batch twice.

    Returns:
        How many layers there were.

    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, arXiv 1604.06174.
    """
    recomputed = list(layers)
    for layer in recomputed:
        layer.forward = _Recomputed(layer, layer.forward)
    return len(recomputed)


class _Recomputed:
    """The forward pass of a layer that is recomputed."""

    def __init__(self, layer: paddle.nn.Layer, forward: Callable) -> None:
        self._layer = layer
        self._forward = forward

    def __call__(self, x: paddle.Tensor, *others: Any) -> paddle.Tensor:
        is_frozen = all(p.stop_gradient for p in self._layer.parameters())
        if not (self._layer.training and paddle.is_grad_enabled()) or (is_frozen and x.stop_gradient):
            return self._forward(x, *others)
        if x.stop_gradient:  # behind frozen layers: without this the layer's parameters would get no gradient, silently
            x = x.detach()
            x.stop_gradient = False
        # Not reentrant: a backward pass inside another one runs data parallelism's hooks at the wrong time and ends in
        # an error. Random numbers are ours to repeat, since Paddle 2.6 does it on GPUs alone.
        return recompute(_Repeatable(self._forward), x, *others, use_reentrant=False, preserve_rng_state=False)


class _Repeatable:
    """A function that draws the same random numbers each time it is called."""

    def __init__(self, function: Callable) -> None:
        self._function = function
        self._state = None

    def __call__(self, *arguments: Any) -> Any:
        if self._state is None:
            self._state = paddle.get_rng_state()
            return self._function(*arguments)
        state = paddle.get_rng_state()
        paddle.set_rng_state(self._state)
        try:
            return self._function(*arguments)
        finally:
            paddle.set_rng_state(state)
