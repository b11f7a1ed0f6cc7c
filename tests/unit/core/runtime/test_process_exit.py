"""What is flushed before a process ends without destructors, and the command with which it ends."""

import io
import os
from types import SimpleNamespace

import pytest

from paddlevit_dist.core.runtime import process_exit


def test_open_files_are_flushed(exit_codes, tmp_path):
    class Broken(io.StringIO):
        def flush(self):
            raise ValueError("broken")

    file, flushed = open(tmp_path / "a", "w"), []  # noqa: SIM115
    others = [Broken(), SimpleNamespace(flush=lambda: flushed.append(1))]  # and a queue, perhaps, that would wait
    file.write("text")
    assert (tmp_path / "a").read_text() == ""
    process_exit.leave(7)
    assert (tmp_path / "a").read_text() == "text" and exit_codes == [7] and flushed == []
    file.close()
    others.clear()


@pytest.mark.parametrize("parent, is_gone", [(None, False), ("41", True), ("own", False)])
def test_a_command_ends_with_the_one_that_started_it(exit_codes, monkeypatch, libraries, parent, is_gone):
    calls = []
    libraries[None] = SimpleNamespace(prctl=lambda *words: calls.append(words))
    monkeypatch.delenv(process_exit.PARENT, raising=False)
    if parent is not None:
        monkeypatch.setenv(process_exit.PARENT, str(os.getppid()) if parent == "own" else parent)
    process_exit.die_with_command()
    assert process_exit.PARENT not in os.environ
    assert calls == ([] if parent is None else [(1, 9)]) and exit_codes == ([1] if is_gone else [])
