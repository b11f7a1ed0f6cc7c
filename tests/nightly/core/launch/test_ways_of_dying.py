"""However a rank ends, amid its work or after it, the run ends soon and says so last."""

import os
import signal
import sys
from pathlib import Path

import pytest
from integration.core.launch.dying import WAYS, require_end, start_endless
from support.processes import HANG_SECONDS, ended_by_itself, run_command, wait_until


@pytest.mark.parametrize("how", WAYS)
def test_the_run_ends_soon_with_the_root_cause_last(how, tmp_path):
    require_end(how, tmp_path)


def test_ctrl_c_is_told_as_such_where_a_worker_passes_it_on_first(tmp_path):
    process, workers = start_endless(tmp_path)
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: "(stopped)" in Path(f"/proc/{process.pid}/status").read_text(), "it has not stopped")
    os.kill(workers[0], signal.SIGINT)
    wait_until(lambda: _is_pending(process.pid, signal.SIGTERM), "the worker has not passed it on")
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: not _is_pending(process.pid, signal.SIGTERM), "the parent has not taken it")
    os.kill(process.pid, signal.SIGINT)
    assert ended_by_itself(process, HANG_SECONDS).code == 130


def _is_pending(process: int, number: int) -> bool:
    """Whether the signal was sent to the process and waits there (proc(5))."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    waiting = next(line for line in lines if line.startswith("ShdPnd"))
    return bool(int(waiting.split()[1], 16) >> (number - 1) & 1)


def test_ctrl_c_to_the_parent_alone_ends_its_workers(tmp_path):
    process, _ = start_endless(tmp_path)
    process.send_signal(signal.SIGINT)
    ended = ended_by_itself(process, HANG_SECONDS)
    assert ended.code == 130 and ended.err.strip().startswith("interrupted")


OWN_PROGRAM = """
import atexit, os, sys
from integration.core.launch.aborting import leave_a_destructor_that_aborts
from paddlevit_dist.core.launch import launch_workers, plan_processes

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
