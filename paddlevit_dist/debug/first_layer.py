"""Which layer of a run that is about to end was the first that is not finite, and of which samples."""

import copy
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..checkpoint.store import host_values
from ..data.loader import DeviceLoader, describe_sample
from ..data.sampler import SampleKey
from ..distributed import all_gather, communicates_in_forward, rank, running_statistics, world_size
from ..engine.multi_tensor import collect_gradients
from ..engine.nan_guard import BufferSnapshot, not_finite
from ..engine.step import COUNTS, CountingCollate, compute_loss, step_seed
from ..engine.trainer import Trainer
from ..runtime.paddle_versions import as_written
from ..runtime.printing import one_line
from ..tasks.task import StepPosition
from .layer_watch import BadTensor, LayerWatch, first_operation

_MOST_SHOWN = 20


class NotFinite(NamedTuple):
    """Finding of one micro-batch of one rank, both counted from 0.

    Attributes:
        samples: a line for each whose values are not finite.
        only: whether these are known, and not just all of the micro-batch.
    """

    micro: int
    rank: int
    finding: BadTensor
    operation: str | None
    samples: list[str]
    only: bool


class FirstLayer:
    """Computes an update that ends the run once more, forward and backward, and looks at each layer. Every rank has
    one.

    Called with what the update was computed of: micro-batches, step and normalizers, on every rank, before anything
    else has changed weights or precision. Returns lines about what is found.
    """

    def __init__(self, run: Trainer) -> None:
        self._run = run

    def __call__(self, batches: Sequence[dict[str, Any]], step: StepPosition, counts: dict[str, Any]) -> list[str]:
        model = self._run.model
        of_ranks = all_gather(not_finite(host_values(model.state_dict())))
        broken = next(filter(None, of_ranks), None)
        if broken is not None:
            return [f"weight '{broken}' is not finite before the update"]
        # Whether ranks communicate in a pass: then every one makes the same.
        self._exchanges = communicates_in_forward(model) or (self._run.task.communicates_in_step and world_size() > 1)
        statistics = BufferSnapshot(running_statistics(model))
        found: list[NotFinite] = []
        try:
            with as_written():
                keys = self._keys(step)
                for micro, (batch, micro_keys) in enumerate(zip(batches, keys)):
                    this = self._look(batch, micro_keys, step._replace(micro=micro), counts)
                    found += [] if this is None else [this]
            told = [] if found else self._overflowing()
        except Exception as error:  # the other ranks wait, and that the run has diverged is still to be told
            told = [f"rank {rank()} could not find the layer: {one_line(error)[:200]}"]
        finally:
            statistics.restore()
            self._clear_gradients()
        gathered = [item for items in all_gather(found) for item in items]
        others = [line for lines in all_gather(told) for line in lines]
        if not gathered:
            return others[:1] or ["everything is finite when it is computed again: an operation is not repeatable"]
        gathered.sort(key=lambda item: (item.micro, item.finding.order, item.rank))
        return [*self._log(gathered[0]), *(f"also in {_place(item)}: {item.finding.what}" for item in gathered[1:])]

    def _keys(self, step: StepPosition) -> list[list[SampleKey]]:
        """Which readings this rank's micro-batches of the update are of. It is judged before it is counted or, on a
        GPU, before the next one is."""
        sampler = self._run.sampler
        is_counted = self._run.schedule.update > step.update
        readings = copy.copy(sampler).batches(step.epoch, sampler.consumed_before if is_counted else sampler.consumed)
        return list(itertools.islice(readings, sampler.accumulation_steps))

    def _look(
        self, batch: dict[str, Any], keys: list[SampleKey], step: StepPosition, counts: dict[str, Any]
    ) -> NotFinite | None:
        finding = self._pass(batch, len(keys), step, counts)
        if finding is None:
            return None
        operation = None
        if not self._exchanges:  # it raises in the middle of a pass, and the other ranks would wait
            operation = first_operation(self._run.model, lambda: self._pass(batch, len(keys), step, counts))
        rows, only = finding.rows, True
        if rows is None and len(keys) > 1 and not self._exchanges:
            rows = [row for row, key in enumerate(keys) if self._is_bad_alone(key, step, counts)]
        if not rows:
            rows, only = list(range(len(keys))), len(keys) == 1
        samples = self._run.datasets["train"]
        names = [f"{keys[row].index} {one_line(describe_sample(samples, keys[row].index))}" for row in rows]
        return NotFinite(step.micro, rank(), finding, operation, names, only)

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
        """Forward and backward of a micro-batch, without the other ranks; the first tensor that is not finite."""
        run = self._run
        model, precision = run.model, run.precision
        self._clear_gradients()
        paddle.seed(step_seed(run.config.SEED, step.update, rank(), step.micro))
        watch = LayerWatch(model, samples)
        try:
            for name, value in batch.items():
                if isinstance(value, paddle.Tensor):
                    watch.look(value, f"the input '{name}'")
            with precision.autocast():
                terms = run.task.train_step(model, dict(batch), step)
                loss = compute_loss(terms, counts, run.config.TRAIN.ACCUM_ITER, world_size())
            for name, term in terms.items():
                if term.weight:
                    watch.look(term.sum, f"the term '{name}' of the loss")
            watch.look(loss, "the loss")
            if watch.found is None or self._exchanges:  # another rank may wait in its backward pass
                precision.backward(loss)
                watch.look_at_gradients(model)
            return watch.found
        finally:
            watch.close()

    def _clear_gradients(self) -> None:
        for parameter in self._run.model.parameters():
            parameter.clear_gradient(False)

    def _overflowing(self) -> list[str]:
        """Whether the gradients are finite, and their norm is not."""
        if np.isfinite(collect_gradients([p for p in self._run.model.parameters() if not p.stop_gradient]).norm()):
            return []
        return ["every gradient is finite, but the squares for their norm are too large for float32"]

    def _log(self, first: NotFinite) -> list[str]:
        finding = first.finding
        several = world_size() > 1 or self._run.config.TRAIN.ACCUM_ITER > 1
        place = f"{_place(first)}: " if several else ""
        lines = [f"{place}{finding.what} is not finite: {finding.bad:,} of {finding.size:,} values"]
        if first.operation:
            lines.append(f"  Paddle's check of operations stops at: {first.operation}")
        plural = "s" if len(first.samples) > 1 else ""
        lines.append(
            f"  {len(first.samples)} sample{plural}{'' if first.only else ' of this micro-batch, any of them'}:"
        )
        lines += [f"    {name}" for name in first.samples[:_MOST_SHOWN]]
        if len(first.samples) > _MOST_SHOWN:
            lines.append(f"    and {len(first.samples) - _MOST_SHOWN:,} more")
        return lines


def _place(found: NotFinite) -> str:
    return f"rank {found.rank}, micro-batch {found.micro}"
