"""Processes that this one would start: a test says when they end, and nothing is started."""

import os
import pickle
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from paddlevit_dist.core.launch import ProcessPlan, failures, spawn

Event = Callable[[Path], int | None]


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


class StartedWorkers(NamedTuple):
    """What workers were started with; ``in_child``: none of them is this process."""

    worker: Callable[..., None]
    arguments: tuple[Any, ...]
    plan: ProcessPlan
    watchdog_seconds: float | None
    in_child: bool


class StandInWorkers:
    """Attributes:
    started: what workers were started with, in order.
    work: called with each of them in place of the workers.
    """

    def __init__(self) -> None:
        self.started: list[StartedWorkers] = []
        self.work: Callable[[StartedWorkers], object] = lambda started: None

    def start(self, started: StartedWorkers) -> None:
        self.started.append(started)
        self.work(started)


@pytest.fixture
def workers(monkeypatch) -> StandInWorkers:
    """Stand in for the workers that this process starts, and for those that it is itself."""
    stand_ins = StandInWorkers()
    for name, in_child in (("_run_workers", True), ("_run_in_place", False)):
        monkeypatch.setattr(
            spawn, name, lambda *given, in_child=in_child: stand_ins.start(StartedWorkers(*given[:4], in_child))
        )
    return stand_ins


class StandInCommand:
    """Attributes:
    words: those of ``train``.
    environment, output: its environment, and where its stdout goes.
    terminated, killed: how often it was asked to end, and whether it was killed.
    """

    pid = 77

    def __init__(self, words: list[str], environment: Mapping[str, str], output: int | None, course: list[Event]):
        self.words, self.environment, self.output = words, environment, output
        self.terminated, self.killed = 0, False
        self.returncode: int | None = None
        self._left = course

    @property
    def folder(self) -> Path:
        return Path(next(word for word in self.words if word.startswith("-output=")).removeprefix("-output="))

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._left.pop(0)(self.folder)
        return self.returncode

    def terminate(self) -> None:
        self.terminated += 1

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> None:
        assert self.killed or self.returncode is not None


class StandInCommands:
    """Attributes:
    started: the commands, in order.
    courses: of those that are started next; the last is repeated. A course is called with the output folder, a function
        for each time that the command is looked at, until one returns its exit code.
    """

    def __init__(self) -> None:
        self.started: list[StandInCommand] = []
        self.courses: list[list[Event]] = []

    def start(self, command: list[str], *, env: Mapping[str, str], stdin: int, stdout: int | None) -> StandInCommand:
        course = self.courses.pop(0) if len(self.courses) > 1 else self.courses[0]
        words = command[command.index("train") + 1 :]
        self.started.append(StandInCommand(words, env, stdout, list(course)))
        return self.started[-1]


@pytest.fixture
def commands(monkeypatch) -> StandInCommands:
    """Stand in for the training commands that this process starts."""
    stand_ins = StandInCommands()
    monkeypatch.setattr(subprocess, "Popen", stand_ins.start)
    return stand_ins


def waits(folder: Path) -> None:
    """Do nothing."""


def ends(code: int) -> Event:
    return lambda folder: code


@pytest.fixture
def pools_in_this_process(monkeypatch) -> None:
    """Pools of processes start none: what they are given is pickled, and computed at once in this process."""

    def submit(pool: ProcessPoolExecutor, *job: Any) -> Future:
        function, *arguments = pickle.loads(pickle.dumps(job))
        future: Future = Future()
        try:
            future.set_result(pickle.loads(pickle.dumps(function(*arguments))))
        except Exception as error:
            future.set_exception(error)
        return future

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
