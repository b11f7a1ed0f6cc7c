"""When a guard asks for the stacks of a silent process and when it kills it, by a simulated clock."""

import io
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from paddlevit_dist.launch import guard

PROCESS = 41


class Simulation:
    """A rank that sends messages at given seconds, seen by a guard that is suspended now and then."""

    def __init__(self, messages=(), suspended=None, parent_ends=1e9, pipe_ends=1e9):
        self.messages, self.suspended = list(messages), dict(suspended or {})
        self.parent_ends, self.pipe_ends = parent_ends, pipe_ends
        self.now, self.events = 0.0, []

    def select(self, reads, writes, errors, timeout):
        assert (reads, writes, errors) == ([0], [], [])
        begun = self.now
        assert begun < 1000.0, "it neither ends nor kills"
        self.now += self.suspended.pop(self.now, 0.0) + timeout
        is_ready = self.now >= self.pipe_ends or any(begun < moment <= self.now for moment in self.messages)
        return ([0] if is_ready else []), [], []

    def read(self, descriptor, size):
        assert descriptor == 0 and size == 1 << 16  # all that a pipe holds
        return b"" if self.now >= self.pipe_ends else b"."

    def run(self, monkeypatch, seconds):
        handlers, libc = {}, SimpleNamespace(prctl=lambda *words: self.events.append(("prctl", *words)))
        functions = {
            "getppid": lambda: PROCESS if self.now < self.parent_ends else 1,
            "read": self.read,
            "write": lambda descriptor, text: self.events.append((descriptor, text.decode())),
            "kill": lambda process, number: self.events.append((process, number, self.now)),
        }
        monkeypatch.setattr(guard, "os", SimpleNamespace(**functions))
        monkeypatch.setattr(guard, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(guard, "select", SimpleNamespace(select=self.select))
        monkeypatch.setattr(guard, "ctypes", SimpleNamespace(CDLL=lambda name: libc))
        monkeypatch.setattr(guard.signal, "signal", handlers.__setitem__)
        guard.watch(PROCESS, 3, seconds)
        assert set(handlers) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
        assert set(handlers.values()) == {signal.SIG_IGN}
        assert self.events.pop(0) == ("prctl", 1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        return self.events


def test_a_silent_process_is_asked_once_and_killed_three_seconds_later(monkeypatch):
    asked, told, killed = Simulation([2.0, 3.0]).run(monkeypatch, 5.0)
    assert asked == (PROCESS, signal.SIGUSR2, 8.25)
    assert killed == (PROCESS, signal.SIGKILL, 11.25)
    text = (
        "error: rank 3 failed: it has run no Python for 8 s (WATCHDOG_SECONDS): it is stopped, or holds Python's lock\n"
    )
    assert told == (2, text)


def test_a_message_after_the_question_starts_afresh(monkeypatch):
    events = Simulation([6.0, 13.0]).run(monkeypatch, 5.0)
    assert [event[1:] for event in events if event[0] == PROCESS] == [
        (signal.SIGUSR2, 5.25),
        (signal.SIGUSR2, 11.25),
        (signal.SIGUSR2, 18.25),
        (signal.SIGKILL, 21.25),
    ]


def test_time_in_which_the_guard_was_suspended_counts_two_seconds(monkeypatch):
    events = Simulation(suspended={1.0: 100.0, 101.5: 0.5}).run(monkeypatch, 5.0)
    assert events[0] == (PROCESS, signal.SIGUSR2, 103.5)  # after 1 + 2 + 0.25 + 0.75 + 1.25 s
    assert events[2] == (PROCESS, signal.SIGKILL, 106.5)


@pytest.mark.parametrize("end", ["parent_ends", "pipe_ends"])
def test_it_ends_with_its_process_or_the_pipe(monkeypatch, end):
    simulation = Simulation([2.0], **{end: 4.0})
    assert simulation.run(monkeypatch, 5.0) == [] and simulation.now == 4.0


def test_a_guarded_process_never_waits_for_its_guard(monkeypatch):
    reading, writing = os.pipe()
    calls, usual = [], signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def start(words, **options):
        calls.append((words, options, signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        ends = {name: lambda name=name: calls.append(name) for name in ("kill", "wait")}
        return SimpleNamespace(stdin=io.FileIO(writing, "w"), **ends)

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(guard.faulthandler, "register", lambda *words, **options: calls.append((words, options)))
    guarded = guard.Guard(3, 0.5)
    stacks, (words, options, blocked) = calls
    assert stacks == ((signal.SIGUSR2,), {"file": sys.stderr, "all_threads": True})
    assert words == [sys.executable, "-I", guard.__file__, str(os.getpid()), "3", "0.5"]
    assert options == {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    assert blocked - usual == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2} - usual
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
    assert calls[2:] == ["kill", "wait"]
