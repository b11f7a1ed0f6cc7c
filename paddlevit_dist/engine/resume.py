"""Where training starts from: what -resume and -pretrained mean, and what is reported of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ..checkpoint import store as checkpoints
from ..checkpoint.class_rows import ClassNames, names_in_weights, names_of_run
from ..checkpoint.finding import another_run
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
    """The place and state that a training run starts with.

    Attributes:
        position: "epoch" and "consumed" of the sampler and "update", as they were saved.
        directory: the checkpoint; None for a new training.
        changes: settings that differ from the checkpoint's.
        evaluation_due: the last epoch that it has finished is still to be evaluated.
        samples: what the checkpoint lists of the samples that its training had, None if it lists none; empty for a new
            training.
        means: ``TrainingLogger.state_dict`` of the epoch that it has begun; None if it holds none.
    """

    position: dict[str, int]
    directory: Path | None = None
    changes: list[FactDifference] = []
    evaluation_due: bool = False
    samples: dict[str, np.ndarray] | None = {}
    means: dict[str, Any] | None = None


def load(run: "Trainer") -> ResumeState:
    """Load the weights, optimizer state and position that -resume and -pretrained ask for. Every rank must call this.

    Args:
        run: its training, of which all but what makes updates is built.
    Raises:
        UserError: they cannot be loaded, or would continue another training.
    """
    found = _find_checkpoint(run)
    if found is not None and found.is_dir():
        return _load_checkpoint(run, found)
    last_epoch = run.config.TRAIN.LAST_EPOCH
    training = None if found is None else read_training(found)
    if training is not None:
        return _continue_paddlevit(run, training)
    if found is not None:
        report = load_weights(run.model, str(found), strict=True)
        run.record.log_and_print(
            f"resumed weights only from {found} ({report.summary()}): no optimizer state is read from such a file, so "
            f"moments restart at epoch {last_epoch + 1} (-last_epoch)"
        )
    else:
        if broadcast_object(is_main() and checkpoints.holds_any(run.checkpointer.folder)):
            raise another_run(run.config.SAVE)
        if run.config.MODEL.PRETRAINED:
            _load_pretrained(run)
    run.checkpointer.begin_after(last_epoch)
    if run.ema is not None:
        run.ema.restart()
    return ResumeState({"epoch": 0, "consumed": 0, "update": 0})


def _find_checkpoint(run: "Trainer") -> Path | None:
    """Resolve what -resume means, by the main process alone so that all ranks continue from the same one."""
    source, folder = run.config.MODEL.RESUME, run.checkpointer.folder
    if not source:
        return None
    found, problem = None, None
    if is_main():
        try:
            found = checkpoints.resolve(source, folder, run.record.log_and_print)
        except UserError as error:
            problem = str(error)
    found, problem = broadcast_object((found, problem))
    if problem is not None:
        raise UserError(problem)
    if found is None:
        run.record.log_and_print(f"-resume=auto: no checkpoint in {folder}, starting from scratch")
    return found


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
    """The names of the classes of weights and of this run, as the main process finds them; None: the data have none.

    Raises:
        UserError: on every rank alike; of ``names_in_weights``.
    """
    ours = names_of_run({"train": run.task.dataset_signature(run.datasets["train"])}, run.task.preprocess_signature())
    found, problem = None, None
    if is_main() and ours:
        try:
            found = names_in_weights(source)
        except UserError as error:
            problem = str(error)
    found, problem = broadcast_object((found, problem))
    if problem is not None:
        raise UserError(problem)
    return None if found is None or ours is None else ClassNames(found[0], ours, found[1])


def _load_checkpoint(run: "Trainer", directory: Path) -> ResumeState:
    state = checkpoints.read(directory)
    fits = CheckpointDiff("resume", directory, run.config, run.task)
    changes = _require_same_run(run, fits, state.extra["global_batch_size"])
    report = run.checkpointer.load_weights(directory)
    run.checkpointer.load(directory, state)
    due, means = state.extra["evaluation_due"], state.extra["training_means"]
    start = ResumeState(state.position, directory, changes, due, fits.lists, means)
    run.record.log_and_print(f"resumed from {directory} after {_place(start.position)}: {report.summary()}")
    for line in _changed_decay(directory, state.extra["undecayed"], run.undecayed):
        run.record.log_and_print(line)
    if means is None and run.sampler.consumed:
        run.record.log_and_print(
            f"note: {directory} holds no means of its training: those of epoch {run.sampler.epoch} cover its rest"
        )
    return start


def _continue_paddlevit(run: "Trainer", training: PaddleViTTraining) -> ResumeState:
    """Put the training after the last epoch of a checkpoint of PaddleViT's, with its weights, moments and average."""
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
        "rate is that of this run's schedule, and nothing is known of its settings and samples"
    )
    return ResumeState({"epoch": training.epoch, "consumed": 0, "update": run.schedule.update}, samples=None)


def _changed_decay(directory: Path, before: list[str], now: list[str]) -> list[str]:
    """A line if other parameters had no weight decay in the checkpoint's training."""
    found = sorted(set(now) ^ set(before))
    if not found:
        return []
    names = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    return [f"note: {directory} has another rule of weight decay for {names}; from here on that of this run holds"]


def _require_same_run(run: "Trainer", fits: CheckpointDiff, global_batch_size: int) -> list[FactDifference]:
    """Report how this run differs from the checkpoint's, and stop if that alters the training."""
    say = run.record.log_and_print
    for line in [*fits.input(), *fits.log_unlisted(run.datasets["val"])]:
        say(line)
    changes = fits.changes(run.datasets, (global_batch_size, run.sampler.global_batch_size))
    if not changes:
        return []
    say(f"settings that differ from those of {fits.source}:")
    rows = [("setting", "before", "now", "")]
    rows += [(c.name, show(c.before), show(c.now), "alters the run" if c.alters else "") for c in changes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        say("  " + "  ".join(text.ljust(width) for text, width in zip(row, (*widths, 0))).rstrip())
    if altering(changes) and not run.config.ALLOW_CHANGES:
        command = format_command("resume", fits.source, run.config)
        instead = f"; with the settings of its run: {command}" if command else ""
        raise UserError(
            f"-resume={fits.source}: {altering(changes)}: the resumed training would run differently; set "
            f"these back, or add -allow_changes{instead}"
        )
    return changes


def log_resumption(run: "Trainer") -> None:
    """Record that training continues or starts again, what happened to it and what it will repeat; nothing
    for a new run."""
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
    """The position of a checkpoint, in words."""
    if not position["consumed"]:
        return f"epoch {position['epoch']}"
    return f"update {position['update']}, {position['consumed']:,} samples into epoch {position['epoch'] + 1}"
