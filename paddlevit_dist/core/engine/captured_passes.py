"""Forward and backward passes of a micro-batch as a CUDA graph (TRAIN.CAPTURE), which the host launches by one call.

In half precision a GPU computes an update faster than the host can launch its operations. Only the passes are captured.
The optimizer's step, the norm of the gradients, averages and all that is read stay outside.

Before a graph is used, it is compared with the passes that it repeats, for three positions in the run: terms, gradients
and running statistics are to be equal to rounding. All ranks decide together. What cannot be captured runs as ever, and
one line says why. Gradients then stay in the same memory for the whole run, and each pass adds to them.
"""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import nn

from ..distributed import all_gather, all_reduce_sum, communicates_in_forward, world_size
from ..registry.required_methods import is_builtin
from ..runtime import device_graph
from ..runtime.device_graph import DeviceGraph, EnteredValues, NotCapturable
from ..runtime.errors import UserError
from ..runtime.layers import is_changed
from ..runtime.transfers import constant, read
from ..tasks.aspects import get_aspect
from ..tasks.protocols import Capturable
from ..tasks.step_types import LossTerm, Number, StepPosition
from ..tasks.task import Task
from .multi_tensor import GradientList, flatten, subtract, zero_where
from .nan_guard import BufferSnapshot

Batch = dict[str, Any]
Terms = dict[str, LossTerm]
Counts = dict[str, Number]
Compute = Callable[[Batch, Any, Counts], Terms]  # forward and backward of a micro-batch

MOST_GRAPHS = 4  # one for each shape of a batch; each keeps the memory of its passes
_TRIALS = 3  # positions for which a graph is compared
_MOST_ATTEMPTS = 60  # updates whose numbers may be infinite, until a loss scale is found
_BOUND, _BOUND_IN_HALF = 2.0**-10, 2.0**-6  # of a difference: sums in another order
#: Paddle's own layers whose passes can be captured
_OF_PADDLE = {
    *(
        nn.Linear,
        nn.Conv2D,
        nn.Conv2DTranspose,
        nn.Conv3D,
        nn.Conv3DTranspose,
        nn.Embedding,
        nn.LayerNorm,
        nn.GroupNorm,
    ),
    *(nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D, nn.InstanceNorm2D, nn.InstanceNorm3D, nn.LeakyReLU),
    *(nn.Identity, nn.Dropout, nn.GELU, nn.ReLU, nn.ReLU6, nn.Silu, nn.Swish, nn.Sigmoid, nn.Tanh, nn.Hardswish),
    *(nn.Hardsigmoid, nn.Softmax, nn.MaxPool2D, nn.AvgPool2D, nn.AdaptiveAvgPool2D, nn.Flatten),
    *(nn.Layer, nn.Sequential, nn.LayerList, nn.LayerDict, nn.ParameterList),
}


class _UnknownStep:
    """Stands for the position in the run where passes are captured: a graph would repeat it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotCapturable(f"train_step reads {name} of its step")


class _CapturedPass(NamedTuple):
    """A graph, the tensors that it reads, and the terms that it writes."""

    graph: DeviceGraph
    values: EnteredValues
    batch: Batch
    counts: Counts
    terms: Terms

    def replay(self, batch: Batch, step: StepPosition, counts: Counts) -> Terms:
        """Run the passes of a micro-batch; return its terms, in memory of their own."""
        self.fill(batch, step, counts)
        self.graph.replay()
        return {name: _copy_term(term) for name, term in self.terms.items()}

    @paddle.no_grad()
    def fill(self, batch: Batch, step: StepPosition, counts: Counts) -> None:
        """Write what the graph reads."""
        for ours, given in ((self.batch, batch), (self.counts, counts)):
            for name, tensor in ours.items():
                if isinstance(tensor, paddle.Tensor):
                    paddle.assign(given[name], output=tensor)
        self.values.refresh(step)


class CapturedPasses:
    """Repeats passes by graphs, one for each shape of a batch, where they compute what the passes themselves do.

    Args:
        compute: the forward and the backward pass of a micro-batch, whose gradients it adds to those that are there.
        networks: the model and others that the task computes, whose layers say whether they can be captured.
        task: likewise.
        gradients: of the trained parameters.
        buffers: running statistics, which the passes change.
        in_half: whether products are in half precision.
        log: receives lines: that passes are captured, or why they are not.
        clock: tells seconds, to report what a graph gains.

    Attributes:
        is_on: whether graphs are used; the memory of gradients then is never freed.
        said: the last line for the log; empty before the first.
    """

    def __init__(
        self,
        compute: Compute,
        networks: Sequence[nn.Layer],
        task: Task,
        gradients: GradientList,
        buffers: Sequence[paddle.Tensor],
        in_half: bool,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock, self._milliseconds = clock, [0.0, 0.0]  # of plain passes, and of the graph
        self._compute, self._networks, self._task = compute, networks, task
        self._gradients, self._buffers, self._log = gradients, buffers, log
        self._bound = _BOUND_IN_HALF if in_half else _BOUND
        self._passes: dict[Any, _CapturedPass | None] = {}  # by the shapes of a batch; None: these run as ever
        self._addresses: list[int] = []  # what graphs read and write
        self._attempts = 0
        self._is_over = False
        self.is_on = False
        self.said = ""

    def prepare(self, batch: Batch, step: StepPosition, counts: Counts, seed: int) -> None:
        """Capture the passes of batches of this shape, unless that is decided. Every rank must call this.

        Gradients must be missing or 0, and are so afterwards.
        """
        shapes = _list_shapes(batch)
        if self.is_on and self._addresses != self._list_addresses():
            self._say("weights or statistics have moved: their passes are captured again (TRAIN.CAPTURE)")
            self._passes, self.is_on = {}, False
        is_new = shapes not in self._passes and world_size() == 1  # ranks decide together, so only once
        if self._is_over or (self.is_on and not is_new):
            return
        if sum(each is not None for each in self._passes.values()) == MOST_GRAPHS:
            self._is_over = True
            self._say(f"passes are not captured for further shapes of batches: at most {MOST_GRAPHS} (TRAIN.CAPTURE)")
            return
        buffers = BufferSnapshot(self._buffers)
        try:
            captured, difference, reason = *self._try(batch, step, counts, seed, buffers), ""
        except UserError:
            raise
        except Exception as error:  # of Paddle, CUDA and Triton, of many types
            captured, difference, reason = None, 0.0, _one_line(error)
        buffers.restore()
        self._decide(shapes, captured, difference, reason)
        self._gradients.clear(self.is_on)

    def run(self, batch: Batch, step: StepPosition, counts: Counts) -> Terms | None:
        """Repeat the passes of a micro-batch and return its terms; None if no graph has them."""
        captured = self._passes.get(_list_shapes(batch)) if self.is_on else None
        return None if captured is None else captured.replay(batch, step, counts)

    def forget(self) -> None:
        """Free the graphs, which repeat passes of other parameters than those that learn now."""
        if self.is_on:
            self._passes, self.is_on, self._is_over = {}, False, False

    def _say(self, line: str) -> None:
        self.said = line
        self._log(line)

    def _decide(self, shapes: Any, captured: _CapturedPass | None, difference: float, reason: str) -> None:
        """Use a graph, or run as ever, or decide by a later update if this one is not finite; on all ranks alike."""
        of_ranks = all_gather((reason, difference, len(self._gradients.present())))
        reason = next((one for one, *_ in of_ranks if one), "")
        difference = max(one for _, one, _ in of_ranks)
        self._attempts += 1
        if not reason and len({number for *_, number in of_ranks}) > 1:
            reason = "ranks have gradients of different parameters"
        if not reason and not math.isfinite(difference):
            if self._attempts < _MOST_ATTEMPTS:
                return
            reason = f"{self._attempts} updates in a row are not finite"
        if not reason and difference > self._bound:
            reason = f"a graph differs from the passes that it repeats by {difference:.1e} of their values"
        if reason:
            self._say(f"passes are not captured (TRAIN.CAPTURE): {reason}")
            self._passes[shapes], self._is_over = None, not self.is_on
            return
        plain, captured_ms = self._milliseconds
        self._say(
            f"passes are captured (TRAIN.CAPTURE), and equal to those without a graph to {difference:.1e}: they take "
            f"{captured_ms:.3g} ms instead of {plain:.3g}"
        )
        self._passes[shapes], self.is_on = captured, True
        self._addresses = self._list_addresses()

    def _try(
        self, batch: Batch, step: StepPosition, counts: Counts, seed: int, buffers: BufferSnapshot
    ) -> tuple[_CapturedPass, float]:
        """Capture the passes of a batch; return also the largest difference from the passes themselves."""
        require_capturable(self._networks, self._task)
        captured = _CapturedPass(DeviceGraph(), EnteredValues(), _copy_tensors(batch), _copy_tensors(counts), {})
        values, arguments = captured.values, (captured.batch, _UnknownStep(), captured.counts)
        seconds: dict[bool, list[float]] = {False: [], True: []}  # of plain passes, and of the graph
        paddle.seed(seed)
        # Once without a graph: gradients and what is cached get their memory.
        with device_graph.requiring_repeatable(), values.entering(step):
            self._compute(dict(captured.batch), *arguments[1:])
        self._gradients.present()
        with values.entering(step), captured.graph.capturing():
            captured.terms.update(self._compute(dict(captured.batch), *arguments[1:]))
        captured.graph.replay()  # the first one of Paddle repeats the dropout of the capture
        worst = 0.0
        for trial in range(_TRIALS):
            position, found = step._replace(update=step.update + trial), []
            for is_graph in (False, True):
                buffers.restore()
                self._gradients.clear(keeps_memory=True)
                paddle.seed((seed + trial) % 2**31)
                captured.fill(batch, position, counts)
                read(*self._gradients.present()[:1])  # waits for the device
                started = self._clock()
                if is_graph:
                    captured.graph.replay()
                    terms = captured.terms
                else:
                    with values.entering(position):
                        terms = self._compute(dict(captured.batch), *arguments[1:])
                sums = [term.sum for term in terms.values()]
                read(*self._gradients.present()[:1])
                seconds[is_graph].append(self._clock() - started)
                found.append([each.detach().clone() for each in (*sums, *self._gradients.present(), *self._buffers)])
            worst = max(worst, _measure_difference(*found))
        self._milliseconds = [1e3 * min(seconds[is_graph]) for is_graph in (False, True)]
        return captured, worst

    def _list_addresses(self) -> list[int]:
        """Return where weights, statistics and gradients are."""
        tensors = [*self._gradients.parameters, *self._buffers, *self._gradients.present()]
        return [tensor.data_ptr() for tensor in tensors]


@paddle.no_grad()
def average_over_ranks(gradients: Sequence[paddle.Tensor], bucket_bytes: int) -> None:
    """Average contiguous float32 gradients over all ranks in place, one exchange a bucket. Every rank must call this.

    Paddle's reducer would exchange them while the passes run, by functions that no graph repeats.
    """
    if world_size() == 1:
        return
    factor = constant(np.full, 1, -1.0 / world_size(), "float32")
    sizes = itertools.accumulate((4 * each.size for each in gradients), initial=0)
    buckets: dict[int, list[paddle.Tensor]] = {}
    for before, gradient in zip(sizes, gradients):
        buckets.setdefault(before // bucket_bytes, []).append(gradient)
    for bucket in buckets.values():
        parts = paddle.split(all_reduce_sum(flatten(bucket)), [each.size for each in bucket])
        zero_where(paddle.ones([1], "bool"), bucket)
        subtract(bucket, parts, factor)


def require_capturable(networks: Sequence[nn.Layer], task: Task) -> None:
    """Raise NotCapturable with what does not say that its passes can be captured."""
    capture, name = get_aspect(task, Capturable), f"task {task.config.TASK} ({type(task).__name__})"
    if capture is None and not is_builtin(type(task)):
        raise NotCapturable(f"{name} does not say that they can be")
    if capture is None and not task.traits.supports_capture:
        raise NotCapturable(f"{name} needs the host within its passes")
    if capture is not None and (reason := capture.find_obstacle()):
        raise NotCapturable(f"{name}: {reason}")
    if reason := device_graph.reason_against():
        raise NotCapturable(reason)
    if any(map(communicates_in_forward, networks)):
        raise NotCapturable("batch norms exchange statistics (TRAIN.BATCH_NORM sync)")
    inner = [each._layers if isinstance(each, paddle.DataParallel) else each for each in networks]
    for name, layer in itertools.chain(*(each.named_sublayers(include_self=True) for each in inner)):
        place = f"layer {name} ({type(layer).__name__})" if name else f"network {type(layer).__name__}"
        if is_changed(layer):
            raise NotCapturable(f"{place} has a hook or another forward, as by TRAIN.RECOMPUTE or TO_STATIC")
        if type(layer) not in _OF_PADDLE and not device_graph.may_be_captured(layer):
            raise NotCapturable(f"{place} does not say that they can be")


def _copy_tensors(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, paddle.Tensor) else value for name, value in values.items()}


def _copy_term(term: LossTerm) -> LossTerm:
    count = term.count.detach().clone() if isinstance(term.count, paddle.Tensor) else term.count
    return term._replace(sum=term.sum.detach().clone(), count=count)


def _list_shapes(batch: Batch) -> tuple[Any, ...]:
    """Return what a graph cannot change of a batch."""
    return tuple(
        (name, *value.shape, value.dtype) if isinstance(value, paddle.Tensor) else (name, repr(value))
        for name, value in batch.items()
    )


@paddle.no_grad()
def _measure_difference(expected: Sequence[paddle.Tensor], found: Sequence[paddle.Tensor]) -> float:
    """Compute the largest norm of a difference as a share of its tensor's norm; inf if a value is not finite.

    A tensor whose norm is below a thousandth of the largest one may be rounding alone: its share is of that.
    """
    pairs = [(one.astype("float32"), other.astype("float32")) for one, other in zip(expected, found, strict=True)]
    norms = [each.square().sum() for one, other in pairs for each in (one, one - other)]
    squares = read(paddle.stack(norms))[0].astype(np.float64).reshape([-1, 2])  # (tensors, 2)
    if not np.isfinite(squares).all():
        return math.inf
    sizes, differences = np.sqrt(squares).T
    largest = np.maximum(sizes, 1e-3 * sizes.max())
    return float((differences / np.where(largest > 0, largest, 1.0)).max(initial=0.0))


def _one_line(error: Exception) -> str:
    """Return what an error says, without the frames that Paddle draws around it."""
    said = [line for line in str(error).splitlines() if line.strip() and "----" not in line]
    text = " ".join(" ".join(said).split())[:300]
    return text if isinstance(error, NotCapturable) else f"{type(error).__name__}: {text}"
