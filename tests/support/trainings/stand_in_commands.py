"""Training commands that this process starts: stand-ins, which do what a test plans for them, and start nothing."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Event = Callable[[Path], int | None]


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
