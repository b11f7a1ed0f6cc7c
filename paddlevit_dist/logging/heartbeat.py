"""A line from time to time while a run prints nothing else."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ..launch import status
from ..runtime.compiled import being_compiled
from . import progress

QUIET_SECONDS = 25.0  # with the poll below, a line appears at least every 30 seconds
_POLL_SECONDS = 1.0

# Held by threads other than the main one while they print: a process forked in the meantime would inherit a stream that
# stays locked forever.
printing = threading.Lock()
os.register_at_fork(before=printing.acquire, after_in_parent=printing.release, after_in_child=printing.release)


class Heartbeat:
    """Prints the activity of the run if nothing was printed for a while.

    Use it as ``with Heartbeat(log).at("reading the list"): ...``.

    Args:
        log: prints a line.
        shown: False on all ranks but 0.
        quiet_seconds: time without a line or a moving bar before one is printed.
        poll_seconds: time between checks of the clock.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        shown: bool = True,
        quiet_seconds: float = QUIET_SECONDS,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._log = log
        self._shown = shown
        self._quiet_seconds = quiet_seconds
        self._poll_seconds = poll_seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._place = ("", time.monotonic())

    def at(self, place: str) -> "Heartbeat":
        """Set the current activity, also for the watchdog; can be used as a context, which is then watched."""
        self._place = (place, time.monotonic())
        status.note(place)
        return self

    def __enter__(self) -> "Heartbeat":
        if self._shown:
            progress.note_output()
            self._stop.clear()
            self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._poll_seconds):
            if progress.seconds_since_output() < self._quiet_seconds:
                continue
            place, since = self._place
            if being_compiled:
                place = "compiling, once"
            with printing:
                self._log(f"still {place} ({time.monotonic() - since:.0f} s)")
