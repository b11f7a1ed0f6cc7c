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
    """Facts about a run that a callback gets at the start.

    Attributes:
        folder: the output folder, SAVE.
        config: the frozen configuration, such as ``config.TRAIN.BASE_LR``.
        config_text: the configuration as YAML.
        trains: False for an evaluation alone.
        epochs: number of epochs of the whole training run.
        updates_per_epoch: updates of an epoch, over all processes.
        update: updates that a resumed run has already made; 0 for a new run.
    """

    folder: Path
    config: RunSettings
    config_text: str
    trains: bool
    epochs: int = 0
    updates_per_epoch: int = 0
    update: int = 0

    def history(self) -> Iterator[dict[str, Any]]:
        """Yield the reports and evaluations before a resume, without those that the run repeats.

        They are the lines of ``metrics.jsonl`` whose ``kind`` is "training" or "evaluation", each with ``update``.
        """
        for event in recorded_events(self.folder) if self.update else ():
            is_reported = event.get("kind") in ("training", "evaluation") and "epoch" in event
            if is_reported and not event.get("superseded"):
                yield {"update": event["epoch"] * self.updates_per_epoch, **event, **get_interval_ends(event)}


def get_interval_ends(evaluation: dict[str, Any]) -> dict[str, float]:
    """Return the ends of the main score's interval, such as "top-1 low" and "top-1 high".

    Args:
        evaluation: a line of ``metrics.jsonl``. Its first interval is that of the main score.

    Returns:
        The two ends by name; empty without an interval.
    """
    for name, ends in evaluation.get("interval", {}).items():
        if name != "percent":
            return dict(zip((f"{name} low", f"{name} high"), ends or ()))
    return {}


class UpdateRecord(NamedTuple):
    """Record of a completed update.

    Attributes:
        step: its position; ``step.update`` updates came before it.
        terms: terms of the loss, one dictionary for each micro-batch, on the device.
        is_finite: the update has changed the weights.
        learning_rate: learning rate of the update.
        made: updates of the epoch, including this one.
        is_last: this is the last update of the epoch.
    """

    step: StepPosition
    terms: list[dict[str, LossTerm]]
    is_finite: bool
    learning_rate: float
    made: int
    is_last: bool


class Callback:
    """Base class of callbacks. A subclass defines the methods that it needs.

    Users may rely on the methods up to ``end``. The main process calls them in its main thread, and training waits
    until they return. Their arguments are not on a device. A callback must not change the training run.

    An exception in ``start`` ends the run. After a later exception, the run logs the traceback (one line for an
    ``OSError`` such as a full disk) and continues without this callback. A ``UserError`` ends the run at any time, and
    its message is the last line of the log.

    The methods after ``end`` are for this package and may change.
    """

    #: modules that the callback needs -> pip package; the run does not start if one is missing
    requires: dict[str, str] = {}

    def start(self, run: RunFacts) -> None:
        """Start with a run, before it computes."""

    def report(self, update: int, values: dict[str, float]) -> None:
        """Receive the means since the last report.

        Args:
            update: number of updates since the start of training.
            values: means as in ``metrics.jsonl``: the terms of the loss, epoch, learning_rate, gradient_norm (if it is
                finite), skipped_updates, samples_per_second, data_wait_fraction, memory_mib.
        """

    def evaluated(self, update: int, epoch: int, values: dict[str, float]) -> None:
        """Receive the scores of an evaluation, of the averaged weights if there are any.

        Args:
            update: number of updates since the start of training; 0 in an evaluation alone.
            epoch: the last epoch, from 1; 0 in an evaluation alone.
            values: scores by name, and the ends of the main score's interval, such as "top-1 low" and "top-1 high".
        """

    def saved(self, path: Path) -> None:
        """Receive the path of a checkpoint on disk, before the next of the other calls."""

    def end(self, outcome: str) -> None:
        """End with the run. This is not called for a run that was killed or that ended before ``start``.

        Args:
            outcome: "finished", "stopped" (on request, and saved) or "failed".
        """

    # ---- for this package ---------------------------------------------------------------------------------------

    #: every rank has such a callback, and all act alike if they communicate; an exception ends the run
    on_every_rank = False

    def epoch_started(self, epoch: int, made: int) -> None:
        """Start an epoch; a resumed run has already done ``made`` of its updates."""

    def data_awaited(self) -> None:
        """Wait for the loader: the loop requests the batches of the next update."""

    def update_started(self, step: StepPosition, batches: list[dict[str, Any]]) -> None:
        """Start an update with these batches."""

    def update_done(self, update: UpdateRecord) -> None:
        """Receive a completed update."""

    def epoch_left(self) -> None:
        """Leave the epoch: all updates are done, or the run is ending."""

    def epoch_done(self, epoch: int) -> None:
        """End an epoch: all its updates are done."""

    def paused(self, what: str) -> None:
        """Pause training for something else; ``what`` completes the sentence "the run is ..."."""

    def epoch_evaluated(self, epoch: int, values: dict[str, float], line: str, is_best: bool) -> None:
        """Receive the evaluation of the weights that count, during a pause; the task makes ``values`` and ``line``."""

    #: reason to end training here, after ``epoch_evaluated`` or before training begins; equal on every rank
    ends_training = ""

    def resumed(self) -> None:
        """Continue after a pause."""

    def training_done(self) -> None:
        """End training: all epochs are trained, evaluated and saved."""

    #: from ``evaluation_started`` on: the task keeps records for figures (``EvaluationStep.keeps_records``)
    wants_records = False

    def evaluation_started(self, is_shown: bool) -> None:
        """Start an evaluation; ``is_shown`` is true for the last one of a run, of labeled samples."""

    def batch_evaluated(self, batch: dict[str, Any], records: Records | None) -> None:
        """Receive an evaluated batch, with the records that ``Task.eval_step`` returned."""

    def evaluation_done(self, facts: dict[str, Any]) -> None:
        """End a run that only evaluates; ``facts`` are plain values about what it evaluated."""
