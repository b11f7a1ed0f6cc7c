"""The start of a training run: loads what -resume and -pretrained name, and logs it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ..checkpoint import store as checkpoints
from ..checkpoint.class_rows import ClassNames, get_class_names, read_class_names
from ..checkpoint.finding import existing_run_error
from ..checkpoint.load import load_weights, rename_for
from ..checkpoint.paddlevit_training import PaddleViTTraining, read_training
from ..checkpoint.weights import evaluated_weights
from ..distributed import broadcast_object, is_main
from ..logging.record import FOUND_LATER, supersede
from ..runtime.errors import UserError
from .compatibility import CheckpointDiff, FactDifference, altering, show
from .run_command import format_command

if TYPE_CHECKING:
    from .trainer import Trainer


class ResumeState(NamedTuple):
    """The position and state that a training run starts from.

    Attributes:
        position: "epoch" and "consumed" (samples of the next epoch) of the sampler, and "update", as saved.
        directory: the resumed checkpoint; None for a new run.
        changes: settings that differ from the checkpoint's.
        evaluation_due: whether the last completed epoch still has to be evaluated.
        samples: the sample lists of the checkpoint; None if it has none, empty for a new run.
        means: ``TrainingLogger.state_dict`` for the epoch in progress; None if the checkpoint has none.
    """

    position: dict[str, int]
    directory: Path | None = None
    changes: list[FactDifference] = []
    evaluation_due: bool = False
    samples: dict[str, np.ndarray] | None = {}
    means: dict[str, Any] | None = None


def load(run: "Trainer") -> ResumeState:
    """Load the weights, optimizer state and position that -resume and -pretrained name. Every rank must call this.

    Args:
        run: the trainer, with all parts of the training except the ``TrainStep``.

    Returns:
        The position and state to start from.

    Raises:
        UserError: the checkpoint cannot be loaded, or its settings differ in a way that alters the training.
    """
    path = _find_checkpoint(run)
    if path is not None and path.is_dir():
        return _load_checkpoint(run, path)
    last_epoch = run.config.TRAIN.LAST_EPOCH
    training = None if path is None else read_training(path)
    if training is not None:
        return _continue_paddlevit(run, training)
    if path is not None:
        report = load_weights(run.model, str(path), strict=True)
        run.record.log_and_print(
            f"resumed weights only from {path} ({report.summary()}): no optimizer state is read from such a file, so "
            f"moments restart at epoch {last_epoch + 1} (-last_epoch)"
        )
    else:
        if broadcast_object(is_main() and checkpoints.holds_any(run.checkpointer.folder)):
            raise existing_run_error(run.config.SAVE)
        if run.config.MODEL.PRETRAINED:
            _load_pretrained(run)
    run.checkpointer.begin_after(last_epoch)
    if run.ema is not None:
        run.ema.restart()
    return ResumeState({"epoch": 0, "consumed": 0, "update": 0})


def _find_checkpoint(run: "Trainer") -> Path | None:
    """Find the checkpoint that -resume names. The main process decides, so that all ranks use the same one."""
    source, folder = run.config.MODEL.RESUME, run.checkpointer.folder
    if not source:
        return None
    path, problem = None, None
    if is_main():
        try:
            path = checkpoints.resolve(source, folder, run.record.log_and_print)
        except UserError as error:
            problem = str(error)
    path, problem = broadcast_object((path, problem))
    if problem is not None:
        raise UserError(problem)
    if path is None:
        run.record.log_and_print(f"-resume=auto: no checkpoint in {folder}, starting from scratch")
    return path


def _load_pretrained(run: "Trainer") -> None:
    model = run.config.MODEL
    source = evaluated_weights(cast(str, model.PRETRAINED))
    minimum, part = model.MIN_LOADED_FRACTION, model.PRETRAINED_PART
    names = _class_names(run, source)
    report = load_weights(run.model, source, minimum_loaded=minimum, part=part, class_names=names)
    run.record.log_and_print(f"pretrained weights {source}: {report.summary()}")
    fits = CheckpointDiff("start", source, run.config, run.task)
    lines = [*fits.settings(), *fits.input()]
    for split, samples in run.datasets.items():  # a self-test has no val
        lines += fits.files(split, samples)
    if not report.reinitialized and report.classes_by_name is None:
        lines += fits.classes(run.datasets["train"])
    for line in lines:
        run.record.log_and_print(line)
    run.record.file("load_report.json", report.json())


def _class_names(run: "Trainer", source: str) -> ClassNames | None:
    """Return the class names of the weights and of this run, read by the main process; None if the data have none.

    Raises:
        UserError: the names cannot be read; on every rank.
    """
    ours = get_class_names(
        {"train": run.task.dataset_signature(run.datasets["train"])}, run.task.preprocess_signature()
    )
    names, problem = None, None
    if is_main() and ours:
        try:
            names = read_class_names(source)
        except UserError as error:
            problem = str(error)
    names, problem = broadcast_object((names, problem))
    if problem is not None:
        raise UserError(problem)
    return None if names is None or ours is None else ClassNames(names[0], ours, names[1])


def _load_checkpoint(run: "Trainer", directory: Path) -> ResumeState:
    state = checkpoints.read(directory)
    diff = CheckpointDiff("resume", directory, run.config, run.task)
    changes = _require_same_run(run, diff, state.extra["global_batch_size"])
    report = run.checkpointer.load_weights(directory)
    run.checkpointer.load(directory, state)
    due, means = state.extra["evaluation_due"], state.extra["training_means"]
    start = ResumeState(state.position, directory, changes, due, diff.lists, means)
    run.record.log_and_print(f"resumed from {directory} after {_place(start.position)}: {report.summary()}")
    for line in _changed_decay(directory, state.extra["undecayed"], run.undecayed):
        run.record.log_and_print(line)
    if means is None and run.sampler.consumed:
        run.record.log_and_print(
            f"note: {directory} has no training means: the means of epoch {run.sampler.epoch} cover the rest of it only"
        )
    return start


def _continue_paddlevit(run: "Trainer", training: PaddleViTTraining) -> ResumeState:
    """Restore weights, moments, average and epoch from PaddleViT's checkpoint."""
    file = training.weights.name
    report = load_weights(run.model, training.weights, strict=True)
    moments = {
        f"{kind}/{name}": value
        for kind, weights in training.accumulators.items()
        for name, value in rename_for(run.model, weights).items()
    }
    run.checkpointer.continue_foreign(file, training.epoch, moments, training.scaler)
    averaged = None if training.average is None else rename_for(run.model, training.average)
    run.checkpointer.continue_average(file, averaged)
    average = "" if run.ema is None or averaged is None else ", its average"
    run.record.log_and_print(
        f"resumed PaddleViT's {file} after epoch {training.epoch}: {report.summary()}, moments{average}; the learning "
        "rate follows this run's schedule, and the settings and samples of the earlier run are unknown"
    )
    return ResumeState({"epoch": training.epoch, "consumed": 0, "update": run.schedule.update}, samples=None)


def _changed_decay(directory: Path, before: list[str], now: list[str]) -> list[str]:
    """Return a line if the set of parameters without weight decay differs from the checkpoint's."""
    changed = sorted(set(now) ^ set(before))
    if not changed:
        return []
    names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    return [f"note: {directory} applied weight decay differently to {names}; from here on this run's rule applies"]


def _require_same_run(run: "Trainer", diff: CheckpointDiff, global_batch_size: int) -> list[FactDifference]:
    """Log how this run differs from the checkpoint's, and raise UserError if that alters the training."""
    log = run.record.log_and_print
    for line in [*diff.input(), *diff.log_unlisted(run.datasets["val"])]:
        log(line)
    changes = diff.changes(run.datasets, (global_batch_size, run.sampler.global_batch_size))
    if not changes:
        return []
    log(f"settings that differ from {diff.source}:")
    rows = [("setting", "before", "now", "")]
    rows += [(c.name, show(c.before), show(c.now), "alters the run" if c.alters else "") for c in changes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        log("  " + "  ".join(text.ljust(width) for text, width in zip(row, (*widths, 0))).rstrip())
    if altering(changes) and not run.config.ALLOW_CHANGES:
        command = format_command("resume", diff.source, run.config)
        instead = f"; with the settings of its run: {command}" if command else ""
        raise UserError(
            f"-resume={diff.source}: {altering(changes)}: the resumed training would run differently; set "
            f"these back, or add -allow_changes{instead}"
        )
    return changes


def log_resumption(run: "Trainer") -> None:
    """Log and record that training continues or restarts, and which steps it repeats; log nothing for a new run."""
    start: ResumeState = run.start
    if not run.record.writes:
        return
    epoch, update = start.position["epoch"], start.position["update"]
    history = supersede(run.record.folder, epoch, update, start.evaluation_due)
    if start.directory is None and not history.last_epoch:
        return
    is_newest = start.directory is None or checkpoints.is_newest(start.directory)
    is_cut_off = history.last_epoch > epoch or start.evaluation_due
    if is_cut_off and not history.is_stop_recorded and is_newest:
        values = {"epoch": epoch, "reason": FOUND_LATER, "lost_updates": history.lost_updates}
        run.record.event("interruption", values)
        run.record.log_and_print(
            f"the previous run ended without a message in epoch {history.last_epoch}: what it did after "
            f"{_place(start.position)} is done again"
        )
    if history.evaluations:
        epochs = ", ".join(map(str, history.evaluations))
        run.record.log_and_print(f"earlier evaluations of epoch(s) {epochs} are marked as superseded in metrics.jsonl")
    source = None if start.directory is None else str(start.directory)
    changes = {change.name: [change.before, change.now] for change in start.changes}
    run.record.event("resume", {"epoch": epoch, "update": update, "from": source, "changes": changes})


def _place(position: dict[str, int]) -> str:
    """Format the position of a checkpoint."""
    if not position["consumed"]:
        return f"epoch {position['epoch']}"
    return f"update {position['update']}, {position['consumed']:,} samples into epoch {position['epoch'] + 1}"
