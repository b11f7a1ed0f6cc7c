"""What a test sets for its whole process: the time, what this process notes as its status, and that it does not end."""

import os
import threading
import time
from collections.abc import Callable

import pytest

from paddlevit_dist.launch import status


class SimulatedTime:
    """Attributes:
    now: what ``time.monotonic`` returns, in seconds.
    waits: for how long ``time.sleep`` and events with a limit were called, in seconds, in order.
    meanwhile: called after each of them, with how many there were.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.waits: list[float] = []
        self.meanwhile: Callable[[int], object] = lambda number: None

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        self.meanwhile(len(self.waits))


@pytest.fixture
def simulated_time(monkeypatch) -> SimulatedTime:
    """The time passes only when the process sleeps, or waits for an event that no thread sets, or a test sets it."""
    simulated, wait = SimulatedTime(), threading.Event.wait

    def wait_for_event(event: threading.Event, seconds: float | None = None) -> bool:
        if seconds is None:
            return wait(event)
        if not event.is_set():
            simulated.sleep(seconds)
        return event.is_set()

    monkeypatch.setattr(time, "monotonic", lambda: simulated.now)
    monkeypatch.setattr(time, "sleep", simulated.sleep)
    monkeypatch.setattr(threading.Event, "wait", wait_for_event)
    return simulated


@pytest.fixture
def exit_codes(monkeypatch) -> list[int]:
    """The codes with which the process would have ended at once; it goes on instead."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.fixture
def fresh_status(monkeypatch) -> Callable[[], None]:
    """Let this process be one that has noted nothing, now and whenever the function is called."""

    def forget() -> None:
        monkeypatch.setattr(status, "_notes", status._StatusNotes())

    forget()
    return forget
