"""One optimizer step: forward and backward of its micro-batches, normalization by global counts, clipping, update."""

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.profiler import RecordEvent

from ..data.loader import DeviceLoader
from ..distributed import (
    StopRequested,
    all_reduce_sum,
    broadcast_statistics,
    communicates_in_forward,
    host_barrier,
    rank,
    running_statistics,
    stops,
    without_synchronization,
    world_size,
)
from ..launch import status
from ..registry.required_methods import is_builtin
from ..runtime import paddle_versions
from ..runtime.errors import UserError
from ..runtime.printing import count
from ..runtime.transfers import is_on_gpu
from ..tasks import seeding
from ..tasks.loss_checks import (
    has_own_step,
    list_constant_terms,
    list_missing_terms,
    read_normalizers,
    require_divisors,
    require_terms,
)
from ..tasks.step_types import LossTerm, Number, StepPosition
from ..tasks.task import Task
from ..tasks.task_state import TaskState, WeightAverage
from .captured_passes import CapturedPasses, average_over_ranks
from .freezing import ParameterRates, describe_names
from .multi_tensor import GradientList, Optimizer, clipping_factor
from .nan_guard import BufferSnapshot, NonFiniteGuard
from .precision import TrainingPrecision
from .queued_step import QueuedStep

COUNTS = "__counts__"  # key of a batch's normalizers, float64 (terms,), in the order of the task's ``normalizer_names``


class CountingCollate:
    """The task's ``collate``, which also computes the batch's normalizers in the loader process."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Collate samples and add their normalizers under the key ``COUNTS``, if they differ between batches."""
        batch = self.task.collate(samples)
        if self.task.traits.normalizers_per_sample is None:
            numbers = read_normalizers(self.task.loss_normalizers(batch), self.task)
            batch[COUNTS] = np.array(numbers, dtype=np.float64)
        return batch


class StepResult(NamedTuple):
    """Result of a completed optimizer step.

    Attributes:
        terms: the loss terms of each micro-batch, by name.
        is_finite: whether all gradients were finite, so that the step changed the weights.
        gradient_norm: norm of all gradients before clipping; equal on all ranks.
    """

    terms: list[dict[str, LossTerm]]
    is_finite: bool
    gradient_norm: float


class _PendingStep(NamedTuple):
    """An optimizer step in flight: its passes are queued, and the host does not know yet whether it is finite.

    Attributes:
        counts: global normalizers by loss term.
        buffers: running statistics from before the step.
        scale: the loss scale that its backward passes used.
    """

    batches: list[dict[str, paddle.Tensor]]
    step: StepPosition
    counts: dict[str, Number]
    terms: list[dict[str, LossTerm]]
    buffers: BufferSnapshot
    scale: float


class TrainStep:
    """Runs optimizer steps: turns the micro-batches of each into new weights.

    A step whose loss or gradients are not finite, on any rank, is skipped: it changes neither weights, moments, buffers
    nor the weight average. The norm of all gradients decides this, the only number of a step that the host waits for.
    On a GPU it waits after it has queued the passes of the next step, which it queues again if the norm is not finite.
    Norm, clipping, update and average are few operations, because the GPU is otherwise idle at that moment.

    Args:
        model: the data-parallel wrapper, or the bare model of a single process.
        seed: seeds dropout and other random operations of the forward passes.
        samples_per_update: samples of one step over all processes and micro-batches.
        accumulation_steps: micro-batches of one step on each rank.
        gradient_clip: largest norm of the gradients; None: gradients are not clipped.
        clips_each: whether it limits the norm of each gradient; otherwise that of all together.
        nan_guard: counts skipped steps and ends the run after too many; None: the first one ends the run.
        on_host: whether the model is in host memory; None: ask Paddle.
        rates: freezes what a step does not train; None: each step trains all.
        average: moves with each step; None: there is none.
        own: the task's own state; None: it has none.
        captures: whether the passes are to be captured as a graph (TRAIN.CAPTURE), see ``captured``.
        bucket_megabytes: size in MiB of the buckets in which gradients of captured passes are averaged over ranks.
        log: receives lines about captured passes, and about keys and loss terms without effect in a user's
            ``train_step``.

    Attributes:
        captured: repeats the passes, from the second step on where they can be captured; None: they are not to be.
        finite: whether the last completed step changed the weights.
        gradient_norm: norm of all gradients of that step before clipping; equal on all ranks.
        before_clipping: called once the gradients are computed, if they are finite. If it is set, the host waits for
            the gradients in each step.
    """

    def __init__(
        self,
        task: Task,
        model: paddle.nn.Layer,
        optimizer: Optimizer,
        precision: TrainingPrecision,
        *,
        seed: int,
        samples_per_update: int,
        accumulation_steps: int,
        gradient_clip: float | None,
        clips_each: bool = False,
        nan_guard: NonFiniteGuard | None = None,
        on_host: bool | None = None,
        rates: ParameterRates | None = None,
        average: WeightAverage | None = None,
        own: TaskState | None = None,
        captures: bool = False,
        bucket_megabytes: int = 25,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.task = task
        self.model = model
        self.optimizer = optimizer
        self.precision = precision
        self.seed = seed
        self.samples_per_update = samples_per_update
        self.accumulation_steps = accumulation_steps
        self.parameters = [p for p in model.parameters() if not p.stop_gradient]
        self.buffers = [each for layer in (model, *(own.layers if own else ())) for each in running_statistics(layer)]
        self.on_host = not is_on_gpu() if on_host is None else on_host
        self.gradient_clip, self.clips_each = gradient_clip, clips_each
        self.rates, self.average, self.own = rates, average, own
        self._gradients = GradientList(self.parameters)
        self.nan_guard = NonFiniteGuard() if nan_guard is None else nan_guard
        self._forward_communicates = communicates_in_forward(model)
        self.finite = True
        self.gradient_norm = 0.0
        self.before_clipping: Callable[[], None] | None = None
        self._queued: tuple[QueuedStep, _PendingStep] | None = None
        self._is_own = not is_builtin(type(task))
        named = {name.removeprefix("_layers."): parameter for name, parameter in model.named_parameters()}
        self._listed = {name: p for name, p in named.items() if not p.stop_gradient}
        self._fixed = {name: p for name, p in named.items() if p.stop_gradient}
        self._has_terms = False  # whether the task has returned what it must
        self.bucket_bytes = bucket_megabytes << 20
        self._log = log
        self.captured: CapturedPasses | None = None
        if captures:
            networks = [model, *(own.layers if own else ())]
            passes = self._compute_alone, networks, task, self._gradients, self.buffers
            self.captured = CapturedPasses(*passes, in_half=precision.enabled, log=log)
        self._first_counts: dict[str, float] = {}  # normalizers of the first micro-batch, if they are counted

    def __call__(self, batches: list[dict[str, paddle.Tensor]], step: StepPosition, learning_rate: float) -> list[dict]:
        """Run one step, wait for it and return the loss terms of its micro-batches; see ``launch``."""
        return [*self.launch(batches, step, learning_rate), *self.flush()][-1].terms

    def launch(
        self, batches: list[dict[str, paddle.Tensor]], step: StepPosition, learning_rate: float
    ) -> list[StepResult]:
        """Launch one optimizer step. Every rank must call this.

        Returns the result of this step on a CPU, and of the previous step, if any, on a GPU. Raises UserError if too
        many consecutive steps were not finite (TRAIN.MAX_SKIPPED_UPDATES).

        Args:
            batches: this rank's ``accumulation_steps`` micro-batches, ``collate``'s arrays as tensors.
            step: position of the first micro-batch in the run.
        """
        step = step._replace(learning_rate=learning_rate)
        earlier = self._change_frozen(step) if self.rates is not None and self.rates.begin(step) else []
        counts = self._global_normalizers(batches)
        pending = self._run_passes(batches, step, counts)
        results = self.flush()
        if results and (not results[0].is_finite or pending.scale != self.precision.scale):
            self._clear_gradients()
            if results[0].is_finite:  # otherwise _finish has already restored the buffers
                pending.buffers.restore()
            pending = self._run_passes(batches, step, counts)
        if self.own is not None:
            self.own.before_update(step)
        queued = self._queue_step(learning_rate)
        if queued is not None:
            self._queued = queued, pending
        else:
            with contextlib.nullcontext() if self.on_host else status.waiting_for_device():
                norm = self._gradients.norm() / np.float32(self.precision.scale)
            if math.isfinite(norm):
                self._update(norm, learning_rate)
            results.append(self._finish(norm, pending))
        self._clear_gradients()
        return earlier + results

    def _change_frozen(self, step: StepPosition) -> list[StepResult]:
        """Freeze other parameters from this step on; return the result of the step before, if it is in flight."""
        assert self.rates is not None
        results = self.flush()  # it may restore statistics
        self._wait_for_ranks(True)
        broadcast_statistics(self.model)  # a norm that is frozen now keeps rank 0's statistics
        self._log(f"epoch {step.epoch}, after {count(step.update, 'update')}: {self.rates.freeze()} (parameter_groups)")
        self._gradients.clear(keeps_memory=False)
        if self.captured is not None:
            self.captured.forget()
        self._forward_communicates = communicates_in_forward(self.model)
        return results

    def flush(self) -> list[StepResult]:
        """Wait for the step launched last and return its result, if it is in flight. Every rank must call this.

        Raises UserError if too many consecutive steps were not finite (TRAIN.MAX_SKIPPED_UPDATES).
        """
        if self._queued is None:
            return []
        (queued, pending), self._queued = self._queued, None
        with status.waiting_for_device():
            norm = queued.wait()
        return [self._finish(norm, pending)]

    def _checks_divisors(self) -> bool:
        """Return whether the divisors of the next terms are compared with the normalizers: a user's first ones."""
        return not self._has_terms and has_own_step(self.task)

    def _global_normalizers(self, batches: list[dict[str, paddle.Tensor]]) -> dict[str, Number]:
        """Sum the normalizers of the step over all ranks and micro-batches, with 1 in place of 0."""
        if self.task.traits.normalizers_per_sample is not None:
            per_sample = self.task.traits.normalizers_per_sample
            if self._checks_divisors():
                part = self.samples_per_update / (self.accumulation_steps * world_size())
                self._first_counts = {name: n * part for name, n in per_sample.items()}
            return {name: n * self.samples_per_update for name, n in per_sample.items()}
        self._wait_for_ranks(True)
        parts = [batch.pop(COUNTS) for batch in batches]
        if self._checks_divisors():
            self._first_counts = dict(zip(self.task.traits.normalizer_names, parts[0].tolist()))
        total = paddle.add_n(parts)  # (terms,) float64
        total = all_reduce_sum(total)
        # Not max(total, 1): class weights may sum to less than 1.
        total = paddle.where(total > 0, total, paddle.ones_like(total)).astype("float32")
        return {name: total[position] for position, name in enumerate(self.task.traits.normalizer_names)}

    def _run_passes(
        self, batches: list[dict[str, paddle.Tensor]], step: StepPosition, counts: dict[str, Number]
    ) -> _PendingStep:
        before, captured = BufferSnapshot(self.buffers), self.captured
        stays = self._has_terms and (self.own is None or self.own.keeps_gradients(step))
        if captured is not None and stays:  # what a first step caches and searches is not captured
            captured.prepare(batches[0], step, counts, step_seed(self.seed, step.update, rank(), 0))
        is_captured = captured is not None and captured.is_on
        outputs = []
        for micro, batch in enumerate(batches):
            # Dropout and the like depend on this seed only, so checkpoints need no generator state.
            seed = step_seed(self.seed, step.update, rank(), micro)
            paddle.seed(seed)
            is_last, position = micro == len(batches) - 1, step._replace(micro=micro)
            # A forward pass that reads from a GPU waits for the operations queued before it, such as an all-reduce.
            exchanges = self._forward_communicates or self.task.traits.normalizers_per_sample is None
            status.set_detail("in its forward pass", may_wait=exchanges and not self.on_host)
            self._wait_for_ranks(self._forward_communicates)
            with seeding.drawing if self._is_own else contextlib.nullcontext():
                seeding.seed_libraries(seed, with_paddle=False)
                terms = captured.run(batch, position, counts) if captured is not None and is_captured else None
                if terms is None:
                    is_synchronized = is_last and not is_captured
                    with contextlib.nullcontext() if is_synchronized else without_synchronization(self.model):
                        terms = self._compute(batch, position, counts, is_synchronized)
            outputs.append(terms)
        if is_captured:
            self._wait_for_ranks(True)
            average_over_ranks(self._gradients.present(), self.bucket_bytes)
        status.set_detail("in its optimizer step")
        return _PendingStep(batches, step, counts, outputs, before, self.precision.scale)

    def _compute(
        self, batch: dict[str, paddle.Tensor], step: StepPosition, counts: dict[str, Number], synchronizes: bool
    ) -> dict[str, LossTerm]:
        """Run the forward and the backward pass of a micro-batch, and return its loss terms."""
        with self.precision.autocast():
            terms = self.task.train_step(self.model, batch, step)
            if self._is_own:
                self._require_same_learn()
            if not self._has_terms:
                require_terms(terms, type(self.task))
                if self._checks_divisors():
                    require_divisors(terms, self.task, self._first_counts)
                    for line in (*list_missing_terms(terms, self.task), *list_constant_terms(terms, self.task)):
                        self._log(line)
                self._has_terms = True
            loss = compute_loss(terms, counts, self.accumulation_steps, world_size())
        status.set_detail("in its backward pass", may_wait=not self.on_host)
        self._wait_for_ranks(synchronizes or self._forward_communicates)
        self.precision.backward(loss)
        return terms

    def _require_same_learn(self) -> None:
        """Check what ``train_step`` has thawed or frozen. Raises UserError if that has another effect than it seems."""
        changed = [name for name, parameter in self._fixed.items() if not parameter.stop_gradient]
        otherwise = ""
        if not changed and isinstance(self.model, paddle.DataParallel) and not self.model.find_unused_parameters:
            changed = [name for name, parameter in self._listed.items() if parameter.stop_gradient]
            otherwise = "; or set TRAIN.FIND_UNUSED_PARAMETERS True"
        if changed:
            raise UserError(
                f"{type(self.task).__name__}.train_step freezes or thaws {describe_names(changed)}, but what learns "
                "was listed when the run began: derive the task from ParameterGrouping, and give the group of these "
                "parameters a function as learning_rate, which returns None in steps in which it is frozen"
                f"{otherwise}"
            )

    def _compute_alone(
        self, batch: dict[str, paddle.Tensor], step: StepPosition, counts: dict[str, Number]
    ) -> dict[str, LossTerm]:
        """Run the passes of a micro-batch without the other ranks."""
        with without_synchronization(self.model):
            return self._compute(batch, step, counts, False)

    def _clear_gradients(self) -> None:
        if self.captured is not None and self.captured.is_on:
            self._gradients.clear(keeps_memory=True)
        else:
            self.optimizer.clear_grad(False)

    def _queue_step(self, learning_rate: float) -> QueuedStep | None:
        """Queue the update after the gradients; return None if the host has to check the gradients first."""
        if self.on_host or self.before_clipping or not (self.average is None or self.average.is_all_float32):
            return None
        step = self.optimizer.foreach_step()
        if step is None:
            return None
        present = self._gradients.present()
        step_gradients = step.gradients()
        if not present or not step.accepts(step_gradients):
            return None
        queued = QueuedStep(
            self._gradients,
            present,
            step,
            step_gradients,
            scale=self.precision.scale,
            clip=self.gradient_clip,
            clips_each=self.clips_each,
            learning_rate=learning_rate,
            average=self.average,
        )
        if self.own is not None:
            self.own.update(queued.is_bad)
        return queued

    def _update(self, norm: np.float32, learning_rate: float) -> None:
        """Update weights, moments and average with gradients of this norm, which still contain the loss scale."""
        if self.before_clipping:
            self.before_clipping()
        if self.gradient_clip and self.clips_each:
            scale = self.precision.scale
            if scale != 1 or norm + np.float32(1e-6) > self.gradient_clip:  # no gradient is longer than all together
                self._gradients.clip_each(self._gradients.present(), self.gradient_clip, scale, self.on_host)
        else:
            factor = clipping_factor(norm, self.gradient_clip) / np.float32(self.precision.scale)
            if factor != 1:
                self._gradients.scale(factor)
        self.optimizer.set_lr(learning_rate)
        self.optimizer.step()
        if self.average is not None:
            self.average.update()
        if self.own is not None:
            self.own.update()

    def _finish(self, norm: np.float32, pending: _PendingStep) -> StepResult:
        """Record whether a step changed the weights; if not, restore the running statistics."""
        self.gradient_norm, self.finite = float(norm), math.isfinite(norm)
        if not self.finite:
            pending.buffers.restore()
            paddle_versions.create_accumulators(self.optimizer)  # for checkpoints before the first step
        own = pending.terms if not self.finite and has_own_step(self.task) else ()
        self.nan_guard.count(self.finite, pending.step, pending.batches, pending.counts, own)
        self.precision.update(self.finite)
        return StepResult(pending.terms, self.finite, self.gradient_norm)

    def _wait_for_ranks(self, communicates: bool) -> None:
        """On CPUs, wait for all ranks before a collective: gloo fails if a rank waits in one for more than 30 s."""
        if communicates and self.on_host and world_size() > 1:
            host_barrier()


def compute_loss(
    terms: dict[str, LossTerm], counts: dict[str, Number], accumulation_steps: int, processes: int
) -> paddle.Tensor:
    """Compute a micro-batch's part of the loss: the sum of weight x sum x processes / global count over all terms.

    Data parallelism averages gradients over ranks. The factor ``processes`` cancels that average, so the gradients
    equal those for one process with the whole batch, even if ranks hold different numbers of samples. ``counts`` are
    summed over all ranks and micro-batches; a term without one, or that is local, is divided by its own count and by
    ``accumulation_steps``. Returns a scalar float tensor.
    """
    parts = []
    for name, term in terms.items():
        if term.weight == 0:
            continue
        if name in counts and not term.is_local:
            scale = term.weight * processes / counts[name]
        else:  # known only after the forward pass: normalized separately
            count = term.count
            count = paddle.clip(count, min=1) if isinstance(count, paddle.Tensor) else max(count, 1)
            scale = term.weight / (count * accumulation_steps)
        parts.append(term.sum * scale)
    # Not ``add_n``: of three tensors or more its kernel copies addresses from host memory, which is free again when a
    # graph repeats the copy.
    return functools.reduce(operator.add, parts)


def accumulation_groups(batches: Iterator[Any], size: int, groups: int) -> Iterator[list[Any]]:
    """Yield ``groups`` lists of ``size`` consecutive micro-batches each."""
    for _ in range(groups):
        yield [next(batches) for _ in range(size)]


def synchronized_groups(loader: DeviceLoader, batches: Iterator[Any], size: int, groups: int) -> Iterator[list[Any]]:
    """Yield lists of ``size`` micro-batches of this rank for each of the next steps, and stop if asked to.

    Before the first step, ranks wait for each other and leave together if one is asked to stop. Later, only the single
    process of a one-process run can leave while it waits for data, because other ranks may already be in a collective.
    Raises StopRequested, on all ranks.
    """
    for number in range(groups):
        leaves = False
        try:
            with RecordEvent("waiting for data"):
                group = [next(batches) for _ in range(size)]
            leaves = number == 0 and stops.stop_requested()
        except StopRequested:
            if number:
                raise
            leaves = True
        # Wait for a slow first batch here, where all ranks can still leave together.
        if number == 0 and stops.any_rank_stopping(leaves):
            raise StopRequested
        loader.may_leave = world_size() == 1
        yield group
    loader.may_leave = True


def step_seed(seed: int, update: int, rank_number: int, micro: int) -> int:
    """Mix a micro-batch's position into a seed in [0, 2**31) by SplitMix64's finalizer (Steele et al., 2014)."""
    mask = (1 << 64) - 1
    state = 0
    for part in (seed, update, rank_number, micro):
        state = (state ^ part) + 0x9E3779B97F4A7C15 & mask
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
        state ^= state >> 31
    return state >> 33
