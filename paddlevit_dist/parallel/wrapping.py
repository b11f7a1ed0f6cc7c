"""The data-parallel model: gradients are averaged over the ranks by Paddle's reducer during backward."""

from __future__ import annotations

import contextlib
from typing import Iterator

import paddle

from . import world


def data_parallel(model: paddle.nn.Layer) -> paddle.nn.Layer:
    """Wrap ``model`` so that backward averages its gradients over all ranks. Every rank must call this.

    Rank 0's weights are broadcast. With one process the model itself is returned. State, optimizer and evaluation
    always use the inner model, whose parameter names have no prefix.
    """
    if world.world_size() == 1:
        return model
    return paddle.DataParallel(model)


@contextlib.contextmanager
def synchronise_only_last(model: paddle.nn.Layer, is_last: bool) -> Iterator[None]:
    """Backward passes inside communicate only if this is the update's last micro-batch."""
    if is_last or not isinstance(model, paddle.DataParallel):
        yield
        return
    with model.no_sync():
        yield
