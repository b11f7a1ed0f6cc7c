"""How fast training is, and how much time is left."""

from __future__ import annotations

import time
from typing import Optional, Tuple

from ..loading.loader import Loader


class RemainingTime:
    """Estimated from the pace since the start of this process, excluding evaluations.

    Args:
        updates: still to do.
        evaluations: still to do.
    """

    def __init__(self, updates: int, evaluations: int) -> None:
        self._updates = updates
        self._evaluations = evaluations
        self._done = 0
        self._training_seconds = 0.0
        self._evaluation_seconds: Optional[float] = None
        self._since = time.perf_counter()

    def count_update(self) -> None:
        self._done += 1

    def pause(self) -> None:
        """What happens until ``go_on`` is not training: an evaluation, a checkpoint."""
        self._training_seconds += time.perf_counter() - self._since

    def go_on(self) -> None:
        self._since = time.perf_counter()

    def count_evaluation(self, seconds: float) -> None:
        self._evaluations -= 1
        self._evaluation_seconds = seconds

    def seconds(self) -> float:
        """For what is left of training and, once one was seen, of evaluations; called while training."""
        evaluations = max(self._evaluations, 0) * (self._evaluation_seconds or 0.0)
        return self.seconds_of(max(self._updates - self._done, 0)) + evaluations

    def seconds_of(self, updates: int) -> float:
        """For so many updates, without evaluations."""
        return self._seconds_per_update() * updates

    def text(self) -> str:
        """Such as "3 min left"."""
        return f"{duration(self.seconds())} left"

    def _seconds_per_update(self) -> float:
        training = self._training_seconds + time.perf_counter() - self._since
        return training / max(self._done, 1)


class Pace:
    """Throughput of one epoch and time spent waiting for data, since the last report and in total.

    Attributes:
        updates: since the start of the epoch, or of this process in its middle.
        waited: seconds for data until the last report.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._epoch_started = self._started = time.perf_counter()
        self._loader.seconds_waited = 0.0
        self._reported = 0
        self.updates = 0
        self.waited = 0.0

    def count_update(self) -> None:
        self.updates += 1

    def finish(self, samples_per_update: int) -> Tuple[float, float, float]:
        """Samples per second over all ranks, this rank's share of time spent waiting for data, and the seconds since
        the last report."""
        now = time.perf_counter()
        seconds = max(now - self._started, 1e-9)
        rate = (self.updates - self._reported) * samples_per_update / seconds
        waiting = self._loader.seconds_waited / seconds
        self.waited += self._loader.seconds_waited
        self._started, self._reported, self._loader.seconds_waited = now, self.updates, 0.0
        return rate, waiting, seconds

    def seconds_of_epoch(self) -> float:
        return time.perf_counter() - self._epoch_started


def duration(seconds: float) -> str:
    """In the unit that a person would use: 45 s, 3 min, 2 h 10 min, 3 d 4 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"
