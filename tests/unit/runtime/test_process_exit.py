"""When a process ends without destructors, and what is flushed before."""

import io
import os
import sys
from types import SimpleNamespace

import pytest

from paddlevit_dist.runtime import process_exit


@pytest.fixture(autouse=True)
def ends(monkeypatch):
    """The ends of this process: none is real."""
    calls = []
    monkeypatch.setattr(process_exit, "_left_running", [])
    monkeypatch.setattr(process_exit, "_has_group", False)
    monkeypatch.setattr(os, "_exit", lambda code: calls.append(("exit", code)))
    monkeypatch.setattr(process_exit.threading, "_shutdown", lambda: calls.append("threads"))
    monkeypatch.setattr(process_exit.atexit, "_run_exitfuncs", lambda: calls.append("handlers"))
    return calls


def thread(calls, is_alive):
    return SimpleNamespace(join=lambda seconds: calls.append(("join", seconds)), is_alive=lambda: is_alive)


def test_a_plain_process_ends_as_python_does(ends):
    process_exit.leave_running(thread(ends, False))
    process_exit.end_if_in_danger(3)
    assert ends == [("join", 1.0)]


def test_a_process_of_a_group_runs_its_exit_handlers_only(ends):
    process_exit.note_group()
    process_exit.end_if_in_danger(3)
    assert ends == ["threads", "handlers", ("exit", 3)]


def test_a_thread_inside_a_library_ends_the_process_at_once(ends, monkeypatch):
    monkeypatch.setattr(os, "_exit", lambda code: sys.exit(code))
    for is_alive in (False, True):
        process_exit.leave_running(thread(ends, is_alive))
    process_exit.note_group()
    with pytest.raises(SystemExit) as ended:
        process_exit.end_if_in_danger(5)
    assert ended.value.code == 5 and ends == [("join", 1.0)] * 2


def test_open_files_are_flushed(ends, tmp_path):
    class Broken(io.StringIO):
        def flush(self):
            raise ValueError("broken")

    file, flushed = open(tmp_path / "a", "w"), []  # noqa: SIM115
    others = [Broken(), SimpleNamespace(flush=lambda: flushed.append(1))]  # and a queue, perhaps, that would wait
    file.write("text")
    assert (tmp_path / "a").read_text() == ""
    process_exit.leave(7)
    assert (tmp_path / "a").read_text() == "text" and ends == [("exit", 7)] and flushed == []
    file.close()
    others.clear()


@pytest.mark.parametrize("parent, is_gone", [(None, False), ("41", True), ("own", False)])
def test_a_command_ends_with_the_one_that_started_it(ends, monkeypatch, libraries, parent, is_gone):
    calls = []
    libraries[None] = SimpleNamespace(prctl=lambda *words: calls.append(words))
    monkeypatch.delenv(process_exit.PARENT, raising=False)
    if parent is not None:
        monkeypatch.setenv(process_exit.PARENT, str(os.getppid()) if parent == "own" else parent)
    process_exit.die_with_command()
    assert process_exit.PARENT not in os.environ
    assert calls == ([] if parent is None else [(1, 9)]) and ends == ([("exit", 1)] if is_gone else [])
