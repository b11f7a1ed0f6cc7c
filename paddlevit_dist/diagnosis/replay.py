"""``-replay=FILE``: run an update that was not finite once more, and name the first layer that is not finite, and its
samples."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..checkpoint.load import load_weights
from ..checkpoint.store import host_values
from ..config.key import COMMAND_LINE
from ..contracts.adapter import adopt
from ..contracts.dataset import Samples
from ..contracts.task import Step, Task, make_task
from ..engine import gpu_memory
from ..engine.finite import not_finite
from ..engine.multi_tensor import gradients_of
from ..engine.optimizer import freeze
from ..engine.precision import Precision
from ..engine.steps import COUNTS, CountingCollate, loss_of, step_seed
from ..loading.loader import Loader
from ..loading.sampler import SampleKey
from ..models import prepared
from ..observe.progress import write_line
from ..observe.record import cache_folder
from ..parallel import (
    all_gather,
    all_reduce_sum,
    batch_norm_kind,
    convert_batch_norm,
    gpu,
    is_main,
    launch_workers,
    plan_processes,
    rank,
    world_size,
)
from ..runtime.errors import UserError
from .evidence import FOLDER, Skipped, read_skipped, weights_file
from .layer_watch import BadTensor, LayerWatch, first_operation

_MOST_SHOWN = 20


class NotFinite(NamedTuple):
    """What one micro-batch of one rank, both counted from 0, shows.

    Attributes:
        keys: of its samples whose values are not finite.
        only: whether these are known, and not just all of the micro-batch.
    """

    micro: int
    rank: int
    finding: BadTensor
    operation: str | None
    keys: list[SampleKey]
    only: bool


class Replay:
    """One update, forward and backward, without its step. Every rank makes one, with the same arguments.

    With as many processes as the run had, each computes what the rank of its number did. Otherwise each takes every
    n-th rank's part, one after the other, and a synchronised batch normalisation sees only the rows of one.

    Args:
        samples: the training samples.
        skipped: the update.
        weights: the model's, from before it.
    """

    def __init__(self, config: Any, task: Task, samples: Any, skipped: Skipped, weights: str) -> None:
        self.task = adopt(task, Task)
        self.samples = adopt(samples, Samples)
        self.skipped = skipped
        self.seed = skipped.seed
        gpu.prepare(config.TRAIN.TF32, config.DETERMINISTIC, task.fixed_shapes)
        paddle.seed(self.seed)
        self.model = prepared(task.build_model())
        freeze(self.model, config.TRAIN.FREEZE)
        load_weights(self.model, weights, minimum_loaded=1.0)
        # Whether layers may communicate in a pass.
        processes, batch = len(skipped.keys), config.DATA.BATCH_SIZE
        kind, _ = batch_norm_kind(config.TRAIN.BATCH_NORM, task.batch_norm, processes, batch)
        self.exchanges = kind == "sync" and world_size() == len(skipped.keys) > 1
        if self.exchanges:
            self.model = convert_batch_norm(self.model)
        self.model.train()
        self.precision = Precision(config.AMP, config.AMP_DTYPE, config.AMP_LEVEL)

    def run(self) -> list[str]:
        """Lines about what is found. Every rank must call this."""
        broken = not_finite(host_values(self.model.state_dict()))
        if broken is not None:
            return [f"weight '{broken}' is not finite before the update"]
        parts = range(rank(), len(self.skipped.keys), world_size())
        keys = [micro_keys for number in parts for micro_keys in self.skipped.keys[number]]
        batches = self._batches(keys)
        counts = self._counts(batches)
        places = [(number, micro) for number in parts for micro in range(self.skipped.accumulation_steps)]
        found, lost = [], []
        for (number, micro), batch, micro_keys in zip(places, batches, keys):
            this = self._look(batch, micro_keys, number, micro, counts)
            found += [this] if this is not None else []
        if not found:
            lost = self._overflowing()
        gathered = [item for items in all_gather(found) for item in items]
        overflows = [line for lines in all_gather(lost) for line in lines]
        if not gathered:
            return overflows[:1] or [
                f"everything in update {self.skipped.update} is finite here: it was computed with other weights, on "
                "another device or in another precision, or an operation is not repeatable"
            ]
        first = min(gathered, key=lambda item: (item.micro, item.finding.order, item.rank))
        others = [item for item in gathered if item is not first]
        return [*self._told(first), *(f"also in {_place(item)}: {item.finding.what}" for item in others)]

    def _batches(self, keys: Sequence[list[SampleKey]]) -> list[dict[str, Any]]:
        collate = CountingCollate(self.task)
        return list(Loader(self.samples, keys, collate, num_workers=0, seed=self.seed))

    def _counts(self, batches: list[dict[str, Any]]) -> dict[str, Any]:
        """Normalisers of the whole update, as the run had them."""
        task = self.task
        if task.counts_per_sample is not None:
            return {name: n * self.skipped.samples_per_update for name, n in task.counts_per_sample.items()}
        total = paddle.zeros([len(task.count_names)], dtype="float64")
        for batch in batches:
            total = total + batch.pop(COUNTS)
        total = paddle.clip(all_reduce_sum(total), min=1.0).astype("float32")
        return {name: total[position] for position, name in enumerate(task.count_names)}

    def _look(
        self, batch: dict[str, Any], keys: list[SampleKey], number: int, micro: int, counts: dict[str, Any]
    ) -> NotFinite | None:
        finding = self._pass(batch, len(keys), number, micro, counts)
        if finding is None:
            return None
        self._clear_gradients()
        operation = None
        if not self.exchanges:  # it raises in the middle of a pass, and the other ranks would wait
            operation = first_operation(self.model, lambda: self._pass(batch, len(keys), number, micro, counts))
        rows, only = finding.rows, True
        if rows is None and len(keys) > 1 and not self.exchanges:
            rows = [row for row, key in enumerate(keys) if self._is_bad_alone(key, number, micro, counts)]
        if not rows:
            rows, only = list(range(len(keys))), len(keys) == 1
        self._clear_gradients()
        return NotFinite(micro, number, finding, operation, [keys[row] for row in rows], only)

    def _is_bad_alone(self, key: SampleKey, number: int, micro: int, counts: dict[str, Any]) -> bool:
        (batch,) = self._batches([[key]])
        batch.pop(COUNTS, None)
        self._clear_gradients()
        return self._pass(batch, 1, number, micro, counts) is not None

    def _clear_gradients(self) -> None:
        for parameter in self.model.parameters():
            parameter.clear_gradient(False)

    def _pass(
        self, batch: dict[str, Any], samples: int, number: int, micro: int, counts: dict[str, Any]
    ) -> BadTensor | None:
        """Forward and backward of a micro-batch; the first tensor that is not finite."""
        skipped = self.skipped
        step = Step(skipped.epoch, skipped.update - 1, skipped.total_updates, micro)
        paddle.seed(step_seed(self.seed, step.update, number, micro))
        watch = LayerWatch(self.model, samples)
        try:
            for name, value in batch.items():
                if isinstance(value, paddle.Tensor):
                    watch.look(value, f"the input '{name}'")
            with self.precision.autocast():
                terms = self.task.train_step(self.model, dict(batch), step)
                loss = loss_of(terms, counts, skipped.accumulation_steps, len(skipped.keys))
            for name, term in terms.items():
                if term.weight:
                    watch.look(term.sum, f"the term '{name}' of the loss")
            watch.look(loss, "the loss")
            if watch.found is None or self.exchanges:  # another rank may wait in its backward pass
                scaled = loss * skipped.scale if self.precision.scaler and skipped.scale else loss
                scaled.backward()
                watch.look_at_gradients(self.model)
            return watch.found
        finally:
            watch.close()

    def _overflowing(self) -> list[str]:
        """Whether the gradients are finite, and their norm is not."""
        if np.isfinite(gradients_of([p for p in self.model.parameters() if not p.stop_gradient]).norm()):
            return []
        return ["every gradient is finite, but the squares for their norm are too large for float32"]

    def _told(self, first: NotFinite) -> list[str]:
        finding = first.finding
        several = len(self.skipped.keys) > 1 or self.skipped.accumulation_steps > 1
        place = f"{_place(first)}: " if several else ""
        lines = [f"{place}{finding.what} is not finite: {finding.bad:,} of {finding.size:,} values"]
        if first.operation:
            lines.append(f"  Paddle's check of operations stops at: {first.operation}")
        plural = "s" if len(first.keys) > 1 else ""
        lines.append(f"  {len(first.keys)} sample{plural}{'' if first.only else ' of this micro-batch, any of them'}:")
        shown = first.keys[:_MOST_SHOWN]
        lines += [f"    {key.index} {self.samples.describe(key.index)}" for key in shown]
        if len(first.keys) > len(shown):
            lines.append(f"    and {len(first.keys) - len(shown):,} more")
        return lines


def _place(found: NotFinite) -> str:
    return f"rank {found.rank}, micro-batch {found.micro}"


def replay(config: Any, task: Task, samples: Any, skipped: Skipped, weights: str) -> None:
    """What each process of -replay runs."""
    with gpu_memory.explained("use the batch, the processes and the GPUs that the run had"):
        lines = Replay(config, task, samples, skipped, weights).run()
    if is_main():
        for line in lines:
            write_line(line)


def weights_for(file: Path, kept: Path, given: str | None) -> str:
    """Which weights the update is run with: those that the user names, else those that were kept.

    Raises:
        UserError: there are none.
    """
    if given is not None:
        return given
    if kept.exists():
        return str(kept)
    raise UserError(
        f"-replay={file}: the weights of that moment were not kept ({kept.name}; only those of the first update that "
        "is skipped and of the last ones are): name a checkpoint from shortly before, -pretrained=PATH"
    )


def run(run: Any) -> None:
    """Carry out -replay for a ``Configuration`` with REPLAY; writes nothing but what reading the data caches."""
    file = Path(run.values.REPLAY)
    skipped = read_skipped(file)
    given = run.values.MODEL.PRETRAINED if run.sources["MODEL.PRETRAINED"] == COMMAND_LINE else None
    weights = weights_for(file, weights_file(file.parent, skipped.first_of_row), given)
    folder = file.absolute().parent
    if folder.name == FOLDER:  # the run's own caches, wherever it is now
        run = run.changed("SAVE", str(folder.parent), "")
    ranks = len(skipped.keys)
    plan = plan_processes(run.values.NGPUS)
    if not plan.launched:
        plan = plan._replace(processes=min(plan.processes, ranks))
    task = make_task(run.values)
    samples = task.build_dataset("train", cache_folder(run.values))
    largest = max(key.index for rank in skipped.keys for micro in rank for key in micro)
    if largest >= len(samples):
        raise UserError(
            f"-replay={file}: it names sample {largest}, but there are {len(samples)}: the data are not the run's"
        )
    if plan.is_main:
        numbers = f"{ranks} rank(s) x {skipped.accumulation_steps} micro-batch(es) x {len(skipped.keys[0][0])}"
        write_line(f"replay of update {skipped.update} in epoch {skipped.epoch}, {numbers} {task.sample_name}")
        write_line(f"weights: {weights}")
        if plan.total_processes != ranks:
            write_line(
                f"note: the run had {ranks} processes, this has {plan.total_processes}: mixing and synchronised batch "
                f"norm are not those of the run (-ngpus={ranks} repeats them)"
            )
    launch_workers(replay, (run.values, task, samples, skipped, weights), plan, run.values.WATCHDOG_SECONDS)
