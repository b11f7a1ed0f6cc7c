"""Find the first layer and the samples with non-finite values after a run has diverged."""

import copy
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...core.checkpoint.store import host_values
from ...core.data.loader import DeviceLoader
from ...core.data.sampler import SampleKey, SampleKeys
from ...core.distributed import all_gather, communicates_in_forward, rank, running_statistics, world_size
from ...core.engine.multi_tensor import GradientList
from ...core.engine.nan_guard import BufferSnapshot, not_finite
from ...core.engine.step import COUNTS, CountingCollate, compute_loss, step_seed
from ...core.engine.trainer import Trainer
from ...core.runtime.paddle_versions import as_written
from ...core.runtime.printing import one_line
from ...core.tasks.opened_dataset import describe_sample
from ...core.tasks.step_types import StepPosition
from .layer_watch import BadTensor, LayerWatch, find_first_operation

_MOST_SHOWN = 20


class NonFiniteResult(NamedTuple):
    """Non-finite values in one micro-batch of one rank, both counted from 0."""

    micro: int
    rank: int
    finding: BadTensor  # the first non-finite tensor
    operation: str | None  # the first operation of Paddle with a non-finite result; None if it is not known
    samples: list[str]  # a line for each affected sample
    only: bool  # whether the affected samples are known; otherwise ``samples`` has the whole micro-batch


class FirstLayerFinder:
    """Repeats the update that ends a run, forward and backward, and checks the output of each layer.

    It is called with the update's micro-batches, step and normalizers, before weights or precision change.
    """

    def __init__(self, run: Trainer) -> None:
        self._run = run

    def __call__(self, batches: Sequence[dict[str, Any]], step: StepPosition, counts: dict[str, Any]) -> list[str]:
        """Return the log lines. Every rank must call this."""
        model = self._run.model
        bad_weights = all_gather(not_finite(host_values(model.state_dict())))
        bad_weight = next(filter(None, bad_weights), None)
        if bad_weight is not None:
            return [f"weight '{bad_weight}' is not finite before the update"]
        # Ranks that communicate in a pass must all run the same passes.
        self._communicates = communicates_in_forward(model) or (
            self._run.task.traits.communicates_in_step and world_size() > 1
        )
        statistics = BufferSnapshot(running_statistics(model))
        results: list[NonFiniteResult] = []
        try:
            with as_written():
                keys = self._get_sample_keys(step)
                for micro, (batch, micro_keys) in enumerate(zip(batches, keys)):
                    result = self._check_batch(batch, micro_keys, step._replace(micro=micro), counts)
                    results += [] if result is None else [result]
            norm = 0.0 if results else GradientList(self._run.model.parameters()).norm()
            lines = [] if np.isfinite(norm) else ["every gradient is finite, but their norm overflows float32"]
        except Exception as error:  # the other ranks wait, and the divergence still has to be reported
            lines = [f"rank {rank()} could not find the layer: {one_line(error)[:200]}"]
        finally:
            statistics.restore()
            self._clear_gradients()
        gathered = [item for items in all_gather(results) for item in items]
        other_lines = [line for rank_lines in all_gather(lines) for line in rank_lines]
        if not gathered:
            return other_lines[:1] or ["a repetition of the update is finite: some operation is not deterministic"]
        gathered.sort(key=lambda item: (item.micro, item.finding.order, item.rank))
        also = (f"also in {_format_place(item)}: {item.finding.what}" for item in gathered[1:])
        return [*self._format_result(gathered[0]), *also]

    def _get_sample_keys(self, step: StepPosition) -> list[SampleKeys]:
        """Return the sample keys of this rank's micro-batches of the update."""
        sampler = self._run.sampler
        # On a GPU, an update is checked after it was counted.
        is_counted = self._run.schedule.update > step.update
        readings = copy.copy(sampler).batches(step.epoch, sampler.consumed_before if is_counted else sampler.consumed)
        return list(itertools.islice(readings, sampler.accumulation_steps))

    def _check_batch(
        self, batch: dict[str, Any], keys: SampleKeys, step: StepPosition, counts: dict[str, Any]
    ) -> NonFiniteResult | None:
        finding = self._pass(batch, len(keys), step, counts)
        if finding is None:
            return None
        operation = None
        if not self._communicates:  # the check raises within a pass, and other ranks would wait
            operation = find_first_operation(self._run.model, lambda: self._pass(batch, len(keys), step, counts))
        rows, only = finding.rows, True
        if rows is None and len(keys) > 1 and not self._communicates:
            rows = [row for row, key in enumerate(keys) if self._is_bad_alone(key, step, counts)]
        if not rows:
            rows, only = list(range(len(keys))), len(keys) == 1
        samples = self._run.datasets["train"]
        names = [f"{keys[row].index} {one_line(describe_sample(samples, keys[row].index))}" for row in rows]
        return NonFiniteResult(step.micro, rank(), finding, operation, names, only)

    def _is_bad_alone(self, key: SampleKey, step: StepPosition, counts: dict[str, Any]) -> bool:
        run = self._run
        collate = CountingCollate(run.task)
        seed, epochs = run.config.SEED, run.config.TRAIN.NUM_EPOCHS
        (batch,) = DeviceLoader(run.datasets["train"], [[key]], collate, num_workers=0, seed=seed, epochs=epochs)
        batch.pop(COUNTS, None)
        return self._pass(batch, 1, step, counts) is not None

    def _pass(
        self, batch: dict[str, Any], samples: int, step: StepPosition, counts: dict[str, Any]
    ) -> BadTensor | None:
        """Run forward and backward of a micro-batch on this rank, and return the first non-finite tensor."""
        run = self._run
        model, precision = run.model, run.precision
        self._clear_gradients()
        paddle.seed(step_seed(run.config.SEED, step.update, rank(), step.micro))
        watch = LayerWatch(model, samples)
        try:
            for name, value in batch.items():
                if isinstance(value, paddle.Tensor):
                    watch.check(value, f"the input '{name}'")
            with precision.autocast():
                terms = run.task.train_step(model, dict(batch), step)
                loss = compute_loss(terms, counts, run.config.TRAIN.ACCUM_ITER, world_size())
            for name, term in terms.items():
                if term.weight:
                    watch.check(term.sum, f"the term '{name}' of the loss")
            watch.check(loss, "the loss")
            if watch.first_bad is None or self._communicates:  # another rank may wait in its backward pass
                precision.backward(loss)
                watch.check_gradients(model)
            return watch.first_bad
        finally:
            watch.close()

    def _clear_gradients(self) -> None:
        for parameter in self._run.model.parameters():
            parameter.clear_gradient(False)

    def _format_result(self, first: NonFiniteResult) -> list[str]:
        finding = first.finding
        several = world_size() > 1 or self._run.config.TRAIN.ACCUM_ITER > 1
        place = f"{_format_place(first)}: " if several else ""
        lines = [f"{place}{finding.what} is not finite: {finding.bad:,} of {finding.size:,} values"]
        if first.operation:
            lines.append(f"  Paddle's check of operations stops at: {first.operation}")
        plural = "s" if len(first.samples) > 1 else ""
        note = "" if first.only else " of this micro-batch, at least one is affected"
        lines.append(f"  {len(first.samples)} sample{plural}{note}:")
        lines += [f"    {name}" for name in first.samples[:_MOST_SHOWN]]
        if len(first.samples) > _MOST_SHOWN:
            lines.append(f"    and {len(first.samples) - _MOST_SHOWN:,} more")
        return lines


def _format_place(result: NonFiniteResult) -> str:
    return f"rank {result.rank}, micro-batch {result.micro}"
