"""Throughput of a training run and the time that it has left."""

import time
from collections.abc import Callable

from ..data.loader import DeviceLoader


class EtaEstimator:
    """Estimates the time left from the pace of this process so far, without pauses, and the last evaluation."""

    def __init__(self, updates: int, evaluations: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._updates, self._evaluations = updates, evaluations
        self._done = 0
        self._training_seconds = self._evaluation_seconds = 0.0
        self._clock = clock  # returns seconds
        self._since = self._clock()  # time of the last ``pause`` or ``resume``

    def count_update(self) -> None:
        """Count one more step."""
        self._done += 1

    def pause(self) -> None:
        """Stop counting training time, for an evaluation or a checkpoint, until ``resume``."""
        self._training_seconds += self._clock() - self._since
        self._since = self._clock()

    def count_evaluation(self) -> None:
        """Note that an evaluation that began with ``pause`` is done."""
        self._evaluations -= 1
        self._evaluation_seconds = self._clock() - self._since

    def resume(self) -> None:
        """Count training time again."""
        self._since = self._clock()

    def seconds(self) -> float:
        """Estimate the seconds left for training and, after the first one, for evaluations; called while training."""
        evaluations = max(self._evaluations, 0) * self._evaluation_seconds
        return self.estimate_seconds(max(self._updates - self._done, 0)) + evaluations

    def estimate_seconds(self, updates: int) -> float:
        """Estimate the seconds that this number of steps takes, without evaluations."""
        training = self._training_seconds + self._clock() - self._since
        return training / max(self._done, 1) * updates

    def text(self) -> str:
        """Format the time left, such as "3 min left"."""
        return f"{format_duration(self.seconds())} left"


class ThroughputMeter:
    """Throughput of one epoch and time spent waiting for data, since the last report and in total.

    ``updates``: steps since the start of the epoch; ``waited``: seconds spent waiting for data up to the last report.
    """

    def __init__(self, loader: DeviceLoader, clock: Callable[[], float] = time.perf_counter) -> None:
        self._loader = loader
        self._clock = clock  # returns seconds
        self._epoch_started = self._started = self._clock()
        self._loader.seconds_waited = 0.0
        self._reported = 0
        self.updates = 0
        self.waited = 0.0

    def count_update(self) -> None:
        """Count one more step."""
        self.updates += 1

    def finish(self, samples_per_update: int) -> tuple[float, float, float]:
        """Measure the time since the last report and start a new interval.

        Returns samples per second over all ranks, share of the time that this rank waited for data (0 to 1), and the
        seconds.
        """
        now = self._clock()
        seconds = max(now - self._started, 1e-9)
        rate = (self.updates - self._reported) * samples_per_update / seconds
        waiting = self._loader.seconds_waited / seconds
        self.waited += self._loader.seconds_waited
        self._started, self._reported, self._loader.seconds_waited = now, self.updates, 0.0
        return rate, waiting, seconds

    def state_dict(self) -> dict[str, float]:
        """Return this process's counts for the checkpoint."""
        now = self._clock()
        return {
            "updates": self.updates,
            "reported": self._reported,
            "seconds": now - self._epoch_started,
            "unreported": now - self._started,
            "waited": self.waited,
            "unreported_wait": self._loader.seconds_waited,
        }

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore the counts of a ``state_dict``."""
        now = self._clock()
        self.updates, self._reported, self.waited = int(state["updates"]), int(state["reported"]), state["waited"]
        self._epoch_started, self._started = now - state["seconds"], now - state["unreported"]
        self._loader.seconds_waited = state["unreported_wait"]

    def estimate_epoch_seconds(self) -> float:
        """Return the seconds since the start of the epoch."""
        return self._clock() - self._epoch_started


def format_duration(seconds: float) -> str:
    """Format a duration in familiar units: 45 s, 3 min, 2 h 10 min, 3 d 4 h."""
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
