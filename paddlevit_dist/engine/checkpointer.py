"""Where a run starts from and what it leaves: weights, optimizer state and position, decided once for all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import paddle

from ..checkpoint import store as checkpoints
from ..checkpoint.load import load_weights
from ..checkpoint.weights import evaluated_weights, read_state
from ..contracts.task import Task
from ..errors import UserError
from ..observe.history import supersede
from ..observe.record import RunRecord
from ..parallel import all_gather, broadcast_object, is_main
from . import about
from .about import Change, as_event, changed_settings, shown, table_of
from .model_ema import AveragedWeights
from .optimizer import optimizer_state, restore_optimizer
from .precision import Precision
from .steps import not_finite, weights_digest


class Start(NamedTuple):
    """Where training begins: an epoch (from 1), after some of its samples."""

    epoch: int
    consumed: int


class Keeper:
    """Loads and saves the state of one training run. Every rank has one and calls its methods.

    Args:
        folder: the run's ``checkpoints`` folder.
        model: the inner model, not its data-parallel wrapper.
        averaged: its averaged weights, if the run has any.
        global_batch_size: samples of one update.
        datasets: samples of each split.
        updates_per_epoch: of a whole epoch.
    """

    def __init__(
        self,
        config: Any,
        task: Task,
        folder: Path,
        record: RunRecord,
        model: paddle.nn.Layer,
        optimizer: Any,
        precision: Precision,
        averaged: Optional[AveragedWeights],
        *,
        global_batch_size: int,
        datasets: Dict[str, Any],
        updates_per_epoch: int,
    ) -> None:
        self.config = config
        self.task = task
        self.folder = folder
        self.record = record
        self.model = model
        self.optimizer = optimizer
        self.precision = precision
        self.averaged = averaged
        self.global_batch_size = global_batch_size
        self.datasets = datasets
        self.updates_per_epoch = updates_per_epoch
        self.best: Optional[Dict[str, Any]] = None
        self._resumed: Optional[Tuple[Path, Dict[str, int], List[Change]]] = None

    def load(self) -> Start:
        """Put in place the weights, optimizer state and position that -resume and -pretrained ask for."""
        start, has_averages = self._load()
        if self.averaged is not None and not has_averages:
            self.averaged.restart()
        return start

    def _load(self) -> Tuple[Start, bool]:
        """Where to start, and whether averaged weights were put in place too."""
        config = self.config
        found = self._find_checkpoint()
        if found is None:
            if broadcast_object(is_main() and checkpoints.newest_good(self.folder, self.record.say) is not None):
                raise UserError(
                    f"-output={config.SAVE} already holds a run's checkpoints; go on with -resume=auto, "
                    "or choose another -output"
                )
            if config.MODEL.PRETRAINED:
                source = evaluated_weights(config.MODEL.PRETRAINED)
                model = config.MODEL
                report = load_weights(
                    self.model, source, minimum_loaded=model.MINIMUM_LOADED, part=model.PRETRAINED_PART
                )
                self.record.say(f"pretrained weights {source}: {report.summary()}")
                self._say_what_differs(str(source), must_match=False)
                self.record.file("load_report.json", report.json())
            return Start(config.TRAIN.LAST_EPOCH + 1, 0), False
        if found.is_file():
            report = load_weights(self.model, str(found), minimum_loaded=1.0)
            self.record.say(
                f"resumed weights only from {found} ({report.summary()}): it holds no optimizer state, so moments "
                f"start afresh at epoch {config.TRAIN.LAST_EPOCH + 1} (-last_epoch)"
            )
            return Start(config.TRAIN.LAST_EPOCH + 1, 0), False
        return self._restore(found), self._restore_averages(found)

    def _find_checkpoint(self) -> Optional[Path]:
        """What -resume means, decided by the main process for all."""
        source = self.config.MODEL.RESUME
        if not source:
            return None
        found, problem = None, None
        if is_main():
            try:
                found = checkpoints.resolve(source, self.folder, self.record.say)
            except UserError as error:
                problem = str(error)
        found, problem = broadcast_object((found, problem))
        if problem is not None:
            raise UserError(problem)
        if found is None:
            self.record.say(f"-resume=auto: no checkpoint in {self.folder}, starting afresh")
        return found

    def _say_what_differs(self, source: str, must_match: bool) -> None:
        for line in about.compare(source, self.config, self.task, must_match=must_match):
            self.record.say(line)

    def _require_same_run(self, directory: Path, state: checkpoints.RunState) -> List[Change]:
        """Tell what this run does otherwise than the checkpoint's, and stop where that alters the training."""
        self._say_what_differs(str(directory), must_match=True)
        before = about.earlier_settings(directory)
        if before is None:
            self.record.say(f"note: {directory} does not tell its settings, so changes cannot be told either")
            before = {}
        changes = changed_settings(before, about.settings_of(self.config))
        saved = state.extra["global_batch_size"]
        if saved != self.global_batch_size:
            changes.append(Change("effective batch", saved, self.global_batch_size, alters=True))
        changes += about.changed_data(str(directory), self.task, self.datasets)
        if not changes:
            return []
        self.record.say(f"settings that differ from those of {directory}:")
        for line in table_of(changes):
            self.record.say(line)
        altering = [f"{c.name} {shown(c.before)} -> {shown(c.now)}" for c in changes if c.alters]
        if altering and not self.config.ALLOW_CHANGES:
            raise UserError(
                f"-resume={directory}: {'; '.join(altering)}: a resumed training would take another course; set "
                "these back, or add -allow_changes"
            )
        return changes

    def tell_resumption(self) -> None:
        """Write down that a training goes on or begins again, what happened to it and what it will do again; nothing
        for a new one."""
        if not self.record.writes:
            return
        directory, position, changes = self._resumed or (None, {"epoch": 0, "update": 0}, [])
        epoch, update = position["epoch"], position["update"]
        history = supersede(self.record.folder, epoch, update)
        if directory is None and not history.last_epoch:
            return
        is_newest = directory is None or checkpoints.is_newest(directory)
        if history.last_epoch > epoch and not history.was_told and is_newest:
            values = {"epoch": epoch, "reason": "found when resuming", "lost_updates": history.lost_updates}
            self.record.event("interruption", values)
            self.record.say(
                f"the run before ended without a word in epoch {history.last_epoch}: what it did after epoch {epoch} "
                "is done again"
            )
        if history.evaluations:
            epochs = ", ".join(map(str, history.evaluations))
            self.record.say(f"earlier evaluations of epoch(s) {epochs} are marked as superseded in metrics.jsonl")
        source = None if directory is None else str(directory)
        self.record.event("resume", {"epoch": epoch, "from": source, "changes": as_event(changes)})

    def _restore(self, directory: Path) -> Start:
        state = checkpoints.read(directory)
        report = load_weights(self.model, str(directory), strict=True)
        changes = self._require_same_run(directory, state)
        try:
            restore_optimizer(self.optimizer, self.model, state.optimizer)
        except ValueError as error:
            raise UserError(
                f"-resume={directory}: {error}; use the TRAIN.OPTIMIZER it was saved with, or -pretrained"
            ) from error
        self.precision.restore(state.extra["scaler"])
        self.best = state.extra["best"]
        position = state.position
        self.record.say(f"resumed from {directory} after epoch {position['epoch']}: {report.summary()}")
        self._resumed = (directory, position, changes)
        return Start(position["epoch"] + 1, position["consumed"])

    def _restore_averages(self, directory: Path) -> bool:
        file = checkpoints.averaged_weights(directory)
        if self.averaged is None:
            if file is not None:
                self.record.say(f"note: {file} is left alone, TRAIN.MODEL_EMA is off now")
            return False
        if file is None:
            self.record.say(f"note: {directory} has no averaged weights; the average starts with the resumed ones")
            return False
        try:
            self.averaged.restore(read_state(file))
        except ValueError as error:
            raise UserError(f"-resume={directory}: {error}") from error
        return True

    def note_best(self, epoch: int, values: Dict[str, float]) -> bool:
        """Whether this evaluation is the best so far."""
        name, more_is_better = self.task.best_metric
        value = values[name]
        if self.best is not None and (value <= self.best["value"] if more_is_better else value >= self.best["value"]):
            return False
        self.best = {"name": name, "value": value, "epoch": epoch}
        return True

    def save(self, epoch: int, is_new_best: bool) -> None:
        """Write a checkpoint on the main process; the others wait, for as long as it takes."""
        broken = not_finite(self.model)
        if broken:
            raise UserError(
                f"weight '{broken}' is not finite after epoch {epoch}: training has diverged and nothing was saved; "
                "lower TRAIN.BASE_LR or set TRAIN.GRAD_CLIP, and -resume=auto from the last checkpoint"
            )
        digests = all_gather(weights_digest(self.model))
        if len(set(digests)) > 1:
            raise RuntimeError(
                f"weights differ between ranks after epoch {epoch}: {digests}; nothing was saved. If ranks skip "
                "different branches of the model, set TRAIN.FIND_UNUSED_PARAMETERS true"
            )
        problem = None
        if is_main():
            try:
                self._write(epoch, is_new_best, digests[0])
            except UserError as error:
                problem = str(error)
        problem = broadcast_object(problem)
        if problem is not None:
            raise UserError(problem)

    def _write(self, epoch: int, is_new_best: bool, digest: str) -> None:
        extra = {
            "scaler": self.precision.state(),
            "best": self.best,
            "global_batch_size": self.global_batch_size,
            "seed": self.config.SEED,
            "weights_digest": digest,
            "paddle": paddle.__version__,
        }
        position = {"epoch": epoch, "consumed": 0, "update": epoch * self.updates_per_epoch}
        state = checkpoints.RunState(position, optimizer_state(self.optimizer, self.model), extra)
        averages = None if self.averaged is None else self.averaged.state()
        directory = checkpoints.save(
            self.folder, epoch, self.model, state, averages, about.describe(self.config, self.task, self.datasets)
        )
        checkpoints.link(self.folder, "last", directory)
        if is_new_best:
            checkpoints.link(self.folder, "best", directory)
        save_frequency, final = self.config.SAVE_FREQ, self.config.TRAIN.NUM_EPOCHS
        checkpoints.prune(self.folder, lambda number: number % save_frequency == 0 or number == final)
        self.record.say(f"saved {directory}")
