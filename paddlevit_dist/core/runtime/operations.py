"""Paddle's operations without what its Python functions do first: check arguments, rename them, look for a graph.

An update launches hundreds of operations, and in half precision a GPU computes some of them faster than the host can
launch them: of a ``reshape`` by Paddle's function, two thirds of the host's time are Python. Results are the same bit
for bit. A static graph is built by Paddle's functions.
"""

from collections.abc import Sequence
from typing import Any

import paddle


def reshape(x: paddle.Tensor, shape: Sequence[int]) -> paddle.Tensor:
    """Return ``x.reshape(shape)``."""
    return paddle._C_ops.reshape(x, shape) if paddle.in_dynamic_mode() else x.reshape(shape)


def transpose(x: paddle.Tensor, axes: Sequence[int]) -> paddle.Tensor:
    """Return ``x.transpose(axes)``."""
    return paddle._C_ops.transpose(x, axes) if paddle.in_dynamic_mode() else x.transpose(axes)


def matmul(x: paddle.Tensor, y: paddle.Tensor, transpose_x: bool = False, transpose_y: bool = False) -> paddle.Tensor:
    """Return ``paddle.matmul`` of two tensors."""
    if paddle.in_dynamic_mode():
        return paddle._C_ops.matmul(x, y, transpose_x, transpose_y)
    return paddle.matmul(x, y, transpose_x=transpose_x, transpose_y=transpose_y)


def softmax(x: paddle.Tensor) -> paddle.Tensor:
    """Return the softmax along the last axis."""
    return paddle._C_ops.softmax(x, -1) if paddle.in_dynamic_mode() else paddle.nn.functional.softmax(x, axis=-1)


def split(x: paddle.Tensor, number: int, axis: int) -> list[paddle.Tensor]:
    """Return ``x.split(number, axis)``: equal parts."""
    return paddle._C_ops.split_with_num(x, number, axis) if paddle.in_dynamic_mode() else x.split(number, axis=axis)


def is_changed(layer: paddle.nn.Layer) -> bool:
    """Return whether a call of a layer does more than its class says: it has hooks or a separate ``forward``."""
    return bool(layer._forward_pre_hooks or layer._forward_post_hooks or "forward" in vars(layer))


def call(layer: paddle.nn.Layer, *inputs: Any) -> Any:
    """Call a layer; without hooks, its ``forward`` at once."""
    if layer._forward_pre_hooks or layer._forward_post_hooks or not paddle.in_dynamic_mode():
        return layer(*inputs)
    return layer.forward(*inputs)
