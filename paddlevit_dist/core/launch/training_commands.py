"""Training runs that this process starts as commands of their own (``-seeds``, ``search``), and that end with it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from ..runtime import process_exit, signals
from ..runtime.environment import ROOT
from . import tuning


def start(
    words: Sequence[str], variables: Mapping[str, str] | None = None, output: int | None = None
) -> subprocess.Popen:
    """Start ``train`` with these words, further ``variables`` of its environment and ``output`` as its stdout.

    The system kills it if this process is killed.
    """
    environment = tuning.without_tuning(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(ROOT)]))
    environment.update(variables or {})
    environment[process_exit.PARENT] = str(os.getpid())
    command = [sys.executable, "-m", "paddlevit_dist", "train", *words]
    with signals.blocked():  # until the new process handles signals itself
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output)


def forward_requests(processes: Iterable[subprocess.Popen]) -> None:
    """Forward the requests that this process has received; the caller repeats this while the commands run.

    A further SIGTERM changes nothing. Raises ProcessInterrupted at a second SIGINT; the commands should be killed.
    """
    if signals.interrupts() > 1:
        raise signals.ProcessInterrupted(signal.SIGINT, again=True)
    must_save, must_stop = signals.save_requested(), signals.stop_reason() is not None
    if must_save:
        signals.clear_save_request()
    for process in processes:
        if must_save:
            process.send_signal(signal.SIGUSR1)
        if must_stop:
            process.terminate()  # it saves a checkpoint


def kill(processes: Iterable[subprocess.Popen]) -> None:
    """Kill the commands that still run, whose own processes die with them, and wait for their end."""
    for process in processes:
        process.kill()
        process.wait()
