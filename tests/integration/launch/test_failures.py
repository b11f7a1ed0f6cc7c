"""One worker fails: the run ends soon, names the rank and the cause in its last lines, and leaves no process behind."""

import os
import signal
import sys
from pathlib import Path

import pytest
from integration.launch.dying import LIMIT_SECONDS, require_end
from support.processes import (
    ended_by_itself,
    left_behind,
    run_command,
    run_workers,
    session_members,
    start_command,
    wait_until,
)

import paddlevit_dist


@pytest.mark.parametrize("how", ["exception", "user error", "SIGKILL"])
def test_a_run_ends_soon_with_the_root_cause_last(how, tmp_path):
    require_end(how, tmp_path)


OWN_STREAMS = """
import io, sys
from paddlevit_dist.runtime import ending

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
ending.end(3)
"""


def test_streams_of_any_kind_are_flushed_at_the_end_and_none_changes_the_exit_code():
    ended = run_command([sys.executable, "-c", OWN_STREAMS])
    assert (ended.code, ended.out, ended.err) == (3, "a line", "")


LEFT_RUNNING = """
import atexit, threading
from paddlevit_dist.runtime import ending

for daemon in (False, True):
    thread = threading.Thread(target=threading.Event().wait, daemon=daemon)
    thread.start()
ending.leave_running(thread)
atexit.register(print, "clears a library")
print("a line")
ending.end_if_in_danger(75)
"""


def test_beside_a_thread_that_is_left_running_nothing_is_waited_for_and_no_library_is_cleared():
    ended = run_command([sys.executable, "-c", LEFT_RUNNING])
    assert (ended.code, ended.out, ended.err) == (75, "a line\n", "")


OWN_PROGRAM = """
import atexit, os, sys
from integration.launch.aborting import leave_a_destructor_that_aborts
from paddlevit_dist.launch import launch_workers, plan_processes

folder = sys.argv[1]
atexit.register(lambda: open(f"{folder}/{__name__}_{os.environ.get('PADDLE_TRAINER_ID')}", "w").close())
if __name__ == "__main__":
    launch_workers(leave_a_destructor_that_aborts, (folder,), plan_processes(2))
"""


def test_what_aborts_after_the_work_does_not_fail_the_run_and_nothing_own_is_lost(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(OWN_PROGRAM)
    # The workers of a copy have no destructors.
    ended = run_command([sys.executable, str(program), str(tmp_path)], is_copy=False)
    assert (ended.code, ended.err) == (0, "")
    for rank in (0, 1):
        assert (tmp_path / f"log_{rank}").read_text() == "a line"
        assert (tmp_path / f"handler_{rank}").exists() and (tmp_path / f"__mp_main___{rank}").exists()


def return_early() -> None:
    """Rank 1 returns while rank 0 still expects it: no failure of rank 1, but rank 0 must not wait for ever."""
    if paddlevit_dist.rank() == 0:
        paddlevit_dist.barrier(timeout=2.0)


def test_a_rank_that_returns_too_early_is_named_by_the_one_that_waits():
    ended = run_workers("integration.launch.test_failures:return_early")
    assert ended.code == 1
    assert "rank 0 failed: TimeoutError" in ended.err.strip().splitlines()[-1]
    assert "rank(s) [1]" in ended.err


def work_for_ever(marker: str) -> None:
    step = 0
    while True:
        paddlevit_dist.reduce_dict({"step": step})
        step += 1
        if step == 3:
            Path(f"{marker}{paddlevit_dist.rank()}").write_text(str(os.getpid()))


def start_endless(tmp_path) -> tuple:
    """A running two-process command, and the process ids of its workers once both work."""
    import pickle

    marker = str(tmp_path / "works")
    (tmp_path / "arguments").write_bytes(pickle.dumps((marker,)))
    target = "integration.launch.test_failures:work_for_ever"
    process = start_command([sys.executable, "-m", "support.run_target", target, str(tmp_path), "2"], is_copy=True)
    files = [Path(f"{marker}{rank}") for rank in range(2)]
    wait_until(lambda: all(file.exists() and file.read_text() for file in files), "it does not work")
    return process, [int(file.read_text()) for file in files]


def test_ctrl_c_in_the_terminal_ends_cleanly(tmp_path):
    process, _ = start_endless(tmp_path)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to every process
    ended = ended_by_itself(process, LIMIT_SECONDS)
    assert ended.code == 130
    assert ended.err.strip().startswith("interrupted")
    assert "Traceback" not in ended.err


def test_ctrl_c_is_told_as_such_where_a_worker_passes_it_on_first(tmp_path):
    process, workers = start_endless(tmp_path)
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: "(stopped)" in Path(f"/proc/{process.pid}/status").read_text(), "it has not stopped")
    os.kill(workers[0], signal.SIGINT)
    wait_until(lambda: _is_pending(process.pid, signal.SIGTERM), "the worker has not passed it on")
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: not _is_pending(process.pid, signal.SIGTERM), "the parent has not taken it")
    os.kill(process.pid, signal.SIGINT)
    assert ended_by_itself(process, LIMIT_SECONDS).code == 130


def _is_pending(process: int, number: int) -> bool:
    """Whether the signal was sent to the process and waits there (proc(5))."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    waiting = next(line for line in lines if line.startswith("ShdPnd"))
    return bool(int(waiting.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_parent_alone_ends_its_workers(tmp_path, number, code):
    process, _ = start_endless(tmp_path)
    process.send_signal(number)
    ended = ended_by_itself(process, LIMIT_SECONDS)
    assert ended.code == code
    assert ended.err.strip().startswith("interrupted")


def test_workers_die_with_a_killed_parent(tmp_path):
    process, workers = start_endless(tmp_path)
    assert set(workers) <= set(session_members(process.pid))
    process.kill()
    process.communicate(timeout=600)
    assert left_behind(process.pid) == []
