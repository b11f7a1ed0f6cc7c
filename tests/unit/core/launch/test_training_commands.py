"""Commands that a command starts: their environment, and the requests that reach them."""

import os
import signal
import subprocess
import sys

import pytest

from paddlevit_dist.core.launch import training_commands, tuning
from paddlevit_dist.core.runtime import process_exit, signals
from paddlevit_dist.core.runtime.environment import ROOT


class Process:
    def __init__(self, calls: list, name: str) -> None:
        self.calls, self.name = calls, name

    def __getattr__(self, action: str):
        return lambda *words: self.calls.append((self.name, action, *words))


def test_a_command_is_train_with_these_words_variables_and_its_parent(monkeypatch):
    calls = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: calls.append((command, options)))
    for name, value in {"PYTHONPATH": "/mine", "A": "1", "B": "1", "C": "1", "PADDLEVIT_DIST_ENVIRONMENT": "C"}.items():
        monkeypatch.setenv(name, value)
    training_commands.start(["-epochs=3", "SEED", "1"], {"B": "2"}, output=7)
    ((command, options),) = calls
    assert command == [sys.executable, "-m", "paddlevit_dist", "train", "-epochs=3", "SEED", "1"]
    environment = options.pop("env")
    wanted = {"PYTHONPATH": f"/mine:{ROOT}", "A": "1", "B": "2", process_exit.PARENT: str(os.getpid())}
    assert environment == {**tuning.without_tuning(os.environ), **wanted} and "C" not in environment
    assert options == {"stdin": subprocess.DEVNULL, "stdout": 7}
    monkeypatch.delenv("PYTHONPATH")
    training_commands.start([])
    assert calls[1][1]["env"]["PYTHONPATH"] == str(ROOT) and calls[1][1]["stdout"] is None


@pytest.mark.parametrize("numbers", [[], [signal.SIGTERM], [signal.SIGINT]])
@pytest.mark.parametrize("must_save", [True, False])
def test_requests_reach_all_and_a_save_once(own_handlers, numbers, must_save):
    calls = []
    signals.record_only()
    for number in [*numbers, *[signal.SIGUSR1] * must_save]:
        signal.raise_signal(number)
    training_commands.forward_requests([Process(calls, name) for name in "ab"])
    saves, stops = [("send_signal", signal.SIGUSR1)] * must_save, [("terminate",)] * len(numbers)
    assert calls == [(name, *call) for name in "ab" for call in [*saves, *stops]] and not signals.save_requested()


def test_a_second_interrupt_ends_at_once_and_all_are_killed_and_waited_for(own_handlers):
    calls = []
    signals.record_only_as_parent()
    for _ in range(2):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(signals.ProcessInterrupted) as interrupt:
        training_commands.forward_requests([Process(calls, "a")])
    assert interrupt.value.again and interrupt.value.number == signal.SIGINT and calls == []
    training_commands.kill([Process(calls, name) for name in "ab"])
    assert calls == [(name, action) for name in "ab" for action in ("kill", "wait")]
