"""How ``doctor`` carries out its checks: in a process of their own, so that a crash is a line like any other."""

import contextlib
import faulthandler
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..parallel.payload import Payload
from ..runtime import signals
from ..runtime.environment import ROOT
from ..runtime.errors import UserError, WorkerFailure
from ..runtime.files import why_not_written

OK, WARNING, FAILURE, SKIPPED = "ok", "warning", "failure", "skipped"
_POLL_SECONDS = 0.2
_END_SECONDS = 5.0


class Finding(NamedTuple):
    """What came of a check.

    Attributes:
        status: "ok", "warning", "failure", or "skipped" where something before it failed.
        text: what was seen.
        mend: what to do about it; empty where nothing is to be done.
        facts: the same as plain values for JSON, and for later checks.
    """

    status: str
    text: str
    mend: str = ""
    facts: dict[str, Any] = {}


class Check(NamedTuple):
    """Something to look at.

    Attributes:
        function: of a module; gets the ``Checkup``.
        needs: names of checks without whose success this one cannot be made.
        starts_processes: it starts those of a training, which find memory and devices as a training finds them: the
            process that has made the checks before has ended.
    """

    name: str
    function: "Callable[[Checkup], Finding]"
    needs: tuple[str, ...] = ()
    starts_processes: bool = False


@dataclass
class Checkup:
    """What the checks work with.

    Attributes:
        config: the frozen configuration.
        folder: a temporary one in SAVE, or elsewhere if that cannot be written.
        processes: that a training with this configuration would have on this machine.
        uses_gpu: each of them has one.
        unwritable: why SAVE cannot be written; empty where it can.
        found: what earlier checks have found, by their names.
        kept: what earlier checks in the same process have made.
    """

    config: Any
    folder: Path
    processes: int
    uses_gpu: bool
    unwritable: str = ""
    found: dict[str, Finding] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make`` returns, made once in each process."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]


class CheckProcess:
    """A process that carries out checks one by one; another takes its place when it is gone.

    Args:
        log: takes what the checks print.
    """

    def __init__(self, checkup: Checkup, checks: Sequence[Check], log: Path) -> None:
        self._checkup = checkup
        self._checks = list(checks)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None

    def carry_out(self, number: int) -> Finding:
        """What comes of check ``number``."""
        if self._checks[number].starts_processes and self._process is not None:
            self._end()
        if self._process is None:
            self._start()
        with contextlib.suppress(EOFError, ConnectionError):
            self._connection.send((number, self._checkup.found))
            while not self._connection.poll(_POLL_SECONDS):
                signals.check()
            return self._connection.recv()
        return self._crash()

    def _start(self) -> None:
        # A new one, not a fork: no thread or device of this process is in it. And none of ``multiprocessing``, so that
        # what it leaves behind when it is killed is cleared away, and told, in its log.
        self._connection, theirs = multiprocessing.connection.Pipe()
        command = [sys.executable, "-c", f"from {__name__} import serve; serve({theirs.fileno()}, {os.getpid()})"]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        # What libraries print is no part of the table, and would spoil JSON.
        with signals.held(), open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path},
            )
        theirs.close()
        with contextlib.suppress(ConnectionError):  # it has crashed already, which is told of the check
            self._connection.send(Payload.pack(_begin, (self._checkup, self._checks)))

    def _crash(self) -> Finding:
        code = self._end()
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = [line.strip() for line in lines if line.strip()]
        said = f"; its last words: {last[-1][:200]}" if last else ""
        mend = "lower -batch_size if memory ran out (SIGKILL), look at code of your own, else report the command line"
        return Finding(FAILURE, f"the process that did this has ended with {how}{said}", mend)

    def _end(self) -> int:
        process, self._process = self._process, None
        self._connection.close()  # a process that waits for the next check ends by itself
        try:
            return process.wait(_END_SECONDS) if process is not None else 0
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def __enter__(self) -> "CheckProcess":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """End the process, and with it those that it has started."""
        if self._process is not None:
            if kind is not None:
                self._process.kill()
            self._end()


def serve(descriptor: int, parent: int) -> None:
    """What the process runs: checks by their numbers, until nobody asks for more.

    Args:
        descriptor: of the connection to ``parent``.
    """
    from ..parallel.launch import die_with_parent

    die_with_parent(parent)
    signals.ignore_all()  # the parent handles them
    faulthandler.enable()
    connection = multiprocessing.connection.Connection(descriptor)
    with contextlib.suppress(EOFError, ConnectionError):
        begin, given = connection.recv().unpack()  # after what the user's own modules register
        checkup, checks = begin(*given)
        while True:
            number, checkup.found = connection.recv()
            connection.send(carried_out(checks[number], checkup))


def _begin(checkup: Checkup, checks: list[Check]) -> tuple[Checkup, list[Check]]:
    return checkup, checks


def carried_out(check: Check, checkup: Checkup) -> Finding:
    """What comes of a check in this process: what it raises is a failure."""
    try:
        return check.function(checkup)
    except UserError as error:
        return Finding(FAILURE, str(error))
    except WorkerFailure as error:
        return Finding(FAILURE, str(error).partition("\n")[0], facts={"traceback": error.traceback})
    except Exception as error:
        text = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        return Finding(FAILURE, text, facts={"traceback": traceback.format_exc()})


@contextlib.contextmanager
def temporary_in(save: str) -> Iterator[tuple[Path, str]]:
    """A temporary folder in the output folder, or elsewhere with the reason why not there; both folders are gone
    afterwards if they were not there before."""
    target = Path(save).absolute()
    made: list[Path] = []
    problem = ""
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [_remove_empty(path) for path in reversed(made)])
        try:
            made += [path for path in reversed((target, *target.parents)) if not path.exists()]
            target.mkdir(parents=True, exist_ok=True)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".doctor_", dir=target)))
        except OSError as error:  # one of the checks tells
            problem = why_not_written(error)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paddlevit_dist_doctor_")))
        yield folder, problem


def _remove_empty(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()


def seconds_since(started: float) -> float:
    """Rounded, for facts."""
    return round(time.perf_counter() - started, 3)
