"""One worker fails: the run ends soon, names the rank and the cause in its last lines, and leaves no process behind."""

import os
import signal
import sys

import pytest
from integration.core.launch.dying import require_end, start_endless
from support.processes import (
    HANG_SECONDS,
    ended_by_itself,
    left_behind,
    run_command,
    run_workers,
    session_members,
)

import paddlevit_dist


@pytest.mark.parametrize("how", ["exception", "user error", "SIGKILL"])
def test_a_run_ends_soon_with_the_root_cause_last(how, tmp_path):
    require_end(how, tmp_path)


OWN_STREAMS = """
import io, sys
from paddlevit_dist.core.runtime import process_exit

class Failing(io.RawIOBase):
    def flush(self):
        raise RuntimeError("it cannot")

class Kept:  # not of Python's kinds
    def write(self, text):
        self.text = text
    def flush(self):
        sys.__stdout__.write(self.text)

failing, sys.stdout = Failing(), Kept()
sys.stdout.write("a line")
process_exit.end(3)
"""


def test_streams_of_any_kind_are_flushed_at_the_end_and_none_changes_the_exit_code():
    ended = run_command([sys.executable, "-c", OWN_STREAMS])
    assert (ended.code, ended.out, ended.err) == (3, "a line", "")


LEFT_RUNNING = """
import atexit, threading
from paddlevit_dist.core.runtime import process_exit

for daemon in (False, True):
    thread = threading.Thread(target=threading.Event().wait, daemon=daemon)
    thread.start()
process_exit.leave_running(thread)
atexit.register(print, "clears a library")
print("a line")
process_exit.end_if_in_danger(75)
"""


def test_beside_a_thread_that_is_left_running_nothing_is_waited_for_and_no_library_is_cleared():
    ended = run_command([sys.executable, "-c", LEFT_RUNNING])
    assert (ended.code, ended.out, ended.err) == (75, "a line\n", "")


def return_early() -> None:
    """Rank 1 returns while rank 0 still expects it: no failure of rank 1, but rank 0 must not wait for ever."""
    if paddlevit_dist.rank() == 0:
        paddlevit_dist.barrier(timeout=0.3)


def test_a_rank_that_returns_too_early_is_named_by_the_one_that_waits():
    ended = run_workers("integration.core.launch.test_failures:return_early")
    assert ended.code == 1
    assert "rank 0 failed: TimeoutError" in ended.err.strip().splitlines()[-1]
    assert "rank(s) [1]" in ended.err


def test_ctrl_c_in_the_terminal_ends_cleanly(tmp_path):
    process, _ = start_endless(tmp_path)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to every process
    ended = ended_by_itself(process, HANG_SECONDS)
    assert ended.code == 130
    assert ended.err.strip().startswith("interrupted")
    assert "Traceback" not in ended.err


def test_a_signal_to_the_parent_alone_ends_its_workers(tmp_path):
    process, _ = start_endless(tmp_path)
    process.send_signal(signal.SIGTERM)
    ended = ended_by_itself(process, HANG_SECONDS)
    assert ended.code == 143
    assert ended.err.strip().startswith("interrupted")


def test_workers_die_with_a_killed_parent(tmp_path):
    process, workers = start_endless(tmp_path)
    assert set(workers) <= set(session_members(process.pid))
    process.kill()
    process.communicate(timeout=600)
    assert left_behind(process.pid) == []
