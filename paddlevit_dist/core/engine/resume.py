"""The start of a training run: loads what -resume and -pretrained name, and logs it."""

from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from ..checkpoint import store as checkpoint_store
from ..checkpoint.directory_names import AVERAGED, MODEL
from ..checkpoint.finding import existing_run_error
from ..checkpoint.load import load_weights, rename_for
from ..checkpoint.load_report import require_trained
from ..checkpoint.low_rank import LowRankBase
from ..checkpoint.paddlevit_training import PaddleViTTraining, read_training
from ..checkpoint.records import resolve_checkpoint
from ..checkpoint.weight_files import evaluated_weights
from ..checkpoint.weights import read_state
from ..distributed import broadcast_object, is_main
from ..logging.record import FOUND_LATER, INTERRUPTION, RunLog, supersede
from ..runtime.errors import UserError
from ..runtime.metrics_file import get_values, recorded_events
from ..settings.every_run import RunSettings
from ..tasks.task import Task
from .class_names import find_class_names
from .compatibility import CheckpointDiff, FactDifference, altering, show
from .run_command import format_command
from .training_state import TrainingState


def read_resumed_section(config: RunSettings, section: str) -> dict[str, Any]:
    """Return a section of the settings of the run that -resume continues; empty for any other run."""
    resume = config.MODEL.RESUME
    if not resume:
        return {}
    about = checkpoint_store.read_about(str(resolve_checkpoint(config.SAVE if resume == "auto" else resume)))
    values = ((about or {}).get("settings") or {}).get(section)
    return values if isinstance(values, dict) else {}


def epochs_by_size(config: RunSettings) -> int | None:
    """Return the epochs that TRAIN.NUM_SAMPLES gave the run that -resume continues; None for any other run."""
    train = config.TRAIN
    if train.NUM_SAMPLES is None:
        return None
    before = read_resumed_section(config, "TRAIN")
    epochs, limits = before.get("NUM_EPOCHS"), before.get("EPOCH_LIMITS")
    is_same = before.get("NUM_SAMPLES") == train.NUM_SAMPLES and limits == list(train.EPOCH_LIMITS)
    return epochs if is_same and isinstance(epochs, int) and epochs > 0 else None


def is_evaluated(config: RunSettings, epoch: int, last_epoch: int) -> bool:
    """Return whether an evaluation follows that epoch, in a run that ends after ``last_epoch``."""
    return epoch % config.VALIDATE_FREQ == 0 or epoch == last_epoch


class ResumeState(NamedTuple):
    """The position and state that a training run starts from.

    Attributes:
        position: "epoch" and "consumed" (samples of the next epoch) of the sampler, and "update", as saved.
        directory: the resumed checkpoint; None for a new run.
        evaluation_due: whether the last completed epoch still has to be evaluated.
        samples: the sample lists of the checkpoint; None if it has none, empty for a new run.
        means: ``TrainingLogger.state_dict`` for the epoch in progress; None if the checkpoint has none.
        best: name, value, epoch and line of the best evaluation so far; None if there is none.
        evaluations: epoch and value (None: not defined) of each evaluation so far, of what ``best`` names.
        base: the weights that checkpoints of TRAIN.LORA leave out; None without it.
    """

    position: dict[str, int]
    directory: Path | None = None
    changes: list[FactDifference] = []
    evaluation_due: bool = False
    samples: dict[str, np.ndarray] | None = {}
    means: dict[str, Any] | None = None
    best: dict[str, Any] | None = None
    base: LowRankBase | None = None
    evaluations: list[tuple[int, float | None]] = []

    def is_of_epoch(self, folder: Path) -> bool:
        """Return whether ``directory`` is the one in ``folder`` that was saved at the end of the last epoch."""
        own = folder / checkpoint_store.epoch_name(self.position["epoch"])
        return self.directory is not None and own.resolve() == self.directory.resolve()


class StateLoader:
    """Loads weights, optimizer state and position that -resume and -pretrained name. Every rank has one."""

    def __init__(
        self, config: RunSettings, task: Task, datasets: dict[str, Any], state: TrainingState, run_log: RunLog
    ) -> None:
        self._config, self._task, self._datasets = config, task, datasets
        self._state, self._run_log = state, run_log
        self._folder = Path(config.SAVE) / "checkpoints"

    def load(self) -> ResumeState:
        """Load what -resume and -pretrained name; return the state to start from. Every rank must call this.

        Raises UserError if the checkpoint cannot be loaded, or its settings differ in a way that alters the training.
        """
        path = self._find_checkpoint()
        if path is not None and path.is_dir():
            return self._load_checkpoint(path)
        last_epoch, base = self._config.TRAIN.LAST_EPOCH, None
        training = None if path is None else read_training(path)
        if training is not None:
            return self._continue_paddlevit(training)
        if path is not None:
            report = load_weights(self._state.model, str(path), strict=True)
            base = report.base
            self._run_log.log_and_print(
                f"resumed weights only from {path} ({report.summary()}): no optimizer state is read from such a file, "
                f"so moments restart at epoch {last_epoch + 1} (-last_epoch)"
            )
        else:
            if broadcast_object(is_main() and checkpoint_store.holds_any(self._folder)):
                raise existing_run_error(self._config.SAVE)
            if self._config.MODEL.PRETRAINED:
                base = self._load_pretrained()
            elif self._config.TRAIN.LORA.RANK:
                raise UserError(
                    "TRAIN.LORA.RANK: nothing is there to resume: name the frozen weights with -pretrained=WEIGHTS"
                )
            else:
                rest = ", apart from the backbone's" if self._config.MODEL.get("BACKBONE_PRETRAINED") else ""
                self._run_log.log_and_print(f"weights: random (SEED {self._config.SEED}){rest}")
        self._state.begin_after(last_epoch)
        if self._state.ema is not None:
            self._state.ema.restart()
        if self._state.own is not None:
            self._state.own.restart()
        return ResumeState({"epoch": 0, "consumed": 0, "update": 0}, base=base)

    def _find_checkpoint(self) -> Path | None:
        """Find the checkpoint that -resume names. The main process decides, so that all ranks use the same one."""
        source = self._config.MODEL.RESUME
        if not source:
            return None
        path, problem = None, None
        if is_main():
            try:
                path = checkpoint_store.resolve(source, self._folder, self._run_log.log_and_print)
            except UserError as error:
                problem = str(error)
        path, problem = broadcast_object((path, problem))
        if problem is not None:
            raise UserError(problem)
        if path is None:
            self._run_log.log_and_print(f"-resume=auto: no checkpoint in {self._folder}, starting from scratch")
        return path

    def _load_pretrained(self) -> LowRankBase | None:
        model, log = self._config.MODEL, self._run_log.log_and_print
        source = evaluated_weights(cast(str, model.PRETRAINED))
        minimum, part = model.MIN_LOADED_FRACTION, model.PRETRAINED_PART
        names = find_class_names(self._task, self._datasets["train"], source)
        report = load_weights(self._state.model, source, minimum_loaded=minimum, part=part, class_names=names)
        if not self._config.ALLOW_CHANGES:
            require_trained(report)
        log(f"pretrained weights {source}: {report.summary()}")
        fits = CheckpointDiff("start", source, self._config, self._task)
        lines = [*fits.settings(), *fits.input()]
        for split, samples in self._datasets.items():  # a self-test has no val
            lines += fits.files(split, samples)
        if not report.reinitialized and report.classes_by_name is None:
            lines += fits.classes(self._datasets["train"])
        for line in lines:
            log(line)
        self._run_log.file("load_report.json", report.json())
        return report.base

    def _load_checkpoint(self, directory: Path) -> ResumeState:
        content, log = checkpoint_store.read(directory), self._run_log.log_and_print
        diff = CheckpointDiff("resume", directory, self._config, self._task)
        changes = self._require_same_run(diff, content.extra["global_batch_size"])
        report = load_weights(self._state.model, str(directory / MODEL), strict=True)
        if report.resized:
            size = "another size" if report.trained_size is None else "{} x {} pixels".format(*report.trained_size)
            raise UserError(
                f"-resume={directory}: {report.resized[0]} is of images of {size}, and its moments and averages would "
                f"not fit: set the sizes of images and patches back, or start anew with -pretrained={directory}"
            )
        self._restore(directory, content)
        due, means, best = (content.extra[name] for name in ("evaluation_due", "training_means", "best"))
        scores = content.extra.get("evaluations")
        if scores is None:  # a checkpoint of an earlier version
            scores = broadcast_object(_find_scores(directory, content) if is_main() else None)
        if best is not None and best["epoch"] not in [epoch for epoch, _ in scores]:
            best = None  # an evaluation that only -stop_after_epoch caused, see ``Checkpointer.note_evaluation``
        train = self._config.TRAIN
        due = due and is_evaluated(self._config, content.position["epoch"], train.STOP_AFTER_EPOCH or train.NUM_EPOCHS)
        found = directory, changes, due, diff.lists, means, best, report.base, scores
        resume_state = ResumeState(content.position, *found)
        log(f"resumed from {directory} after {_place(resume_state.position)}: {report.summary()}")
        last_epoch = self._config.TRAIN.LAST_EPOCH
        if last_epoch not in (0, resume_state.position["epoch"]):
            log(f"TRAIN.LAST_EPOCH {last_epoch}: no effect: {directory} knows its epoch")
        for line in describe_changed_decay(directory, content.extra["undecayed"], self._state.undecayed):
            log(line)
        sampler = self._state.sampler
        if means is None and sampler.consumed:
            log(
                f"note: {directory} has no training means: the means of epoch {sampler.epoch} cover the rest of it only"
            )
        return resume_state

    def _require_same_run(self, diff: CheckpointDiff, global_batch_size: int) -> list[FactDifference]:
        """Log how this run differs from the checkpoint's, and raise UserError if that alters the training."""
        log = self._run_log.log_and_print
        for line in [*diff.input(), *diff.log_unlisted(self._datasets["val"])]:
            log(line)
        changes = diff.changes(self._datasets, (global_batch_size, self._state.sampler.global_batch_size))
        if not changes:
            return []
        log(f"settings that differ from {diff.source}:")
        rows = [("setting", "before", "now", "")]
        rows += [(c.name, show(c.before), show(c.now), "alters the run" if c.alters else "") for c in changes]
        widths = [max(len(cells[column]) for cells in rows) for column in range(3)]
        for row in rows:
            log("  " + "  ".join(text.ljust(width) for text, width in zip(row, (*widths, 0))).rstrip())
        if altering(changes) and not self._config.ALLOW_CHANGES:
            is_of_data = any(c.alters and c.kind in ("files", "classes") for c in changes)  # also with these settings
            command = "" if is_of_data else format_command("resume", diff.source, self._config)
            instead = f"; with the settings of its run: {command}" if command else ""
            raise UserError(
                f"-resume={diff.source}: {altering(changes)}: the resumed training would run differently; set "
                f"these back, or add -allow_changes{instead}"
            )
        return changes

    def _restore(self, directory: Path, content: checkpoint_store.RunState) -> None:
        """Restore everything except the weights, including the position of the training."""
        state, extra = self._state, content.extra
        self._load_moments(f"-resume={directory}", content.optimizer)
        if state.own is not None:
            try:
                state.own.load_state_dict(content.own)
            except ValueError as error:
                raise UserError(f"-resume={directory}: {error}; use the settings it was saved with") from error
        state.precision.load_state_dict(extra["scaler"])
        state.nan_guard.load_state_dict(extra["skipped_updates"])
        state.choices.update(extra.get("choices", {}))  # earlier versions stored none
        state.begin_after(**{name: content.position[name] for name in ("epoch", "consumed")})
        file = directory / AVERAGED
        if state.ema is None and file.is_file():
            self._run_log.log_and_print(f"note: {file} is kept unchanged: TRAIN.MODEL_EMA is now off")
        else:
            self._continue_average(str(directory), read_state(file) if file.is_file() else None)
        if is_main() and checkpoint_store.is_newest(directory, self._folder):
            checkpoint_store.link_best(self._folder, extra["best"])  # the run may have ended before it did so

    def _load_moments(self, option: str, moments: dict[str, np.ndarray]) -> None:
        try:
            self._state.optimizer_state.load_state_dict(moments)
        except ValueError as error:
            raise UserError(f"{option}: {error}; use the TRAIN.OPTIMIZER it was saved with, or -pretrained") from error

    def _continue_average(self, source: str, average: dict[str, np.ndarray] | None) -> None:
        """Restore averaged weights if this run keeps an average; without any, it restarts from the weights.

        Raises UserError if they do not fit the model.
        """
        ema, log = self._state.ema, self._run_log.log_and_print
        if ema is None:
            if average is not None:
                log(f"note: the average in {source} is not used: TRAIN.MODEL_EMA is off")
        elif average is None:
            log(f"note: {source} has no averaged weights; the average starts with the resumed ones")
            ema.restart()
        else:
            if self._config.TRAIN.LORA.RANK:  # what the file leaves to the base, the model has by now
                average = {**{n: t.numpy() for n, t in self._state.model.state_dict().items()}, **average}
            try:
                ema.load_state_dict(average)
            except ValueError as error:
                raise UserError(f"-resume={source}: {error}") from error

    def _continue_paddlevit(self, training: PaddleViTTraining) -> ResumeState:
        """Restore weights, moments, loss scale, average and epoch from PaddleViT's checkpoint."""
        state, file = self._state, training.weights.name
        report = load_weights(state.model, training.weights, strict=True)
        moments = {
            f"{kind}/{name}": value
            for kind, weights in training.accumulators.items()
            for name, value in rename_for(state.model, weights).items()
        }
        self._load_moments(f"-resume={file}", moments)
        state.precision.load_state_dict(training.scaler)
        state.begin_after(training.epoch)
        averaged = None if training.average is None else rename_for(state.model, training.average)
        self._continue_average(file, averaged)
        average = "" if state.ema is None or averaged is None else ", its average"
        self._run_log.log_and_print(
            f"resumed PaddleViT's {file} after epoch {training.epoch}: {report.summary()}, moments{average}; the "
            "learning rate follows this run's schedule, and the settings and samples of the earlier run are unknown"
        )
        position = {"epoch": training.epoch, "consumed": 0, "update": state.schedule.update}
        return ResumeState(position, samples=None, base=report.base)


def _find_scores(directory: Path, content: checkpoint_store.RunState) -> list[tuple[int, float | None]]:
    """Return epoch and value of each evaluation before a checkpoint, by the record of its run."""
    best, last = content.extra["best"], content.position["epoch"] - content.extra["evaluation_due"]
    if best is None:
        return []
    rows = [row for row in recorded_events(directory.resolve().parents[1]) if row.get("epoch", last + 1) <= last]
    rows = [row for row in rows if row["kind"] == "evaluation" and "superseded" not in row]
    values = {row["epoch"]: get_values(row)[best["name"]] for row in rows if best["name"] in get_values(row)}
    return sorted({best["epoch"]: best["value"], **values}.items())


def describe_changed_decay(directory: Path, before: list[str], now: list[str]) -> list[str]:
    """Return a line if the set of parameters without weight decay differs from the checkpoint's."""
    changed = sorted(set(now) ^ set(before))
    if not changed:
        return []
    names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    return [f"note: {directory} applied weight decay differently to {names}; from here on this run's rule applies"]


def log_resumption(resume_state: ResumeState, run_log: RunLog) -> None:
    """Log and record that training continues or restarts, and which steps it repeats; log nothing for a new run."""
    if not run_log.writes:
        return
    epoch, update = resume_state.position["epoch"], resume_state.position["update"]
    folder, source, is_due = run_log.folder / "checkpoints", resume_state.directory, resume_state.evaluation_due
    is_newest = checkpoint_store.is_newest(source, folder)
    # An evaluation that is due comes before the first save if the epoch's own checkpoint is resumed.
    if is_later := not (is_newest or (is_due and resume_state.is_of_epoch(folder))):
        run_log.hold_events(epoch, update, is_due)
    history = supersede(run_log.folder, epoch, update, is_due, None if is_later else ())
    if source is None and not history.last_epoch:
        return
    is_cut_off = history.last_epoch > epoch or is_due
    if is_cut_off and not history.is_stop_recorded and is_newest:
        values = {"epoch": epoch, "reason": FOUND_LATER, "lost_updates": history.lost_updates}
        run_log.event(INTERRUPTION, values)
        run_log.log_and_print(
            f"the previous run ended without a message in epoch {history.last_epoch}: what it did after "
            f"{_place(resume_state.position)} is done again"
        )
    if history.evaluations:
        epochs = ", ".join(map(str, history.evaluations))
        when = ", once a checkpoint replaces theirs" if is_later else ""
        run_log.log_and_print(
            f"earlier evaluations of epoch(s) {epochs} are marked as superseded in metrics.jsonl{when}"
        )
    changes = {change.name: [change.before, change.now] for change in resume_state.changes}
    run_log.event("resume", {"epoch": epoch, "update": update, "from": source and str(source), "changes": changes})


def _place(position: dict[str, int]) -> str:
    if not position["consumed"]:
        return f"epoch {position['epoch']}"
    return f"update {position['update']}, {position['consumed']:,} samples into epoch {position['epoch'] + 1}"
