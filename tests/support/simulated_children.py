"""Processes of a run that are none: of each a test says how it ends."""

import os

import pytest

from paddlevit_dist.core.launch import failures
from paddlevit_dist.core.runtime import signals


class SimulatedChild:
    """A process of which a test says when it ends."""

    def __init__(self, pid=0, exitcode=None):
        self.pid, self.exitcode, self.calls = pid, exitcode, []
        self.sentinel, self._writing = os.pipe()
        if exitcode is not None:
            self.end(exitcode)

    def end(self, code):
        self.exitcode = code
        os.close(self._writing)

    def __getattr__(self, name):
        return lambda *words: self.calls.append((name, *words))


def record(folder, rank, error):
    failures.keep_records(folder, rank)
    failures.record_finish() if error is None else failures.record_failure(error)


@pytest.fixture
def signals_sent(monkeypatch, kills, fresh_rank, fresh_status, simulated_time):
    """What this process, which handles signals and has received none, sends to others."""
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", f"{os.getpid()} 1.0")
    with signals.installed():
        yield kills
