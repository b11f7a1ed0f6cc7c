"""Child processes of benchmarks: their environments, and commands that end in time and leave nothing behind."""

import argparse
import contextlib
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rounds import ROOT

from paddlevit_dist.core.launch import tuning
from paddlevit_dist.core.runtime.process_exit import die_with_parent

# Variables that would let a user's shell change what is measured.
_FOREIGN = ("PADDLE", "MASTER_", "FLAGS_", "OMP_", "MKL_", "MALLOC_", "GLOO_", "GLOG_")


def clean_environment(hides_gpus: bool = True) -> dict[str, str]:
    """Return this process's environment without anything that changes Paddle's speed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if hides_gpus else {}
    return {**kept, **hidden, "PYTHONPATH": os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")])}


def tuned_environment(processes: int, tuned: bool = True, hides_gpus: bool = True) -> dict[str, str]:
    """Return the environment that a run with this many processes gives itself; without ``tuned``, only its threads."""
    clean = clean_environment(hides_gpus)
    # The mark says that the environment is there, so that the entry does not restart itself.
    return {**clean, **tuning.environment(processes, tuned, clean), "PADDLEVIT_DIST_ENVIRONMENT": "benchmark"}


def start(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen:
    """Start a command in a session of its own that dies with this process."""
    # From now on SIGTERM ends this process as Ctrl-C does: what is under way is ended and temporary folders removed.
    signal.signal(signal.SIGTERM, _leave)
    process = subprocess.Popen(
        command,
        env=dict(environment),
        start_new_session=True,
        preexec_fn=functools.partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - no threads have been started
        text=True,
        **options,
    )
    # With root's rights, it may run before what else is on the machine: Linux shares the processors among sessions
    # first (``man 7 sched``, the autogroup feature).
    if os.environ.get("BENCHMARK_FIRST") == "1":
        Path(f"/proc/{process.pid}/autogroup").write_text("-15")
    return process


def run_with_torch_peer(
    file: str, description: str, serves: str, serve: Callable[[], None], measure: Any, timeout: float = 280
) -> None:
    """Run the command line of a benchmark that measures in a process with one thread and the environment of a run.

    Args:
        file: the benchmark, which starts itself again: for the measurement, and by the peer's interpreter.
        serves: the option of the peer's process, which calls ``serve``.
        measure: a function of the interpreter that has torch; "" where none was given.
        timeout: seconds after which the measurement is ended.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--peer-python", default="", help="an interpreter that has torch")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(serves, action="store_true", help=argparse.SUPPRESS, dest="serves")
    arguments = parser.parse_args()
    if arguments.serves:
        serve()
    elif arguments.measure:
        measure(arguments.peer_python)
    else:
        environment = {**tuned_environment(1), "OMP_NUM_THREADS": "1"}
        process = start([sys.executable, file, "--measure", "--peer-python", arguments.peer_python], environment)
        try:
            raise SystemExit(process.wait(timeout=timeout))
        finally:
            end(process)


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def end(process: subprocess.Popen) -> None:
    """End a command that ``start`` has started, and whatever is left of its session's processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(command: Sequence[str], environment: Mapping[str, str], timeout: float) -> None:
    """Run a command to its end; fail when it fails or overruns. No process of it is left behind."""
    process = start(command, environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f"{' '.join(command)} took longer than {timeout:g} s") from error
    finally:
        end(process)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}\n{output[-4000:]}")
