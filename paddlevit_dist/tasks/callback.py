"""Base class of callbacks, and what a callback learns of a run.

``register_callback("mine", Mine)`` gives a class a name for ``-log_to=mine``; ``Trainer(callbacks=[Mine()])`` takes an
object. Loggers (``logging.event_logs``, ``logging.services``), averaged weights, early stopping, the profiler and
the report's page are callbacks too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..runtime.metrics_file import recorded_events
from ..settings.every_run import RunSettings
from .task import LossTerm, Records, StepPosition


class RunFacts(NamedTuple):
    """Facts that a callback is told at the start.

    Attributes:
        folder: the output folder, SAVE.
        config: the frozen configuration; ``config.TRAIN.BASE_LR``, for example.
        config_text: the same as YAML.
        trains: False for an evaluation alone.
        epochs: of the whole training.
        updates_per_epoch: of the whole group of processes.
        update: updates that are made already, of a run that is resumed; 0 for a new one.
    """

    folder: Path
    config: RunSettings
    config_text: str
    trains: bool
    epochs: int = 0
    updates_per_epoch: int = 0
    update: int = 0

    def history(self) -> Iterator[dict[str, Any]]:
        """The reports and evaluations up to here of a training that is resumed, without those that it repeats: lines
        of ``metrics.jsonl`` whose ``kind`` is "training" or "evaluation", with the ``update`` of both."""
        for event in recorded_events(self.folder) if self.update else ():
            is_told = event.get("kind") in ("training", "evaluation") and "epoch" in event
            if is_told and not event.get("superseded"):
                yield {"update": event["epoch"] * self.updates_per_epoch, **event, **get_interval_ends(event)}


def get_interval_ends(evaluation: dict[str, Any]) -> dict[str, float]:
    """For callbacks, of a line of ``metrics.jsonl``: the ends of the main score's interval, which is the first that it
    has, such as "top-1 low" and "top-1 high"; empty where it has none."""
    for name, ends in evaluation.get("interval", {}).items():
        if name != "percent":
            return dict(zip((f"{name} low", f"{name} high"), ends or ()))
    return {}


class UpdateRecord(NamedTuple):
    """An update that has been made.

    Attributes:
        step: its place; ``step.update`` updates were made before it.
        terms: of the loss, one dictionary for each micro-batch, on the device.
        is_finite: it has changed the weights.
        learning_rate: it was made with.
        made: updates of the epoch up to it.
        is_last: of the epoch.
    """

    step: StepPosition
    terms: list[dict[str, LossTerm]]
    is_finite: bool
    learning_rate: float
    made: int
    is_last: bool


class Callback:
    """Base class; each method may be left out.

    What users may rely on are the methods up to ``end``. They are called in the main process only, in its main thread.
    A callback of a user must not change the training, and nothing that these methods are given is on a device. While
    it works the training waits. What it raises in ``start`` ends the run. Later the run goes on without this callback:
    its traceback is shown and logged, as is one line for an ``OSError`` such as a full disk. A ``UserError`` ends the
    run at any time with its message as the last line: for a callback that has seen enough.

    The methods below them are of this package's own and change with it.
    """

    #: modules that it needs -> what to install with pip; where one is missing, the run does not start
    requires: dict[str, str] = {}

    def start(self, run: RunFacts) -> None:
        """The run is about to compute."""

    def report(self, update: int, values: dict[str, float]) -> None:
        """Some updates were made.

        Args:
            update: how many there are since the start of the training.
            values: means since the last report, as in ``metrics.jsonl``: the terms of the loss, epoch, learning_rate,
                gradient_norm (where it is finite), skipped_updates, samples_per_second, data_wait_fraction, memory_mib.
        """

    def evaluated(self, update: int, epoch: int, values: dict[str, float]) -> None:
        """The model was evaluated after ``epoch``, with the averaged weights if there are any. In an evaluation alone
        ``update`` and ``epoch`` are 0. ``values`` has the ends of the main score's interval, such as "top-1 low" and
        "top-1 high", where there is one."""

    def saved(self, path: Path) -> None:
        """A checkpoint is on disk; told before the next of the other calls."""

    def end(self, outcome: str) -> None:
        """The run is over: "finished", "stopped" (asked to, and saved) or "failed". Not called for a run that was
        killed or that ended before ``start``."""

    # ---- of this package's own ---------------------------------------------------------------------------------

    #: every rank has one, and all act alike where they communicate; what it raises ends the run
    on_every_rank = False

    def epoch_started(self, epoch: int, made: int) -> None:
        """An epoch begins, of which ``made`` updates were made by the run that this one continues."""

    def data_awaited(self) -> None:
        """The loop turns to the loader for the next update's batches."""

    def update_started(self, step: StepPosition, batches: list[dict[str, Any]]) -> None:
        """An update's batches are there."""

    def update_done(self, update: UpdateRecord) -> None:
        """An update is made, and counted."""

    def epoch_left(self) -> None:
        """No more updates in this epoch: all are made, or the run is ending."""

    def epoch_done(self, epoch: int) -> None:
        """All updates of the epoch are made."""

    def paused(self, what: str) -> None:
        """Something that is no training begins, in words that follow "the run is"."""

    def epoch_evaluated(self, epoch: int, values: dict[str, float], line: str, is_best: bool) -> None:
        """The weights that count were evaluated, in a pause; ``values`` and ``line`` are the task's."""

    #: why the training is to end here, after ``epoch_evaluated`` or before it begins; equal on every rank
    ends_training = ""

    def resumed(self) -> None:
        """Hear that a pause is over."""

    def training_done(self) -> None:
        """All epochs are trained, evaluated and saved."""

    #: from ``evaluation_started`` on: the task is to keep records for figures (``EvaluationStep.keeps_records``)
    wants_records = False

    def evaluation_started(self, is_shown: bool) -> None:
        """An evaluation begins; ``is_shown``: it is the one that a run ends with, of labeled samples."""

    def batch_evaluated(self, batch: dict[str, Any], records: Records | None) -> None:
        """A batch was evaluated; ``records`` as ``Task.eval_step`` returned them."""

    def evaluation_done(self, facts: dict[str, Any]) -> None:
        """A run that only evaluates is over; ``facts`` are plain values that tell what was evaluated."""
