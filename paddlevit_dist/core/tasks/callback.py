"""Base class of callbacks, and what a callback learns of a run.

``register_callback("mine", Mine)`` gives a class a name for ``-log_to=mine``; ``Trainer(callbacks=[Mine()])`` takes an
object. Loggers (``logging.event_logs``, ``logging.services``) are callbacks too. Parts of the training itself, on every
rank, are hooks (``engine.hooks``).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..runtime.metrics_file import recorded_events
from ..settings.every_run import RunSettings
from ..settings.yaml_output import dump_yaml


class RunFacts(NamedTuple):
    """Facts about a run, passed to callbacks at the start.

    Attributes:
        folder: the output folder, SAVE.
        config: the frozen configuration; ``config.TRAIN.BASE_LR``, for example.
        trains: False if the run only evaluates.
        epochs: of the whole run.
        updates_per_epoch: over all processes.
        update: updates already made, in a resumed run; 0 in a new one.
    """

    folder: Path
    config: RunSettings
    trains: bool
    epochs: int = 0
    updates_per_epoch: int = 0
    update: int = 0

    @property
    def config_text(self) -> str:
        """The configuration as YAML."""
        return dump_yaml(self.config)

    def history(self) -> Iterator[dict[str, Any]]:
        """Yield the earlier reports and evaluations of a resumed run, except for those that it repeats.

        They are the lines of ``metrics.jsonl`` of the kinds "training" and "evaluation", all with their ``update``. A
        number that was not finite is None. Scores with the name of a field, such as "precision", are in "scores".
        """
        for event in recorded_events(self.folder) if self.update else ():
            is_reported = event.get("kind") in ("training", "evaluation") and "epoch" in event
            update = event.get("update", event.get("epoch", 0) * self.updates_per_epoch)
            if is_reported and not event.get("superseded") and update <= self.update:
                yield {"update": update, **event, **get_interval_ends(event)}


def get_interval_ends(evaluation: dict[str, Any]) -> dict[str, float]:
    """Return the ends of the main score's interval in a line of ``metrics.jsonl``, for callbacks.

    The main score is the first with an interval; the names are such as "top-1 low" and "top-1 high". Empty without one.
    """
    for name, ends in evaluation.get("interval", {}).items():
        if name != "percent":
            return dict(zip((f"{name} low", f"{name} high"), ends or ()))
    return {}


class Callback:
    """Base class; each method is optional, and called on rank 0 only, in its main thread, while training waits.

    A callback must not change the training, and gets no values on a device. An exception in ``start`` ends the run.
    Later exceptions remove this callback, and the run continues: the traceback is printed and logged, or one line for
    an ``OSError`` such as a full disk. A ``UserError`` ends the run at any time with its message as the last line, for
    example to stop training early.
    """

    #: required module -> its name on pip; if one is missing, the run does not start
    requires: dict[str, str] = {}

    def start(self, run: RunFacts) -> None:
        """Handle the start of the run."""

    def report(self, update: int, values: dict[str, float]) -> None:
        """Handle a report after ``update`` updates.

        ``values`` are means since the last report, as in ``metrics.jsonl``: the terms of the loss, epoch,
        learning_rate, gradient_norm (if finite), skipped_updates, samples_per_second, data_wait_fraction, memory_mib.
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
