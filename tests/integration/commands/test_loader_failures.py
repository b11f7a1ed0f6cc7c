"""A loader process that is stopped or killed ends the run promptly and with the reason."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from support.processes import left_behind, session_members, start_command
from support.runs import DIGITS, MAIN

START_SECONDS = 60.0


def start_training(output: Path, timeout_seconds: float, processes: int = 1):
    """A training that would take hours, once it trains, and the id of one of its loader processes."""
    words = [*DIGITS, "-epochs=10000", "-batch_size=8", "-num_workers=1", f"-ngpus={processes}", "REPORT_FREQ", "5"]
    words += ["DATA.LOADER_TIMEOUT_SECONDS", str(timeout_seconds)]
    process = start_command([sys.executable, str(MAIN), f"-output={output}", *words], is_copy=True)
    deadline = time.monotonic() + START_SECONDS
    while not (output / "metrics.jsonl").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate(timeout=5)
        time.sleep(0.05)
    if processes == 1:
        return process, children(process.pid)[0]
    return process, [loader for worker in children(process.pid) for loader in children(worker)][-1]


def children(pid: int) -> list:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def end(process, within_seconds: float) -> str:
    """Wait for the run's own end and return its stderr; no process may be left."""
    try:
        _, err = process.communicate(timeout=within_seconds)
        assert left_behind(process.pid) == []
    finally:
        for member in session_members(process.pid):
            os.kill(member, signal.SIGKILL)
    assert process.returncode == 1
    return err


@pytest.mark.parametrize("timeout_seconds", [1.0, 3.0])
def test_a_stopped_loader_process_ends_the_run_after_the_timeout(timeout_seconds, tmp_path):
    process, loader = start_training(tmp_path, timeout_seconds)
    stopped = time.monotonic()
    os.kill(loader, signal.SIGSTOP)
    err = end(process, within_seconds=timeout_seconds + 20)
    assert time.monotonic() - stopped >= timeout_seconds
    assert err.splitlines() == [
        f"error: no batch arrived for {timeout_seconds:g} s (DATA.LOADER_TIMEOUT_SECONDS); "
        f"loader processes: {loader} T (stopped)"
    ]


@pytest.mark.parametrize("processes, start", [(1, "error: "), (2, "error: rank 1 failed: ")])
def test_a_killed_loader_process_ends_the_run_with_the_signal(processes, start, tmp_path):
    process, loader = start_training(tmp_path, 600, processes)
    os.kill(loader, signal.SIGKILL)
    (reason,) = end(process, within_seconds=15).splitlines()
    assert reason.startswith(f"{start}loader process {loader} with exit code -9 ended while batches were due")
