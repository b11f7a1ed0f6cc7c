"""The data-parallel model: gradients are averaged over the ranks by Paddle's reducer during backward."""

from __future__ import annotations

import contextlib
from typing import Iterator

import paddle

from . import world
from .batch_norm import convert_batch_norm


def data_parallel(
    model: paddle.nn.Layer, batch_norm: str = "local", find_unused_parameters: bool = False
) -> paddle.nn.Layer:
    """Wrap ``model`` so that backward averages its gradients over all ranks. Every rank must call this.

    Rank 0's weights are broadcast. With one process the model itself is returned. State, optimizer and evaluation
    always use the inner model, whose parameter names have no prefix.

    Args:
        batch_norm: "sync": batch normalisations inside the model are converted, in place, to use the rows of all
            ranks; "local": each rank normalises by its own rows, and statistics differ until they are broadcast.
        find_unused_parameters: search the graph of each step for parameters that it does not reach, and give them
            zero gradients. Without it, a parameter that only some ranks use differs between ranks afterwards.
    """
    if world.world_size() == 1:
        return model
    if batch_norm == "sync":
        model = convert_batch_norm(model)
    return paddle.DataParallel(model, find_unused_parameters=find_unused_parameters)


@contextlib.contextmanager
def synchronise_only_last(model: paddle.nn.Layer, is_last: bool) -> Iterator[None]:
    """Backward passes inside communicate only if this is the update's last micro-batch."""
    if is_last or not isinstance(model, paddle.DataParallel):
        yield
        return
    with model.no_sync():
        yield
