"""TRAIN.SHARDING gradients: the backward pass sums each gradient on the rank that updates its parameter only.

Parameters of one owner form buckets, in the order in which a backward pass computes gradients. When all gradients of
the next bucket are there, they are sent, and their memory is free again on all ranks but the owner, while the backward
pass continues. All ranks send the same buckets in the same order, also if some of their gradients are missing.

Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", arXiv 1910.02054,
stage 2. Paddle's own engine for it, ``group_sharded_parallel``, refuses CPUs and replaces the optimizer's state.
"""

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..distributed import all_gather, all_reduce_sum, host_barrier, rank, start_reduce, world_size
from ..runtime.errors import UserError
from ..settings.every_run import TrainSection
from .multi_tensor import GradientList, collect_gradients, flatten
from .sharding import Shards

_BUFFERS = 2  # buckets that are on their way at the same time
_MIB_VALUES = (1 << 20) // 4  # float32 values


class GradientBucket(NamedTuple):
    """Gradients that are sent together.

    Attributes:
        owner: the rank that gets their sum.
        names: names of their parameters.
        parameters: these parameters.
        size: number of their values.
    """

    owner: int
    names: list[str]
    parameters: list[paddle.Tensor]
    size: int


class SentBucket(NamedTuple):
    """A bucket on its way.

    Attributes:
        bucket: the bucket.
        values: the sum, on its owner, after ``wait``.
        wait: makes later operations wait for the sum.
    """

    bucket: GradientBucket
    values: paddle.Tensor
    wait: Callable[[], Any]


class GradientReducer:
    """Averages the gradients of a backward pass over all ranks, each on its owner, and frees them elsewhere.

    Only two buckets are on their way at the same time. Their memory is allocated once: a GPU could not use memory again
    that another stream still reads, while the host queues the rest of the backward pass.

    Args:
        model: the bare model; its backward passes outside of ``reducing`` are not affected.
        shards: says which rank owns what.
        bucket_megabytes: size in MiB of the buckets; a larger parameter has a separate one.
        find_unused_parameters: ranks tell each other in each step which parameters have no gradient. Without it they
            do so in the first step only, and these must stay the same.
    """

    def __init__(
        self, model: paddle.nn.Layer, shards: Shards, bucket_megabytes: int = 25, find_unused_parameters: bool = False
    ) -> None:
        trained = {name: p for name, p in model.named_parameters() if not p.stop_gradient}
        self._owned = [p for name, p in trained.items() if name in shards.owned]
        self._buckets = []
        for owner, names in shards.bucket_in_backward_order(list(trained), bucket_megabytes * _MIB_VALUES):
            parameters = [trained[name] for name in names]
            self._buckets.append(GradientBucket(owner, names, parameters, sum(p.size for p in parameters)))
        self._finds_unused = find_unused_parameters
        self._unused: set[str] | None = None  # on this rank in the first step
        self._unused_everywhere: list[paddle.Tensor] = []
        self._is_active = False
        self._buffers: list[paddle.Tensor] = []
        self._waiting: list[dict[str, paddle.Tensor]] = []  # parameters without a gradient in this pass, by bucket
        self._next = 0
        self._sent: deque[SentBucket] = deque()
        self._problem = ""
        # Weak, because Python cannot free a model whose gradients' nodes refer to it.
        this = weakref.ref(self)
        for number, bucket in enumerate(self._buckets):
            for name, parameter in zip(bucket.names, bucket.parameters):
                parameter._register_backward_hook(_make_hook(this, number, name))

    def collect_gradients(self) -> GradientList:
        """Return the gradients of this rank's share."""
        return GradientShare(self._owned)

    @contextlib.contextmanager
    def reducing(self) -> Iterator[None]:
        """Average the gradients that the block's backward pass completes. Every rank must call this.

        Gradients that were accumulated before count, too. The host does not wait for a GPU.

        Raises:
            UserError: a gradient cannot be sharded, another one than before is missing, or all of this rank are.
        """
        self._waiting = [dict(zip(bucket.names, bucket.parameters)) for bucket in self._buckets]
        self._next, self._problem, self._is_active = 0, "", True
        try:
            yield
        finally:
            self._is_active = False
        if self._problem:
            raise UserError(self._problem)
        unused = self._find_unused()
        for bucket in self._buckets[self._next :]:
            self._send(bucket)
        while self._sent:
            self._receive()
        self._clear_unused(unused)

    def note_gradient(self, number: int, name: str) -> None:
        """Note that a parameter of a bucket has its gradient, and send the buckets that are complete now."""
        if not self._is_active or self._problem:
            return
        parameter = self._waiting[number].pop(name, None)
        if parameter is None or not parameter._grad_ivar().is_dense():
            # An error that a hook raises would leave Paddle as another one.
            problem = "is computed in several parts" if parameter is None else "is sparse"
            self._problem = (
                f"TRAIN.SHARDING gradients: the gradient of '{name}' {problem}; set TRAIN.SHARDING optimizer"
            )
            return
        while self._next < len(self._buckets) and not self._waiting[self._next]:
            self._send(self._buckets[self._next])
            self._next += 1

    @paddle.no_grad()
    def _send(self, bucket: GradientBucket) -> None:
        """Begin to sum the gradients of a bucket on its owner; missing ones are zeros."""
        gradients = [parameter._grad_ivar() for parameter in bucket.parameters]
        shapes = [parameter.shape for parameter in bucket.parameters]
        present = [paddle.zeros(shape) if g is None else g for g, shape in zip(gradients, shapes)]
        if len(self._sent) == _BUFFERS:
            self._receive()
        buffer = self._take_buffer()
        values = buffer._slice(0, bucket.size)
        paddle.assign(flatten(present).scale_(1 / world_size()), output=values)
        self._buffers.append(buffer)
        self._sent.append(SentBucket(bucket, values, start_reduce(values, bucket.owner)))
        if bucket.owner != rank():
            for parameter in bucket.parameters:
                parameter.clear_gradient(False)

    def _take_buffer(self) -> paddle.Tensor:
        if len(self._buffers) == _BUFFERS:
            return self._buffers.pop(0)
        return paddle.empty([max(bucket.size for bucket in self._buckets)], "float32")

    @paddle.no_grad()
    def _receive(self) -> None:
        """Wait for the oldest bucket on its way, on the device, and write its sum to the owner's gradients."""
        bucket, flat, wait = self._sent.popleft()
        wait()
        if bucket.owner != rank():
            return
        for parameter, values in zip(bucket.parameters, paddle.split(flat, [p.size for p in bucket.parameters])):
            gradient = parameter._grad_ivar()
            if gradient is None or not gradient.is_contiguous():
                gradient = paddle.empty(parameter.shape, "float32")
                parameter._copy_gradient_from(gradient)  # shares its memory; ``parameter.grad = ...`` may copy and wait
            paddle.assign(values.reshape(parameter.shape), output=gradient)

    def _find_unused(self) -> set[str]:
        """Return the names of parameters that have no gradient on this rank.

        Raises:
            UserError: they differ from those in the first step, without ``find_unused_parameters``.
        """
        unused = set()
        for bucket in self._buckets[self._next :]:
            unused |= {name for name, p in zip(bucket.names, bucket.parameters) if p._grad_ivar() is None}
        if self._unused is not None and unused != self._unused and not self._finds_unused:
            name = min(unused ^ self._unused)
            raise UserError(
                f"TRAIN.SHARDING gradients: '{name}' has a gradient in some updates and none in others; set "
                "TRAIN.FIND_UNUSED_PARAMETERS True"
            )
        return unused

    def _clear_unused(self, unused: set[str]) -> None:
        """Remove the zeros that parameters got which no rank uses, so that updates leave them unchanged."""
        if self._unused is None or self._finds_unused:
            self._unused_everywhere = self._agree_on_unused(unused)
        self._unused = unused
        for parameter in self._unused_everywhere:
            parameter.clear_gradient(False)

    def _agree_on_unused(self, unused: set[str]) -> list[paddle.Tensor]:
        """Return the parameters that have no gradient on any rank.

        Raises:
            UserError: these are all of this rank's share.
        """
        everywhere = set.intersection(*all_gather(unused))
        if all(name in everywhere for bucket in self._buckets if bucket.owner == rank() for name in bucket.names):
            raise UserError(
                "TRAIN.SHARDING gradients: no parameter of this process's share has a gradient; set TRAIN.SHARDING "
                "optimizer"
            )
        named = (pair for bucket in self._buckets for pair in zip(bucket.names, bucket.parameters))
        return [parameter for name, parameter in named if name in everywhere]


def build_reducer(train: TrainSection, model: paddle.nn.Layer, shards: Shards | None) -> GradientReducer | None:
    """Return what averages sharded gradients; None if data parallelism averages all."""
    if shards is None or train.SHARDING != "gradients":
        return None
    return GradientReducer(model, shards, train.BUCKET_MEGABYTES, train.FIND_UNUSED_PARAMETERS)


def _make_hook(reducer: "weakref.ref[GradientReducer]", number: int, name: str) -> Callable[..., None]:
    def hook(*_: Any) -> None:
        this = reducer()
        if this is not None:
            this.note_gradient(number, name)

    return hook


class GradientShare(GradientList):
    """The gradients of this rank's share, whose norm is the norm of all ranks' shares together.

    Every rank must call ``norm`` and ``squares``, also without gradients. The results are equal on all ranks.

    Args:
        parameters: the parameters of the share.
    """

    def __init__(self, parameters: Sequence[paddle.Tensor]) -> None:
        super().__init__(parameters)
        self._local = collect_gradients(parameters)

    @paddle.no_grad()
    def norm(self) -> np.float32:
        """Compute the norm of all ranks' gradients; infinite if the sum of squares overflows float32."""
        with np.errstate(over="ignore"):
            return np.sqrt(self.sum_of_squares(self.present()))

    def squares(self, gradients: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Sum the squares of these gradients and of all other shares on the device, float32 (1,)."""
        total = self._local.squares(gradients) if gradients else paddle.zeros([1])
        if total.place.is_cpu_place():
            host_barrier()
        return all_reduce_sum(total)

    def multiply(self, gradients: Sequence[paddle.Tensor], factor: np.float32) -> None:
        """Multiply these gradients, which must be finite, by a factor above 0, in place."""
        self._local.multiply(gradients, factor)
