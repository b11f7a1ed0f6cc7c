"""DATA.FIND_BATCH_SIZE: the largest batch per device whose update fits in the memory, found by trial.

Each trial is a process per device, which makes two updates and evaluates one batch; its end frees all memory, also
after an out-of-memory error, and nothing of it is left in the run. The samples of an update stay: the batch divides
DATA.BATCH_SIZE x TRAIN.ACCUM_ITER, is a power of two if that is one, and TRAIN.ACCUM_ITER becomes the quotient.
"""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paddle

from ..launch import ProcessPlan, launch_workers, stale_resources
from ..logging.record import RunLog
from ..runtime import device_kinds
from ..runtime.errors import UserError, WorkerFailure
from ..settings.every_run import RunSettings
from ..settings.table import COMMAND_LINE
from ..tasks.step_types import EvaluationStep, StepPosition
from ..tasks.task import Task
from ..tasks.task_factory import build_metrics
from . import gpu_memory
from .resume import read_resumed_section
from .step import accumulation_groups
from .trainer import Trainer

if TYPE_CHECKING:
    from ..settings import Configuration

_UPDATES = 2  # the second one has the optimizer's state
_MOST_ACCUMULATED = 2  # more batches per update take no more memory
# Largest share of the memory that a trial may allocate. Free memory becomes fragmented in a long run, and later batches
# are larger if samples differ in size.
_SHARE_FIXED_SHAPES, _SHARE = 0.9, 0.7
_TOO_LARGE = "too_large"  # file that a process of a trial writes if its memory did not suffice


def resolve_found_batch(
    run: "Configuration", plan: ProcessPlan, task: Task, datasets: dict[str, Any]
) -> "Configuration":
    """Return the configuration with the batch size that trials find, for DATA.FIND_BATCH_SIZE.

    A resumed run keeps the batch size that it found, if that still divides the samples per device and update. Raises
    UserError if there is no device whose memory could be tried, or a single sample exceeds it.
    """
    option = "-batch_size=auto (DATA.FIND_BATCH_SIZE)"
    per_update = run.values.DATA.BATCH_SIZE * run.values.TRAIN.ACCUM_ITER
    earlier = _read_earlier(run.values)
    if earlier is not None and per_update % earlier == 0:
        return _with_batch(run, earlier, per_update, f"{option}: as in the run that is resumed")
    if not has_own_memory(plan.device):
        raise UserError(
            f"{option}: the batch is tried in the memory of GPUs, and CPU processes have no memory of their own: give "
            "a number, -batch_size=N"
        )
    if plan.by_paddle_launcher:
        raise UserError(f"{option} starts processes: use no launcher, or give a number, -batch_size=N")
    sizes = [
        divisor for divisor in list_divisors(per_update) if _is_allowed(_with_batch(run, divisor, per_update, None))
    ]

    def fits(size: int) -> bool:
        return try_batch(_with_batch(run, size, per_update, None).values, plan, task, datasets)

    size = find_largest(sizes, fits)
    if size is None:
        hint = gpu_memory.advise_training(_with_batch(run, 1, per_update, None).values)
        raise UserError(f"{option}: an update with {sizes[0]} per device exceeds the memory; {hint}")
    larger = [other for other in sizes if other > size]
    why = f"the largest batch that fits; {larger[0]} exceeds the memory" if larger else "all fit at once"
    reason = f"{option}: of {per_update} {task.traits.sample_name} per device and update, {why}"
    return _with_batch(run, size, per_update, reason)


def has_own_memory(device: str) -> bool:
    """Return whether devices of this kind have a memory of their own, which a batch may exceed."""
    return device != device_kinds.CPU


def list_divisors(number: int) -> list[int]:
    """Return the divisors in ascending order."""
    return [size for size in range(1, number + 1) if number % size == 0]


def find_largest(sizes: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """Return the largest of ascending sizes that fits, by bisection; None if none does."""
    low, high = 0, len(sizes)  # sizes below low fit, sizes from high on do not
    while low < high:
        middle = (low + high) // 2
        if fits(sizes[middle]):
            low = middle + 1
        else:
            high = middle
    return sizes[low - 1] if low else None


def _with_batch(run: "Configuration", size: int, per_update: int, reason: str | None) -> "Configuration":
    values = {"DATA.BATCH_SIZE": size, "TRAIN.ACCUM_ITER": per_update // size}
    if run.sources["DATA.BATCH_SIZE_EVAL"] != COMMAND_LINE:
        values["DATA.BATCH_SIZE_EVAL"] = size  # as -batch_size=N does
    found = ", ".join(f"{key} {item}" for key, item in values.items())
    notice = None if reason is None else f"{reason}: {found}"
    for name, value in values.items():
        run = run.changed(name, value, notice, "DATA.FIND_BATCH_SIZE")
        notice = None
    return run


def _is_allowed(run: "Configuration") -> bool:
    try:
        run.check()
    except UserError:
        return False
    return True


def _read_earlier(config: RunSettings) -> int | None:
    """Return the batch size that the run found which -resume continues; None for any other run."""
    data = read_resumed_section(config, "DATA")
    size = data.get("BATCH_SIZE") if data.get("FIND_BATCH_SIZE") else None
    return size if isinstance(size, int) and size > 0 else None


def try_batch(config: RunSettings, plan: ProcessPlan, task: Task, datasets: dict[str, Any]) -> bool:
    """Return whether a configuration's batch fits in each device's memory. Raises UserError for other failures."""
    with stale_resources.temporary_folder("trial") as folder:
        values = config.clone()
        values.defrost()
        values.SAVE, values.MODEL.RESUME = str(folder), None
        values.TRAIN.ACCUM_ITER = min(config.TRAIN.ACCUM_ITER, _MOST_ACCUMULATED)
        values.freeze()
        try:
            launch_workers(run_trial, (values, task, datasets), plan, config.WATCHDOG_SECONDS, in_child=True)
        except (UserError, WorkerFailure):
            if not (folder / _TOO_LARGE).exists():
                raise
            return False
    return True


def run_trial(config: RunSettings, task: Task, datasets: dict[str, Any]) -> None:
    """Train and evaluate with a few batches. Every rank must call this.

    A temporary folder SAVE tells the parent if the memory did not suffice, which is a UserError here.
    """
    try:
        _train_and_evaluate(config, task, datasets)
    except Exception as error:
        message = gpu_memory.out_of_memory(f"{type(error).__name__}: {error}")
        if message is None:
            raise
        raise _too_large(config, message) from error
    peak, total = device_kinds.max_allocated_bytes(), device_kinds.accelerator_bytes()
    share = _SHARE_FIXED_SHAPES if task.traits.fixed_shapes else _SHARE
    if peak is not None and total and peak > share * total:
        raise _too_large(config, f"{peak:,} of {total:,} bytes are more than {share:.0%}")


def _too_large(config: RunSettings, message: str) -> UserError:
    Path(config.SAVE, _TOO_LARGE).touch()
    return UserError(message)


def _train_and_evaluate(config: RunSettings, task: Task, datasets: dict[str, Any]) -> None:
    trainer = Trainer(config, task, datasets, run_log=RunLog(Path(config.SAVE), writes=False))
    trainer.prepare_training()
    trainer.model.train()
    trainer.step.rates = None  # what is frozen at first needs memory later
    accumulated, per_epoch = config.TRAIN.ACCUM_ITER, trainer.updates_per_epoch
    with contextlib.closing(trainer.loader.epochs(1, -(-_UPDATES // per_epoch))) as batches:
        for update, group in enumerate(accumulation_groups(batches, accumulated, _UPDATES)):
            position = StepPosition(1 + update // per_epoch, update, trainer.schedule.total_updates)
            trainer.step.launch(group, position, trainer.schedule.learning_rate)
    trainer.step.flush()
    trainer.model.eval()
    evaluator, step = trainer.evaluator, EvaluationStep(build_metrics(task), epoch=1)
    with (
        paddle.no_grad(),
        evaluator.precision.patch_forward(trainer.model),
        contextlib.closing(iter(evaluator.loader)) as batches,
    ):
        for batch in itertools.islice(batches, 1):
            task.eval_step(trainer.model, batch, step)
