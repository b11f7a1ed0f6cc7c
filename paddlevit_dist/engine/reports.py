"""What a training tells of its course: to the record, to the terminal, and in words for the log."""

from __future__ import annotations

import math
from typing import Any, Dict, List

from ..contracts.task import Task
from ..errors import UserError
from ..observe.display import Field, fields_of
from ..observe.hints import DataWaitHint
from ..observe.memory import memory_mib
from ..observe.observer import Observers
from ..observe.progress import Progress
from ..observe.record import RunRecord
from ..parallel import world_size
from ..parallel.devices import cpu_cores
from .remaining import Pace, RemainingTime, duration


class Reports:
    """Turns the numbers of a report or an epoch into events, a line for the log and what terminal and observers get.

    Args:
        record, observers: on the main process; elsewhere they do nothing.
        samples: of the training.
        loader_processes: of each training process.
    """

    def __init__(
        self,
        record: RunRecord,
        observers: Observers,
        task: Task,
        samples: Any,
        loader_processes: int,
        remaining: RemainingTime,
    ) -> None:
        self._record = record
        self._observers = observers
        self._sample_name = task.sample_name
        self._remaining = remaining
        self._fields: List[Field] = []
        self._data_wait = DataWaitHint(
            loader_processes, world_size(), cpu_cores(), lambda: task.reading_advice(samples)
        )

    def training(
        self, place: Dict[str, Any], norm: float, means: Dict[str, float], skipped: int, speed: Any, bar: Progress
    ) -> str:
        """Record what happened since the last report; returns it for the log.

        Args:
            place: epoch, update and learning rate.
            norm: of the last update's gradients; not finite where that update was skipped.
            means: of the terms of the loss.
            skipped: updates, since the start of the training.
            speed: what ``Pace.finish`` has returned.
        """
        rate, waiting, seconds = speed
        memory = memory_mib() if self._record.writes else None
        values = {
            **place,
            **({"gradient_norm": norm} if math.isfinite(norm) else {}),
            **means,
            "skipped_updates": skipped,
            "samples_per_second": round(rate, 2),
            "data_wait_fraction": round(waiting, 4),
            **({} if memory is None else {"memory_mib": memory}),
        }
        self._record.event("training", values)
        self._observers.report(place["update"], values)
        hint = self._data_wait.look(waiting, seconds)
        if hint is not None:
            self._record.say(hint)
        self._fields = fields_of(values, means, self._sample_name)
        self.show(bar)
        left = self._remaining.text()
        return (
            f"{in_words(means)} gradient norm {norm:.3g} lr {place['learning_rate']:.2e} {rate:.0f} "
            f"{self._sample_name}/s data wait {waiting:.0%}, {f'{skipped} skipped so far, ' if skipped else ''}{left}"
        )

    def show(self, bar: Progress) -> None:
        """Give a bar the time left and the last report, if there was one."""
        if self._fields:
            of_epoch = duration(self._remaining.seconds_of(bar.left))
            bar.note(f"{of_epoch} left, run {self._remaining.text()}")
            bar.show(self._fields)

    def epoch(self, epoch: int, epochs: int, means: Dict[str, float], pace: Pace, samples_per_update: int) -> None:
        """Record an epoch that has been trained."""
        seconds = pace.seconds_of_epoch()
        self._record.event("epoch", {"epoch": epoch, "seconds": round(seconds, 3), **means})
        rate = pace.updates * samples_per_update / max(seconds, 1e-9)
        self._record.say(
            f"epoch {epoch}/{epochs} training: {in_words(means)} {rate:.0f} {self._sample_name}/s data wait "
            f"{pace.waited / max(seconds, 1e-9):.0%} ({seconds:.1f} s, {self._remaining.text()})"
        )


def require_finite(values: Dict[str, float], when: str) -> None:
    """Nothing from a diverged model is recorded or stays saved. The values must be equal on every rank.

    Raises:
        UserError: one of them is not finite.
    """
    bad = [name for name, value in values.items() if not math.isfinite(value)]
    if bad:
        raise UserError(
            f"'{bad[0]}' is {values[bad[0]]} {when}: training has diverged; lower TRAIN.BASE_LR, set "
            "TRAIN.GRAD_CLIP or a longer warm-up, and -resume=auto from the last checkpoint"
        )


def in_words(values: Dict[str, float]) -> str:
    """Such as "loss 1.2345 top-1 45.67"."""
    return " ".join(
        f"{name} {value:.4f}" if abs(value) < 10 else f"{name} {value:.2f}" for name, value in values.items()
    )
