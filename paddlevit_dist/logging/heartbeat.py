"""An occasional line while a run has nothing else to report."""

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

# Held by threads other than the main one while they print: a process forked meanwhile would inherit a stream that
# stays locked forever.
printing = threading.Lock()
os.register_at_fork(before=printing.acquire, after_in_parent=printing.release, after_in_child=printing.release)


class Heartbeat:
    """Says where the run is if nothing was printed for a while: ``with Heartbeat(say).at("reading the list"): ...``

    Args:
        say: prints a line.
        shown: False on all ranks but the main one.
        quiet_seconds: time without a line or a moving bar before one is printed.
        poll_seconds: time between looks at the clock.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        shown: bool = True,
        quiet_seconds: float = QUIET_SECONDS,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._say = say
        self._shown = shown
        self._quiet_seconds = quiet_seconds
        self._poll_seconds = poll_seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._place = ("", time.monotonic())

    def at(self, place: str) -> "Heartbeat":
        """Note where the run is now, also for the watchdog; may be used as a context, which is then watched."""
        self._place = (place, time.monotonic())
        status.note(place)
        return self

    def __enter__(self) -> "Heartbeat":
        if self._shown:
            progress.note_sign_of_life()
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
            if progress.seconds_since_sign_of_life() < self._quiet_seconds:
                continue
            place, since = self._place
            if being_compiled:
                place = "compiling, once"
            with printing:
                self._say(f"still {place} ({time.monotonic() - since:.0f} s)")
