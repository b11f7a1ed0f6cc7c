"""The data-parallel model: Paddle's reducer averages gradients over the ranks during the backward pass."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import paddle
from paddle.distributed.fleet.utils import recompute

from ..runtime.transfers import read
from . import world
from .batch_norm import convert_batch_norm, running_statistics, unbias_running_variance
from .collectives import barrier, broadcast_object

SMALL_BATCH = 32  # samples per device; below, batch norm's error grows (Wu and He, Group Normalization, 2018)


def batch_norm_kind(
    setting: str | None, default: str, processes: int, batch: int, on_gpu: bool | None = None
) -> tuple[str, str]:
    """Choose the statistics that batch normalizations use in training: "sync" or "local", and the reason.

    ``setting``: TRAIN.BATCH_NORM, or None for the task's ``default``; ``batch``: samples of one process in a
    micro-batch. ``on_gpu``, or on another accelerator; None: ask Paddle.
    """
    on_gpu = paddle.get_device() != "cpu" if on_gpu is None else on_gpu
    if setting is not None:
        return setting, "TRAIN.BATCH_NORM"
    if on_gpu and processes > 1 and batch < SMALL_BATCH and default == "local":
        return "sync", f"the default for several devices with fewer than {SMALL_BATCH} samples each"
    return default, "the default for this task" if default == "sync" or not on_gpu else "the default for such batches"


def data_parallel(
    model: paddle.nn.Layer,
    batch_norm: str = "local",
    find_unused_parameters: bool = False,
    bucket_megabytes: int = 25,
) -> paddle.nn.Layer:
    """Wrap ``model`` so that the backward pass averages its gradients over all ranks. Every rank must call this.

    Rank 0's weights are broadcast. With one process, the model itself is returned. State, optimizer and evaluation
    always use the bare model, whose parameter names have no prefix.

    Args:
        batch_norm: "sync": batch normalizations inside the model are converted, in place, to use the rows of all ranks
            (``convert_batch_norm``); "local": each rank normalizes by its own rows, and running statistics differ until
            they are broadcast.
        find_unused_parameters: search each step's graph for parameters that it does not reach, and give them zero
            gradients. Without it, a parameter used by only some ranks diverges between ranks.
        bucket_megabytes: size in MiB of the buckets in which gradients are reduced.
    """
    model = prepare_batch_norms(model, batch_norm)
    if world.world_size() == 1:
        return model
    barrier()  # ranks may take differently long to load weights, and gloo waits for 30 s only
    make_gradients_contiguous(model.parameters())
    return paddle.DataParallel(model, comm_buffer_size=bucket_megabytes, find_unused_parameters=find_unused_parameters)


def prepare_batch_norms(model: paddle.nn.Layer, batch_norm: str) -> paddle.nn.Layer:
    """Let batch norms compute statistics as in ``data_parallel``, in place, and return the model.

    It is for networks without gradients, too, whose batch norms use the batch, such as a teacher's.
    """
    unbias_running_variance(model)
    return convert_batch_norm(model) if batch_norm == "sync" and world.world_size() > 1 else model


def make_gradients_contiguous(parameters: Iterable[paddle.Tensor]) -> None:
    """Copy gradients that are views before Paddle's reducer, which silently omits a view from the average, sees them.

    If operations return views, the default in Paddle 3, the gradient of a weight that the forward pass transposes is
    one. Otherwise this function does nothing.
    """
    views = "FLAGS_use_stride_kernel"
    if not paddle.get_flags([views])[views]:
        return
    for parameter in parameters:
        if not parameter.stop_gradient:
            parameter.register_hook(as_contiguous)


def as_contiguous(gradient: paddle.Tensor) -> paddle.Tensor | None:
    """Return a contiguous copy of a gradient; None if none is needed."""
    return gradient.contiguous() if gradient.is_dense() and not gradient.is_contiguous() else None


@contextlib.contextmanager
def without_synchronization(model: paddle.nn.Layer) -> Iterator[None]:
    """Run the block's backward passes without communication: the last micro-batch sends the sums."""
    with model.no_sync() if isinstance(model, paddle.DataParallel) else contextlib.nullcontext():
        yield


class _ZeroOf(paddle.autograd.PyLayer):
    """The constant 0 as a function of tensors, with zero gradients."""

    @staticmethod
    def forward(ctx, *tensors: paddle.Tensor) -> paddle.Tensor:
        ctx.save_for_backward(*tensors)
        return paddle.zeros([], dtype="float32")

    @staticmethod
    def backward(ctx, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        saved = ctx.saved_tensor()
        return tuple(None if t.stop_gradient else paddle.zeros(t.shape, dtype=t.dtype) for t in saved)


def build_zero(*tensors: paddle.Tensor) -> paddle.Tensor:
    """Return the float32 scalar 0 as a function of ``tensors``, which may be empty.

    Add it to the loss of a rank whose samples do not use a branch of the model: the rank then takes part in the
    communication of its layers in the backward pass, and the gradients are zeros, not None.
    """
    return _ZeroOf.apply(*tensors)


def recompute_layers(layers: Iterable[paddle.nn.Layer]) -> int:
    """Make each layer recompute its forward pass in the backward pass instead of storing it; return their number.

    Only each layer's input stays in memory. Random numbers (dropout) are equal in both passes, so gradients do not
    change. This applies in training mode only; names, state and evaluation are unaffected. The layers are called with
    tensors, are not nested and contain no batch normalization, whose running statistics would count each batch twice.

    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, arXiv 1604.06174.
    """
    recomputed = list(layers)
    for layer in recomputed:
        layer.forward = functools.partial(_recompute, layer, vars(layer).get("forward"))
    return len(recomputed)


def _recompute(layer: paddle.nn.Layer, own: Callable | None, x: paddle.Tensor, *inputs: object) -> paddle.Tensor:
    # A layer without a separate function is computed by its present class, which a hook may have replaced.
    forward = own or functools.partial(type(layer).forward, layer)
    is_frozen = all(p.stop_gradient for p in layer.parameters())
    if not (layer.training and paddle.is_grad_enabled()) or (is_frozen and x.stop_gradient):
        return forward(x, *inputs)
    if x.stop_gradient:  # after frozen layers: without this, the layer's parameters would silently get no gradient
        x = x.detach()
        x.stop_gradient = False
    # Not reentrant: a nested backward pass runs data parallelism's hooks at the wrong time and fails. The random state
    # is restored here, since Paddle 2.6 does so only on GPUs.
    first: list[Any] = []

    def repeatable(*arguments: object) -> Any:
        current_state = paddle.get_rng_state()
        if not first:
            first.append(current_state)
            return forward(*arguments)
        paddle.set_rng_state(first[0])
        try:
            return forward(*arguments)
        finally:
            paddle.set_rng_state(current_state)

    return recompute(repeatable, x, *inputs, use_reentrant=False, preserve_rng_state=False)


def broadcast_statistics(model: paddle.nn.Layer) -> None:
    """Broadcast the running statistics of rank 0, if any, to all ranks. Every rank must call this."""
    if world.world_size() == 1:
        return
    tensors = running_statistics(model)
    if not tensors:
        return
    values = broadcast_object(read(*tensors) if world.rank() == 0 else None)
    for tensor, value in zip(tensors, values):
        tensor.set_value(value)
