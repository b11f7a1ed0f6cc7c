"""Run a function in several real processes, with a hard time limit and leaving nothing behind."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from paddlevit_dist.parallel import tuning

from . import prepared

ROOT = Path(__file__).resolve().parents[2]


class Finished(NamedTuple):
    """How a command or a group of workers ended."""

    code: int
    out: str
    err: str
    results: List[Any]  # what each rank returned; empty for a command


def environment(processes: int = 2) -> dict:
    """The tuned environment of a run with one thread per process, whatever the machine has."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "MASTER_", "FLAGS_", "OMP_"))}
    clean.pop("PADDLEVIT_DIST_ENVIRONMENT", None)
    added = tuning.environment(processes, True, {**clean, "OMP_NUM_THREADS": "1"})
    threads = {"FLAGS_paddle_num_threads": "1", "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    python_path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), clean.get("PYTHONPATH", "")])
    return {**clean, **added, **threads, "PYTHONPATH": python_path, "PADDLEVIT_DIST_ENVIRONMENT": "test"}


def run_workers(target: str, *arguments: Any, processes: int = 2, timeout: float = 120.0) -> Finished:
    """Call ``target`` ("module:function" below tests/) as a worker in ``processes`` processes.

    The function gets ``arguments``; what it returns on each rank is in ``results``.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "arguments").write_bytes(pickle.dumps(arguments))
        command = [sys.executable, "-m", "support.run_target", target, folder, str(processes)]
        ended = run_command(command, timeout=timeout)
        results = [
            pickle.loads(path.read_bytes())
            for path in (Path(folder, f"result_{rank}") for rank in range(processes))
            if path.exists()
        ]
    return ended._replace(results=results)


def run_together(calls: Dict[str, Tuple[str, tuple]], processes: int = 2, timeout: float = 120.0) -> Dict[str, list]:
    """Call several functions (name of the call -> target and arguments), one after the other, in one group.

    Returns:
        What each returned on each rank, by the name of its call.
    """
    ended = succeeded(run_workers("support.many_calls:call_all", calls, processes=processes, timeout=timeout))
    return {name: [of_rank[name] for of_rank in ended.results] for name in calls}


def run_main(*arguments: str, timeout: float = 120.0, **variables: str) -> Finished:
    """Run ``main_multi_gpu.py`` with these arguments and additional environment variables."""
    return run_command([sys.executable, str(ROOT / "main_multi_gpu.py"), *arguments], timeout=timeout, **variables)


def run_command(command: List[str], timeout: float, folder: Optional[Path] = None, **variables: str) -> Finished:
    """Run a command in a session of its own, in ``folder``; fail when it overruns or leaves a process behind.

    It starts as a copy of a process that has Paddle loaded where that makes no difference; see ``prepared``.
    """
    where = str(folder or tempfile.gettempdir())
    process = prepared.start(command, where, {**environment(), **variables}, is_usual=not variables)
    process = process or start_command(command, folder, **variables)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)  # faulthandler prints where each process is
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        raise AssertionError(f"{command} ran longer than {timeout} s\n{out[-3000:]}\n{err[-6000:]}") from None
    left = left_behind(process.pid)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"{command} left processes {left} behind\n{err[-3000:]}"
    return Finished(process.returncode, out, err, [])


def start_command(command: List[str], folder: Optional[Path] = None, **variables: str) -> subprocess.Popen:
    """Start a command in a session of its own, for tests that interfere with it."""
    return subprocess.Popen(
        command,
        cwd=folder or tempfile.gettempdir(),
        env={**environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def left_behind(session: int, seconds: float = 5.0) -> List[int]:
    """Members of the session that are still there after a moment: Python's own helpers end just after their parent."""
    deadline = time.monotonic() + seconds
    while True:
        left = session_members(session)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def session_members(session: int) -> List[int]:
    """Living processes of a session (not zombies)."""
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            members.append(int(entry.name))
    return members


def succeeded(ended: Finished) -> Finished:
    """The same, once its exit code is seen to be 0."""
    assert ended.code == 0, f"exit code {ended.code}\n{ended.out[-2000:]}\n{ended.err[-5000:]}"
    return ended
