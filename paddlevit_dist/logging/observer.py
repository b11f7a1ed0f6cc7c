"""What a program can learn of a training while it runs.

An observer is a class derived from ``Observer`` with some of its methods. ``register_observer("mine", Mine)`` gives it
a name for ``-log_to=mine``; ``Trainer(..., observers=[Mine()])`` takes it as it is. TensorBoard and VisualDL
(``event_logs``), Weights & Biases and MLflow (``services``) are observers, too.
"""

import collections
import importlib.util
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..registry import derived, resolve
from ..runtime import printing
from ..runtime.errors import UserError
from .record import recorded_events

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"


class RunFacts(NamedTuple):
    """What an observer is told at the start.

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
    config: Any
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
                yield {"update": event["epoch"] * self.updates_per_epoch, **event, **ends_of(event)}


def ends_of(evaluation: dict[str, Any]) -> dict[str, float]:
    """For observers, of a line of ``metrics.jsonl``: the ends of the main score's interval, which is the first that it
    has, such as "top-1 low" and "top-1 high"; empty where it has none."""
    for name, ends in evaluation.get("interval", {}).items():
        if name != "percent":
            return dict(zip((f"{name} low", f"{name} high"), ends or ()))
    return {}


class Observer:
    """Base class of all observers; each method may be left out. Called in the main process only, in its main thread.

    An observer must not change the training, and nothing it is given is on a device. While it works the training waits.
    What it raises in ``start`` ends the run. Later the run goes on without this observer: its traceback is shown and
    logged, as is one line for an ``OSError`` such as a full disk. A ``UserError`` ends the run at any time with its
    message as the last line: for an observer that has seen enough.
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


def observers_of(names: Sequence[str]) -> dict[str, Any]:
    """Name -> what is registered as the observer, once it is seen that it has what it needs.

    Raises:
        UserError: there is no such observer, or it lacks a package.
    """
    found = {name: resolve("observer", name) for name in names}
    for name, target in found.items():
        needed = derived(target, Observer).requires
        missing = [pip for module, pip in needed.items() if not importlib.util.find_spec(module)]
        if missing:
            raise UserError(f"LOG_TO {name}: not installed; python -m pip install {' '.join(missing)}, or leave it out")
    return found


def make_observers(names: Sequence[str]) -> list[Any]:
    """The observers with these names; raises as ``observers_of`` does."""
    return [make() for make in observers_of(names).values()]


class Observers:
    """Passes on to all observers of a run, in their order, what happens; keeps what they raise away from it.

    Args:
        observers: none on ranks other than the main one.
        say: takes a line for terminal and log.
    """

    def __init__(self, observers: Sequence[Any], say: Callable[[str], None]) -> None:
        self._observers: list[Observer] = [derived(observer, Observer) for observer in observers]
        self._say = say
        self._saved: collections.deque[Path] = collections.deque()
        self._is_started = False

    def start(self, run: RunFacts) -> None:
        for observer in self._observers:
            observer.start(run)
        self._is_started = True

    def report(self, update: int, values: dict[str, float]) -> None:
        self._tell("report", update, values)

    def evaluated(self, update: int, epoch: int, values: dict[str, float]) -> None:
        self._tell("evaluated", update, epoch, values)

    def note_saved(self, path: Path) -> None:
        """May be called in any thread."""
        self._saved.append(path)

    def end(self, outcome: str) -> None:
        if self._is_started:
            self._tell("end", outcome)
            self._is_started = False

    def _tell(self, method: str, *arguments: Any) -> None:
        while self._saved:
            self._tell_all("saved", self._saved.popleft())
        self._tell_all(method, *arguments)

    def _tell_all(self, method: str, *arguments: Any) -> None:
        for observer in list(self._observers):
            try:
                # Each its own copy: one that changes it changes nothing for the next.
                getattr(observer, method)(*(dict(part) if isinstance(part, dict) else part for part in arguments))
            except UserError:
                raise
            except Exception as error:
                self._observers.remove(observer)
                self._explain(observer, method, error)

    def _explain(self, observer: Observer, method: str, error: Exception) -> None:
        name = type(observer).__name__
        if not isinstance(error, OSError):
            for line in printing.block(traceback.format_exc()).splitlines():
                self._say(line)
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        self._say(f"observer {name} is left out from here on, the run continues: in {method}, {reason}")
