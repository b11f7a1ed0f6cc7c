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
    """Facts about a run, passed to callbacks at the start.

    Attributes:
        folder: the output folder, SAVE.
        config: the frozen configuration; ``config.TRAIN.BASE_LR``, for example.
        config_text: the configuration as YAML.
        trains: False if the run only evaluates.
        epochs: of the whole run.
        updates_per_epoch: over all processes.
        update: updates already made, in a resumed run; 0 in a new one.
    """

    folder: Path
    config: RunSettings
    config_text: str
    trains: bool
    epochs: int = 0
    updates_per_epoch: int = 0
    update: int = 0

    def history(self) -> Iterator[dict[str, Any]]:
        """Yield the earlier reports and evaluations of a resumed run, except for those that it repeats.

        They are the lines of ``metrics.jsonl`` of the kinds "training" and "evaluation", all with their ``update``.
        """
        for event in recorded_events(self.folder) if self.update else ():
            is_reported = event.get("kind") in ("training", "evaluation") and "epoch" in event
            if is_reported and not event.get("superseded"):
                yield {"update": event["epoch"] * self.updates_per_epoch, **event, **get_interval_ends(event)}


def get_interval_ends(evaluation: dict[str, Any]) -> dict[str, float]:
    """Return the ends of the main score's interval in a line of ``metrics.jsonl``, for callbacks.

    The main score is the first with an interval; the names are such as "top-1 low" and "top-1 high". Empty without one.
    """
    for name, ends in evaluation.get("interval", {}).items():
        if name != "percent":
            return dict(zip((f"{name} low", f"{name} high"), ends or ()))
    return {}


class UpdateRecord(NamedTuple):
    """A completed update.

    Attributes:
        step: its position; ``step.update`` updates were made before it.
        terms: of the loss, one dictionary for each micro-batch, on the device.
        is_finite: whether it has changed the weights.
        learning_rate: of the update.
        made: updates of the epoch including this one.
        is_last: whether it is the last of the epoch.
    """

    step: StepPosition
    terms: list[dict[str, LossTerm]]
    is_finite: bool
    learning_rate: float
    made: int
    is_last: bool


class Callback:
    """Base class; each method is optional.

    The methods up to ``end`` are stable for users. They are called on rank 0 only, in its main thread. A user's
    callback must not change the training, and gets no values on a device. Training waits while it works.

    An exception in ``start`` ends the run. Later exceptions remove this callback, and the run continues: the traceback
    is printed and logged, or one line for an ``OSError`` such as a full disk. A ``UserError`` ends the run at any time
    with its message as the last line, for example to stop training early.

    The methods below ``end`` are internal and may change.
    """

    #: required module -> its name on pip; if one is missing, the run does not start
    requires: dict[str, str] = {}

    def start(self, run: RunFacts) -> None:
        """Handle the start of the run."""

    def report(self, update: int, values: dict[str, float]) -> None:
        """Handle a report about the latest updates.

        Args:
            update: number of updates since the start of training.
            values: means since the last report, as in ``metrics.jsonl``: the terms of the loss, epoch, learning_rate,
                gradient_norm (if finite), skipped_updates, samples_per_second, data_wait_fraction, memory_mib.
        """

    def evaluated(self, update: int, epoch: int, values: dict[str, float]) -> None:
        """Handle the scores of an evaluation after ``epoch``, of the averaged weights if there are any.

        In a run that only evaluates, ``update`` and ``epoch`` are 0. ``values`` includes the ends of the main score's
        interval, if it has one, such as "top-1 low" and "top-1 high".
        """

    def saved(self, path: Path) -> None:
        """Handle a checkpoint that is on disk; called before the next other call."""

    def end(self, outcome: str) -> None:
        """Handle the end of the run: "finished", "stopped" (on request, and saved) or "failed".

        Not called for a run that was killed or that ended before ``start``.
        """

    # ---- internal ------------------------------------------------------------------------------------------------

    #: whether every rank has one; all must communicate alike, and an exception ends the run
    on_every_rank = False

    def epoch_started(self, epoch: int, made: int) -> None:
        """Handle the start of an epoch; an earlier run has made ``made`` of its updates."""

    def data_awaited(self) -> None:
        """Handle the start of the wait for the next update's batches."""

    def update_started(self, step: StepPosition, batches: list[dict[str, Any]]) -> None:
        """Handle the arrival of an update's batches."""

    def update_done(self, update: UpdateRecord) -> None:
        """Handle a completed and counted update."""

    def epoch_left(self) -> None:
        """Handle the end of the updates in this epoch: all are made, or the run is ending."""

    def epoch_done(self, epoch: int) -> None:
        """Handle a complete epoch."""

    def paused(self, what: str) -> None:
        """Handle a pause of training; ``what`` follows the words "the run is"."""

    def epoch_evaluated(self, epoch: int, values: dict[str, float], line: str, is_best: bool) -> None:
        """Handle the evaluation of the relevant weights, in a pause, with the task's ``values`` and ``line``."""

    #: why training has to end, after ``epoch_evaluated`` or before it begins; equal on every rank
    ends_training = ""

    def resumed(self) -> None:
        """Handle the end of a pause."""

    def training_done(self) -> None:
        """Handle the end of training: all epochs are trained, evaluated and saved."""

    #: from ``evaluation_started`` on: whether the task keeps records for figures (``EvaluationStep.keeps_records``)
    wants_records = False

    def evaluation_started(self, is_shown: bool) -> None:
        """Handle the start of an evaluation; ``is_shown``: it is the run's last one, of labeled samples."""

    def batch_evaluated(self, batch: dict[str, Any], records: Records | None) -> None:
        """Handle an evaluated batch with the ``records`` from ``Task.eval_step``."""

    def evaluation_done(self, facts: dict[str, Any]) -> None:
        """Handle the end of a run that only evaluates; ``facts`` are plain values about it."""
