"""One update: micro-batches forward and backward, gradients normalized by global counts, clip, step."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..distributed import (
    all_reduce_sum,
    communicates_in_forward,
    host_barrier,
    rank,
    running_statistics,
    synchronize_only_last,
    world_size,
)
from ..launch import status
from ..runtime import paddle_versions
from ..runtime.transfers import is_on_gpu
from ..tasks.task import LossTerm, Number, StepPosition, Task
from .fused_optimizers import FusedStep
from .model_ema import ModelEma
from .multi_tensor import MultiTensorStep, clipping_factor, collect_gradients
from .nan_guard import BufferSnapshot, NonFiniteGuard
from .precision import TrainingPrecision
from .queued_step import QueuedStep

COUNTS = "__counts__"  # key of a batch's normalizers, float64 (terms,), in the order of the task's ``count_names``


class CountingCollate:
    """The task's collate, with the normalizers of each batch made beside it in the loader process."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        batch = self.task.collate(samples)
        if self.task.counts_per_sample is None:
            counts = self.task.counts(batch)
            batch[COUNTS] = np.array([counts[name] for name in self.task.count_names], dtype=np.float64)
        return batch


class StepResult(NamedTuple):
    """An update of which the host knows what became of it.

    Attributes:
        terms: of the loss, one dictionary for each micro-batch.
        is_finite: it has changed the weights.
    """

    terms: list[dict[str, LossTerm]]
    is_finite: bool


class _PendingStep(NamedTuple):
    """An update of which the host does not know yet what becomes of it.

    Attributes:
        buffers: running statistics from before it.
        scale: of its loss.
    """

    batches: list[dict[str, paddle.Tensor]]
    step: StepPosition
    counts: dict[str, Number]
    terms: list[dict[str, LossTerm]]
    buffers: BufferSnapshot
    scale: float


class TrainStep:
    """Turns the micro-batches of one update into new weights.

    An update whose loss, on any rank, or gradients are not finite changes neither weights nor moments nor buffers nor
    their average: it is skipped. What says so is the norm of all gradients, the one number of an update that the host
    waits for. On a GPU it does so when the next passes are queued, which are begun again if it is bad. Norm, clipping,
    step and average are queued in few operations, for a GPU has nothing else to do then.

    Args:
        model: the data-parallel wrapper, or the bare model of a single process.
        samples_per_update: over all processes and micro-batches.
        skipped: counts what is skipped; None: the first ends the run.
        on_host: the model is in the host's memory; None: ask Paddle.
        average: of the weights, moved by each update.

    Attributes:
        finite: whether the last update that is known has changed anything.
        gradient_norm: of that update, before clipping; equal on all ranks.
        before_clipping: called when the gradients are there, if they are finite: the host waits for that.
    """

    def __init__(
        self,
        task: Task,
        model: paddle.nn.Layer,
        optimizer: Any,
        precision: TrainingPrecision,
        *,
        seed: int,
        samples_per_update: int,
        accumulation_steps: int,
        gradient_clip: float | None,
        skipped: NonFiniteGuard | None = None,
        on_host: bool | None = None,
        average: ModelEma | None = None,
    ) -> None:
        self.task = task
        self.model = model
        self.optimizer = optimizer
        self.precision = precision
        self.seed = seed
        self.samples_per_update = samples_per_update
        self.accumulation_steps = accumulation_steps
        self.parameters = [p for p in model.parameters() if not p.stop_gradient]
        self.buffers = running_statistics(model)
        self.on_host = not is_on_gpu() if on_host is None else on_host
        self.gradient_clip = gradient_clip
        self.average = average
        self._gradients = collect_gradients(self.parameters)
        self.skipped = NonFiniteGuard() if skipped is None else skipped
        self._forward_communicates = communicates_in_forward(model)
        # A model that reads from a GPU waits there for what is queued before: an exchange with other ranks.
        exchanges = self._forward_communicates or task.counts_per_sample is None
        self._waits_in_forward = exchanges and not self.on_host
        self.finite = True
        self.gradient_norm = 0.0
        self.before_clipping: Callable[[], None] | None = None
        self._queued: tuple[QueuedStep, _PendingStep] | None = None

    def __call__(self, batches: list[dict[str, paddle.Tensor]], step: StepPosition, learning_rate: float) -> list[dict]:
        """Run one update, wait for it and return the terms of its micro-batches; see ``begin``."""
        return [*self.launch(batches, step, learning_rate), *self.flush()][-1].terms

    def launch(
        self, batches: list[dict[str, paddle.Tensor]], step: StepPosition, learning_rate: float
    ) -> list[StepResult]:
        """Run one update and return what is known of it now: on a CPU itself, on a GPU the one before, if any. Every
        rank must call this.

        Raises:
            UserError: it was one too many in a row that is not finite; it has changed nothing.
        """
        counts = self._global_counts(batches)
        begun = self._passes(batches, step, counts)
        made = self.flush()
        if made and (not made[0].is_finite or begun.scale != self.precision.scale):
            self.optimizer.clear_grad(False)
            if made[0].is_finite:  # else buffers are as before the update that was skipped
                begun.buffers.restore()
            begun = self._passes(batches, step, counts)
        queued = self._queue_step(learning_rate)
        if queued is not None:
            self._queued = queued, begun
        else:
            with contextlib.nullcontext() if self.on_host else status.waiting_for_device():
                norm = self._gradients.norm() / np.float32(self.precision.scale)
            if math.isfinite(norm):
                self._step(norm, learning_rate)
            made.append(self._judge(norm, begun))
        self.optimizer.clear_grad(False)
        return made

    def flush(self) -> list[StepResult]:
        """Wait for the update that was begun last, if it is not known yet. Every rank must call this.

        Raises:
            UserError: as ``begin``.
        """
        if self._queued is None:
            return []
        (queued, begun), self._queued = self._queued, None
        with status.waiting_for_device():
            norm = queued.wait()
        return [self._judge(norm, begun)]

    def _passes(
        self, batches: list[dict[str, paddle.Tensor]], step: StepPosition, counts: dict[str, Number]
    ) -> _PendingStep:
        """Forward and backward."""
        before = BufferSnapshot(self.buffers)
        outputs = []
        for micro, batch in enumerate(batches):
            # Dropout and the like depend only on this, so no generator's state needs to be saved.
            paddle.seed(step_seed(self.seed, step.update, rank(), micro))
            is_last = micro == len(batches) - 1
            status.set_detail("in its forward pass", may_wait=self._waits_in_forward)
            self._meet(self._forward_communicates)
            with synchronize_only_last(self.model, is_last):
                with self.precision.autocast():
                    terms = self.task.train_step(self.model, batch, step._replace(micro=micro))
                    loss = compute_loss(terms, counts, self.accumulation_steps, world_size())
                status.set_detail("in its backward pass", may_wait=not self.on_host)
                self._meet(is_last or self._forward_communicates)
                self.precision.backward(loss)
            outputs.append(terms)
        status.set_detail("in its optimizer step")
        return _PendingStep(batches, step, counts, outputs, before, self.precision.scale)

    def _queue_step(self, learning_rate: float) -> QueuedStep | None:
        """Queue the step behind the gradients; None where the host has to look at them first."""
        if self.on_host or self.before_clipping or not (self.average is None or self.average.is_of_one_type):
            return None
        at_once = self.optimizer.foreach_step() if isinstance(self.optimizer, FusedStep) else None
        if not isinstance(at_once, MultiTensorStep) or not at_once.takes(at_once.gradients()):
            return None
        return QueuedStep(
            self._gradients,
            at_once,
            scale=self.precision.scale,
            clip=self.gradient_clip,
            learning_rate=learning_rate,
            average=self.average,
        )

    def _judge(self, norm: np.float32, begun: _PendingStep) -> StepResult:
        """Take note of an update that has changed parameters, or nothing but running statistics."""
        self.gradient_norm, self.finite = float(norm), math.isfinite(norm)
        if not self.finite:
            begun.buffers.restore()
            paddle_versions.create_accumulators(self.optimizer)  # a step has made none yet, but they are saved
        self.skipped.count(self.finite, begun.step, begun.batches, begun.counts)
        self.precision.update(self.finite)
        return StepResult(begun.terms, self.finite)

    def _meet(self, communicates: bool) -> None:
        """On CPUs, be here together before what communicates: gloo ends a run that waits for more than 30 s in it."""
        if communicates and self.on_host:
            host_barrier()

    def _step(self, norm: np.float32, learning_rate: float) -> None:
        """Change weights, moments and average by gradients of that norm, still multiplied by the loss's scale."""
        if self.before_clipping:
            self.before_clipping()
        factor = clipping_factor(norm, self.gradient_clip) / np.float32(self.precision.scale)
        if factor != 1:
            self._gradients.scale(factor)
        self.optimizer.set_lr(learning_rate)
        self.optimizer.step()
        if self.average is not None:
            self.average.update()

    def _global_counts(self, batches: list[dict[str, paddle.Tensor]]) -> dict[str, Number]:
        """Normalizers of the whole update over all ranks and micro-batches, 1 in place of 0."""
        if self.task.counts_per_sample is not None:
            return {name: n * self.samples_per_update for name, n in self.task.counts_per_sample.items()}
        self._meet(True)
        total = paddle.add_n([batch.pop(COUNTS) for batch in batches])  # (terms,) float64
        total = all_reduce_sum(total)
        total = paddle.where(total > 0, total, paddle.ones_like(total)).astype("float32")  # weights may add up to less
        return {name: total[position] for position, name in enumerate(self.task.count_names)}


def compute_loss(
    terms: dict[str, LossTerm], counts: dict[str, Number], accumulation_steps: int, processes: int
) -> paddle.Tensor:
    """A micro-batch's part of the loss: the sum of weight x sum x processes / global count.

    Data parallelism averages gradients over ranks, so the result is that of one process on the whole batch, however
    unevenly ranks are filled.

    Args:
        counts: normalizers over all ranks and micro-batches, by term; a term without one is divided by its own count.
    """
    parts = []
    for name, term in terms.items():
        if term.weight == 0:
            continue
        if name in counts:
            scale = term.weight * processes / counts[name]
        else:  # known only after the forward pass: normalized separately
            count = term.count
            count = paddle.clip(count, min=1) if isinstance(count, paddle.Tensor) else max(count, 1)
            scale = term.weight / (count * accumulation_steps)
        parts.append(term.sum * scale)
    return parts[0] if len(parts) == 1 else paddle.add_n(parts)


def accumulation_groups(batches: Iterator[Any], size: int, groups: int) -> Iterator[list[Any]]:
    """``groups`` lists of ``size`` consecutive micro-batches."""
    for _ in range(groups):
        yield [next(batches) for _ in range(size)]


def step_seed(seed: int, update: int, rank_number: int, micro: int) -> int:
    """A seed for one micro-batch's forward pass, well spread over 31 bits (SplitMix64's finaliser)."""
    mask = (1 << 64) - 1
    state = 0
    for part in (seed, update, rank_number, micro):
        state = (state ^ part) + 0x9E3779B97F4A7C15 & mask
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
        state ^= state >> 31
    return state >> 33
