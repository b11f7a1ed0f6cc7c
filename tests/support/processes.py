"""Run a function in several real processes, with a hard time limit and leaving nothing behind."""

import contextlib
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from paddlevit_dist.core.launch import tuning
from support import prepared

ROOT = Path(__file__).resolve().parents[2]
HANG_SECONDS = 600.0  # no test is as slow on any machine: what takes longer hangs


class Finished(NamedTuple):
    """How a command or a group of workers ended."""

    code: int
    out: str
    err: str
    results: list[Any]  # what each rank returned; empty for a command


def environment(processes: int = 2) -> dict:
    """The tuned environment of a run with one thread per process, whatever the machine has."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "MASTER_", "FLAGS_", "OMP_"))}
    clean.pop("PADDLEVIT_DIST_ENVIRONMENT", None)
    # Left by ``create_model`` here: with it a command would drop the kernels that are set below.
    clean.pop("PADDLEVIT_DIST_KERNELS", None)
    added = tuning.environment(processes, True, {**clean, "OMP_NUM_THREADS": "1"})
    threads = {"FLAGS_paddle_num_threads": "1", "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    python_path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), clean.get("PYTHONPATH", "")])
    return {**clean, **added, **threads, "PYTHONPATH": python_path, "PADDLEVIT_DIST_ENVIRONMENT": "test"}


def run_workers(target: str, *arguments: Any, processes: int = 2, timeout: float = HANG_SECONDS) -> Finished:
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


def run_together(
    calls: dict[str, tuple[str, tuple]], processes: int = 2, timeout: float = HANG_SECONDS
) -> dict[str, list]:
    """Call several functions (name of the call -> target and arguments), one after the other, in one group.

    Returns:
        What each returned on each rank, by the name of its call.
    """
    ended = succeeded(run_workers("support.run_target:call_all", calls, processes=processes, timeout=timeout))
    return {name: [of_rank[name] for of_rank in ended.results] for name in calls}


def run_main(*arguments: str, timeout: float = HANG_SECONDS, **variables: str) -> Finished:
    """Run ``main_multi_gpu.py`` with these arguments and additional environment variables."""
    return run_command([sys.executable, str(ROOT / "main_multi_gpu.py"), *arguments], timeout=timeout, **variables)


def run_command(
    command: list[str],
    timeout: float = HANG_SECONDS,
    folder: Path | None = None,
    is_copy: bool = True,
    **variables: str,
) -> Finished:
    """Run a command in a session of its own, in ``folder``; fail when it overruns or leaves a process behind.

    Args:
        is_copy: it may start as a copy of a process that has Paddle loaded; see ``prepared``.
    """
    process = start_command(command, folder, is_copy, **variables)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        out, err = _end_by_force(process)
        raise AssertionError(f"{command} ran longer than {timeout} s\n{out[-3000:]}\n{err[-6000:]}") from None
    left = left_behind(process.pid)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"{command} left processes {left} behind\n{err[-3000:]}"
    return Finished(process.returncode, out, err, [])


def _end_by_force(process: subprocess.Popen | prepared.Copy) -> tuple[str, str]:
    """End a command and all that it has started, in whichever session; returns what was written."""
    started = _descendants(process.pid)  # of a parent that is dead they could not be told
    os.killpg(process.pid, signal.SIGABRT)  # faulthandler prints where each process is
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    for pid in (process.pid, *started):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        return "", "its output is held by a process that is none of its own"


def _descendants(pid: int) -> list[int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for parent in found:  # it grows
        found += [child for child, of in parents.items() if of == parent]
    return found[1:]


def start_command(
    command: list[str], folder: Path | None = None, is_copy: bool = False, **variables: str
) -> subprocess.Popen | prepared.Copy:
    """Start a command in a session of its own, for tests that interfere with it; see ``run_command``.

    Without ``folder`` it starts in one that only tests use: with ``-m`` and ``-c`` Python imports what lies there.
    """
    where = folder or Path(tempfile.gettempdir(), f"paddlevit_dist_tests_{os.getuid()}")
    if folder is None:
        where.mkdir(exist_ok=True)
    changed = {**environment(), **variables}
    copy = prepared.start(command, str(where), changed, is_usual=not variables) if is_copy else None
    return copy or subprocess.Popen(
        command,
        cwd=where,
        env=changed,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )


def start_rank(number: int, ports: list[int], words: list[str], **variables: str) -> subprocess.Popen:
    """A Python program as one rank of so many as there are ports, started separately from the others."""
    endpoints = [f"127.0.0.1:{port}" for port in ports]
    return start_command(
        [sys.executable, *words],
        PADDLE_TRAINER_ID=str(number),
        PADDLE_TRAINERS_NUM=str(len(ports)),
        PADDLE_TRAINER_ENDPOINTS=",".join(endpoints),
        PADDLE_CURRENT_ENDPOINT=endpoints[number],
        GLOO_SOCKET_IFNAME="lo",
        **variables,
    )


def start_nodes(folder: Path, *words: str) -> list[subprocess.Popen]:
    """The main program on two nodes of one rank, as far as they know, by Paddle's launcher; logs in ``folder``."""
    launcher = [sys.executable, "-m", "paddle.distributed.launch", "--nnodes", "2", "--nproc_per_node", "1"]
    master = ["--master", f"127.0.0.1:{free_ports(1)[0]}"]
    nodes = (["--rank", str(rank), "--log_dir", str(folder / f"log{rank}")] for rank in range(2))
    return [start_command([*launcher, *master, *node, str(ROOT / "main_multi_gpu.py"), *words]) for node in nodes]


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nobody listens on.

    They lie below those that Linux gives to connections and to port 0, so that nothing else takes one by chance
    between this call and its use.
    """
    chosen = random.SystemRandom()  # not the seed that each test starts with
    with contextlib.ExitStack() as bound:
        found: list[int] = []
        while len(found) < number:
            listener = bound.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # taken: another one
                listener.bind(("127.0.0.1", chosen.randrange(16000, 32000)))
                found.append(listener.getsockname()[1])
        return found


def wait_until(happens: Callable[[], Any], complaint: str, seconds: float = HANG_SECONDS, process: Any = None) -> None:
    """Return once something happens; fail with ``complaint`` if it does not in time.

    Args:
        process: what makes it happen; when that has ended, nobody waits longer.
    """
    deadline = time.monotonic() + seconds
    while not happens():
        if process is not None and process.poll() is not None and not happens():
            out, err = process.communicate(timeout=seconds)
            raise AssertionError(f"{complaint}, and has ended with {process.returncode}\n{out[-2000:]}\n{err[-5000:]}")
        assert time.monotonic() < deadline, complaint
        time.sleep(0.005)


def ended_by_itself(process: subprocess.Popen, seconds: float) -> Finished:
    """How a command ends within so many seconds, which leaves no process behind."""
    out, err = process.communicate(timeout=seconds)
    assert left_behind(process.pid) == []
    return Finished(process.returncode, out, err, [])


def left_behind(session: int, seconds: float = 5.0) -> list[int]:
    """Members of the session that are still there after a moment: Python's own helpers end just after their parent."""
    deadline = time.monotonic() + seconds
    while True:
        left = session_members(session)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def session_members(session: int) -> list[int]:
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
