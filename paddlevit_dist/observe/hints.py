"""What a user could do about a run that is slower than it need be."""

from __future__ import annotations

from typing import Callable, Optional, Sequence

_MUCH = 0.1  # of the time
_REPORTS_OF_THE_START = 2  # while loader processes start, and fill what they have ready
_WORTH_SECONDS = 5.0  # a shorter wait is not worth anybody's time


class DataWaitHint:
    """Says once what helps a training that waits for its data for more than a tenth of the time.

    Args:
        workers: loader processes of each training process; ``processes`` of these share ``cores``.
        advice: what else makes samples come faster; called when it is needed.
    """

    def __init__(self, workers: int, processes: int, cores: int, advice: Callable[[], Sequence[str]]) -> None:
        self._workers = workers
        self._processes = processes
        self._cores = cores
        self._advice = advice
        self._reports = 0
        self._seconds = self._waited = 0.0
        self._is_given = False

    def look(self, share: float, seconds: float) -> Optional[str]:
        """Take note of a report; returns the hint, or None.

        Args:
            share: of the time since the last report that was spent waiting for data.
            seconds: since the last report.
        """
        self._reports += 1
        if self._is_given or self._reports <= _REPORTS_OF_THE_START:
            return None
        self._seconds += seconds
        self._waited += share * seconds
        if self._waited < _WORTH_SECONDS or self._waited <= _MUCH * self._seconds or share <= _MUCH:
            return None
        self._is_given = True
        waited = f"hint: {self._waited / self._seconds:.0%} of the time is spent waiting for data (more than 10%)"
        return f"{waited}: {'; '.join([self._about_workers(), *self._advice()])}"

    def _about_workers(self) -> str:
        each = f"{self._workers} loader process{'' if self._workers == 1 else 'es'}"
        each += " per training process" if self._processes > 1 else ""
        room = self._cores // self._processes - 1
        if room > self._workers:
            return f"try -num_workers={room} (now {each}, on {self._cores} cores)"
        return f"{each} and {self._processes} training process{'' if self._processes == 1 else 'es'} already share " + (
            f"{self._cores} core{'' if self._cores == 1 else 's'}"
        )
