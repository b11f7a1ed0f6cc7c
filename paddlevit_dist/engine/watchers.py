"""What is told of a training while it goes on, and who listens: each concern that is not the loop's is one class.

They are told in their order, on every rank, and act alike on all of them where they communicate. What users add is an
``Observer`` (``logging.observer``), which only learns what a report or an evaluation has found.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..tasks.task import Records, Step, Term


class Update(NamedTuple):
    """An update that has been made.

    Attributes:
        step: its place; ``step.update`` updates were made before it.
        terms: of the loss, one dictionary for each micro-batch, on the device.
        is_finite: it has changed the weights.
        learning_rate: it was made with.
        made: updates of the epoch up to it.
        is_last: of the epoch.
    """

    step: Step
    terms: list[dict[str, Term]]
    is_finite: bool
    learning_rate: float
    made: int
    is_last: bool


class Watcher:
    """Base class: does nothing with what it is told."""

    def epoch_started(self, epoch: int, made: int) -> None:
        """An epoch begins, of which ``made`` updates were made by the run that this one continues."""

    def data_awaited(self) -> None:
        """The loop turns to the loader for the next update's batches."""

    def update_started(self, step: Step, batches: list[dict[str, Any]]) -> None:
        """An update's batches are there."""

    def update_done(self, update: Update) -> None:
        """An update is made, and counted."""

    def epoch_left(self) -> None:
        """No more updates in this epoch: all are made, or the run is ending."""

    def epoch_done(self, epoch: int) -> None:
        """All updates of the epoch are made."""

    def paused(self, what: str) -> None:
        """Something that is no training begins, in words that follow "the run is"."""

    def evaluated(self, epoch: int, values: dict[str, float], line: str, is_best: bool) -> None:
        """The weights that count were evaluated, in a pause; ``values`` and ``line`` are the task's."""

    #: why the training is to end here, after ``evaluated`` or before it begins; equal on every rank
    ends_training = ""

    def resumed(self) -> None:
        """What was a pause is over."""

    def training_done(self) -> None:
        """All epochs are trained, evaluated and saved."""

    #: from ``evaluation_started`` on: the task is to keep records for figures (``EvaluationStep.keeps_records``)
    wants_records = False

    def evaluation_started(self, is_shown: bool) -> None:
        """An evaluation begins; ``is_shown``: it is the one that a run ends with, of labelled samples."""

    def batch_evaluated(self, batch: dict[str, Any], records: Records | None) -> None:
        """A batch was evaluated; ``records`` as ``Task.eval_step`` returned them."""

    def evaluation_done(self, facts: dict[str, Any]) -> None:
        """A run that only evaluates is over; ``facts`` are plain values that tell what was evaluated."""


class Watchers:
    """Tells each of them what happens."""

    def __init__(self, watchers: Sequence[Watcher] = ()) -> None:
        self._watchers = list(watchers)

    def tell(self, event: str, *arguments: Any) -> None:
        """Call the method of this name of each, in their order."""
        for watcher in self._watchers:
            getattr(watcher, event)(*arguments)

    @property
    def end_training(self) -> str:
        """Why the training is to end here, empty where none of them says so (see ``Watcher.ends_training``)."""
        return next((watcher.ends_training for watcher in self._watchers if watcher.ends_training), "")

    @property
    def want_records(self) -> bool:
        """Whether any of them does (see ``Watcher.wants_records``)."""
        return any(watcher.wants_records for watcher in self._watchers)
