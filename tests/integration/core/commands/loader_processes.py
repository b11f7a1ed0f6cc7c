"""Trainings of which a loader process fails."""

import os
import signal
import sys
import time
from pathlib import Path

from support.processes import left_behind, session_members, start_command, wait_until
from support.trainings.runs import DIGITS, MAIN


def start_training(output: Path, timeout_seconds: float, processes: int = 1):
    """A training that would take hours, once it trains, and the id of one of its loader processes."""
    words = [*DIGITS, "-epochs=10000", "-batch_size=8", "-num_workers=1", f"-ngpus={processes}", "REPORT_FREQ", "5"]
    words += ["DATA.LOADER_TIMEOUT_SECONDS", str(timeout_seconds)]
    process = start_command([sys.executable, str(MAIN), f"-output={output}", *words], is_copy=True)

    def trains() -> bool:
        assert process.poll() is None, process.communicate(timeout=600)
        return (output / "metrics.jsonl").exists()

    wait_until(trains, "it does not train")
    if processes == 1:
        return process, children(process.pid)[0]
    return process, [loader for worker in children(process.pid) for loader in children(worker)][-1]


def children(pid: int) -> list:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def end(process) -> str:
    """Wait for the run's own end and return its stderr; no process may be left."""
    try:
        _, err = process.communicate(timeout=600)
        assert left_behind(process.pid) == []
    finally:
        for member in session_members(process.pid):
            os.kill(member, signal.SIGKILL)
    assert process.returncode == 1
    return err


def require_end_after_a_kill(output: Path, processes: int, start: str) -> None:
    process, loader = start_training(output, 600, processes)
    began = time.monotonic()
    os.kill(loader, signal.SIGKILL)
    (reason,) = end(process).splitlines()
    assert time.monotonic() - began < 300  # not after the 600 s that a batch may take
    assert reason.startswith(f"{start}loader process {loader} with exit code -9 ended while batches were due")
