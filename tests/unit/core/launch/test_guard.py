"""When a guard asks for the stacks of a silent process and when it kills it, by a simulated clock."""

import faulthandler
import io
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from paddlevit_dist.core.launch import guard

PROCESS = 41
HANDLED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}  # by the process itself


class Simulation:
    """A rank that sends messages at given seconds, seen by a guard that is suspended now and then."""

    def __init__(self, messages=(), suspended=None, parent_ends=1e9, pipe_ends=1e9):
        self.messages, self.suspended = list(messages), dict(suspended or {})
        self.parent_ends, self.pipe_ends = parent_ends, pipe_ends
        self.time, self.events = None, []

    @property
    def now(self):
        return self.time.now

    def select(self, reads, writes, errors, timeout):
        assert (reads, writes, errors) == ([0], [], [])
        begun = self.now
        assert begun < 1000.0, "it neither ends nor kills"
        self.time.now += self.suspended.pop(begun, 0.0) + timeout
        is_ready = self.now >= self.pipe_ends or any(begun < moment <= self.now for moment in self.messages)
        return ([0] if is_ready else []), [], []

    def read(self, descriptor, size):
        assert descriptor == 0 and size == 1 << 16  # all that a pipe holds
        return b"" if self.now >= self.pipe_ends else b"."


@pytest.fixture
def simulate(monkeypatch, simulated_time, libraries, own_signals):
    """Return a function that lets a guard see a simulation, and returns what it writes and which signals it sends."""

    def run(simulation, seconds):
        calls, events = [], simulation.events
        simulation.time, simulated_time.now = simulated_time, 0.0
        functions = {
            "getppid": lambda: PROCESS if simulation.now < simulation.parent_ends else 1,
            "read": simulation.read,
            "write": lambda descriptor, text: events.append((descriptor, text.decode())),
            "kill": lambda process, number: events.append((process, number, simulation.now)),
        }
        monkeypatch.setattr(guard, "os", SimpleNamespace(**functions))
        monkeypatch.setattr(guard, "select", SimpleNamespace(select=simulation.select))
        libraries[None] = SimpleNamespace(prctl=lambda *words: calls.append(words))
        guard.watch(PROCESS, 3, seconds)
        assert {signal.getsignal(number) for number in HANDLED} == {signal.SIG_IGN}
        assert calls == [(1, signal.SIGKILL)]  # PR_SET_PDEATHSIG
        return events

    return run


def test_a_silent_process_is_asked_once_and_killed_three_seconds_later(simulate):
    asked, told, killed = simulate(Simulation([2.0, 3.0]), 5.0)
    assert asked == (PROCESS, signal.SIGUSR2, 8.25)
    assert killed == (PROCESS, signal.SIGKILL, 11.25)
    text = (
        "error: rank 3 failed: it has run no Python for 8 s (WATCHDOG_SECONDS): it is stopped, or holds Python's lock\n"
    )
    assert told == (2, text)


def test_a_message_after_the_question_starts_afresh(simulate):
    events = simulate(Simulation([6.0, 13.0]), 5.0)
    assert [event[1:] for event in events if event[0] == PROCESS] == [
        (signal.SIGUSR2, 5.25),
        (signal.SIGUSR2, 11.25),
        (signal.SIGUSR2, 18.25),
        (signal.SIGKILL, 21.25),
    ]


def test_time_in_which_the_guard_was_suspended_counts_two_seconds(simulate):
    events = simulate(Simulation(suspended={1.0: 100.0, 101.5: 0.5}), 5.0)
    assert events[0] == (PROCESS, signal.SIGUSR2, 103.5)  # after 1 + 2 + 0.25 + 0.75 + 1.25 s
    assert events[2] == (PROCESS, signal.SIGKILL, 106.5)


@pytest.mark.parametrize("end", ["parent_ends", "pipe_ends"])
def test_it_ends_with_its_process_or_the_pipe(simulate, end):
    simulation = Simulation([2.0], **{end: 4.0})
    assert simulate(simulation, 5.0) == [] and simulation.now == 4.0


def test_a_guarded_process_never_waits_for_its_guard(monkeypatch, own_signals, capfd):
    reading, writing = os.pipe()
    calls, usual = [], signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def start(words, **options):
        calls.append((words, options, signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        ends = {name: lambda name=name: calls.append(name) for name in ("kill", "wait")}
        return SimpleNamespace(stdin=io.FileIO(writing, "w"), **ends)

    monkeypatch.setattr(subprocess, "Popen", start)
    guarded = guard.Guard(3, 0.5)
    signal.raise_signal(signal.SIGUSR2)
    faulthandler.unregister(signal.SIGUSR2)
    assert re.search(r"^Current thread .*\n.*test_a_guarded_process_never_waits", capfd.readouterr().err, re.MULTILINE)
    ((words, options, blocked),) = calls
    assert words == [sys.executable, "-I", guard.__file__, str(os.getpid()), "3", "0.5"]
    assert options == {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    assert blocked - usual == HANDLED - usual
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == usual
    for _ in range(3):
        guarded.signal_alive()
    assert os.read(reading, 10) == b"..."
    assert not os.get_blocking(writing)
    with open(writing, "wb", buffering=0, closefd=False) as pipe:
        while pipe.write(bytes(1 << 16)):  # until it is full
            pass
    guarded.signal_alive()
    os.close(reading)
    guarded.signal_alive()
    guarded.close()
    assert calls[1:] == ["kill", "wait"]
