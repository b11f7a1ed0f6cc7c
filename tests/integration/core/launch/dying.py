"""Ways in which a rank or its run ends amid the work, and how the run has to end then."""

import os
import pickle
import signal
import sys
import time
from pathlib import Path

from support.processes import run_workers, start_command, wait_until

import paddlevit_dist

LIMIT_SECONDS = 60.0  # a run that waits for a rank that is gone takes for ever
WAYS = {  # exit code, and what the last line begins with
    "exception": (1, "error: rank 1 failed: ValueError: the sample at hand is broken"),
    "user error": (2, "error: image.jpg cannot be read; remove it"),
    "exit 0": (1, "error: rank 1 failed: sys.exit(0)"),
    "exit 3": (1, "error: rank 1 failed: sys.exit(3)"),
    "SIGKILL": (1, "error: rank 1 failed: ended by SIGKILL"),
    "SIGSEGV": (1, "error: rank 1 failed: ended by SIGSEGV"),
    "SIGTERM": (143, "interrupted (SIGTERM)"),
}


def train_until_rank_one(how: str, marker: str) -> None:
    """Both ranks exchange values until rank 1 ends in the given way."""
    rank = paddlevit_dist.rank()
    for step in range(1000):
        paddlevit_dist.reduce_dict({"step": step})
        if step == 3 and rank == 1:
            Path(marker).write_text(str(time.time()))
            if how == "exception":
                raise ValueError("the sample at hand is broken")
            if how == "user error":
                raise paddlevit_dist.UserError("image.jpg cannot be read; remove it")
            if how.startswith("exit"):
                sys.exit(int(how[-1]))
            os.kill(os.getpid(), getattr(signal, how))


def work_for_ever(marker: str) -> None:
    step = 0
    while True:
        paddlevit_dist.reduce_dict({"step": step})
        step += 1
        if step == 3:
            Path(f"{marker}{paddlevit_dist.rank()}").write_text(str(os.getpid()))


def start_endless(tmp_path) -> tuple:
    """A running two-process command, and the process ids of its workers once both work."""
    marker = str(tmp_path / "works")
    (tmp_path / "arguments").write_bytes(pickle.dumps((marker,)))
    target = "integration.core.launch.dying:work_for_ever"
    process = start_command([sys.executable, "-m", "support.run_target", target, str(tmp_path), "2"], is_copy=True)
    files = [Path(f"{marker}{rank}") for rank in range(2)]
    wait_until(lambda: all(file.exists() and file.read_text() for file in files), "it does not work", process=process)
    return process, [int(file.read_text()) for file in files]


def require_end(how: str, folder: Path) -> None:
    marker = folder / "when"
    ended = run_workers("integration.core.launch.dying:train_until_rank_one", how, str(marker))
    seconds = time.time() - float(marker.read_text())
    code, last_line = WAYS[how]
    assert ended.code == code
    assert ended.err.strip().splitlines()[-1].startswith(last_line), ended.err
    assert seconds < LIMIT_SECONDS
    if how == "exception":
        assert "Traceback" in ended.err and "train_until_rank_one" in ended.err
    if how == "user error":
        assert "Traceback" not in ended.err
