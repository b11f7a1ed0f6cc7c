"""What is told of a training while it goes on, and who listens: each concern that is not the loop's is one class.

They are told in their order, on every rank, and act alike on all of them where they communicate. What users add is an
``Observer`` (``observe.observer``), which only learns what a report or an evaluation has found.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence

import paddle

from ..contracts.task import Step, Term
from ..observe.record import RunRecord
from ..transfers import is_on_gpu
from . import repetition
from .parts import TrainingParts
from .passes import PassesTrial


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
    terms: List[Dict[str, Term]]
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

    def update_started(self, step: Step, batches: List[Dict[str, Any]]) -> None:
        """An update's batches are there."""

    def update_done(self, update: Update) -> None:
        """An update is made, and counted."""

    def epoch_left(self) -> None:
        """No more updates in this epoch: all are made, or the run is ending."""

    def epoch_done(self, epoch: int) -> None:
        """All updates of the epoch are made."""

    def paused(self, what: str) -> None:
        """Something that is no training begins, in words that follow "the run is"."""

    def evaluated(self, epoch: int, values: Dict[str, float], line: str, is_best: bool) -> None:
        """The weights that count were evaluated, in a pause; ``values`` and ``line`` are the task's."""

    def resumed(self) -> None:
        """What was a pause is over."""


class Watchers:
    """Tells each of them what happens."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = list(watchers)

    def tell(self, event: str, *arguments: Any) -> None:
        """Call the method of this name of each, in their order."""
        for watcher in self._watchers:
            getattr(watcher, event)(*arguments)


class Averaging(Watcher):
    """TRAIN.MODEL_EMA follows the weights."""

    def __init__(self, parts: TrainingParts) -> None:
        self._ema = parts.ema

    def update_done(self, update: Update) -> None:
        if self._ema is not None and update.is_finite:
            self._ema.update()


class Compiling(Watcher):
    """TO_STATIC auto decides at the first batch."""

    def __init__(self, parts: TrainingParts) -> None:
        self._trial = PassesTrial(parts.config, parts.task, parts.model, parts.precision, parts.config.SEED)
        self._record = parts.record

    def update_started(self, step: Step, batches: List[Dict[str, Any]]) -> None:
        chosen = self._trial.decide(batches[0], step)
        if chosen is not None:
            self._record.say(chosen)


class Repeating(Watcher):
    """DETERMINISTIC says after the first update what of it has no kernel on a GPU that repeats."""

    def __init__(self, parts: TrainingParts) -> None:
        self._record: RunRecord = parts.record
        self._is_due = parts.config.DETERMINISTIC and is_on_gpu()

    def update_done(self, update: Update) -> None:
        if self._is_due:
            self._record.say(repetition.line_of(update.terms[0]))
            self._is_due = False


class EmptyingCache(Watcher):
    """Batches of very different sizes fragment a GPU's memory cache until no later batch fits."""

    def __init__(self, parts: TrainingParts) -> None:
        every = parts.config.TRAIN.EMPTY_CACHE_FREQ
        self._every = parts.task.empty_cache_freq if every is None else every

    def update_done(self, update: Update) -> None:
        if self._every and (update.step.update + 1) % self._every == 0 and paddle.get_device().startswith("gpu"):
            paddle.device.cuda.empty_cache()
