"""How ``doctor`` carries out its checks: in a process of their own, so that one that crashes is a line like any other."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from .. import signals
from ..errors import UserError, WorkerFailure
from ..files import why_not_written

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
    facts: Dict[str, Any] = {}


class Check(NamedTuple):
    """Something to look at.

    Attributes:
        function: of a module; gets the ``Checkup``.
        needs: names of checks without whose success this one cannot be made.
    """

    name: str
    function: Callable[["Checkup"], Finding]
    needs: Tuple[str, ...] = ()


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
    found: Dict[str, Finding] = field(default_factory=dict)
    kept: Dict[str, Any] = field(default_factory=dict)

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make`` returns, made once in each process."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]


class Workshop:
    """A process that carries out checks one by one; another takes its place when it is gone.

    Args:
        log: takes what the checks print.
    """

    def __init__(self, checkup: Checkup, checks: Sequence[Check], log: Path) -> None:
        self._checkup = checkup
        self._checks = list(checks)
        self._log = log
        self._process: Any = None
        self._connection: Any = None

    def carry_out(self, number: int) -> Finding:
        """What comes of check ``number``."""
        if self._process is None:
            self._start()
        self._connection.send((number, self._checkup.found))
        while True:
            ready = multiprocessing.connection.wait([self._connection, self._process.sentinel], _POLL_SECONDS)
            signals.check()
            if self._connection in ready:
                with contextlib.suppress(EOFError):
                    return self._connection.recv()
            if self._process.sentinel in ready:
                return self._crash()

    def _start(self) -> None:
        # A spawned one: no thread or device of this process is in it.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        with signals.held():  # those that come meanwhile reach this process, which ends the other
            self._process = context.Process(
                target=_serve, args=(theirs, self._checkup, self._checks, str(self._log), os.getpid())
            )
            self._process.start()
        theirs.close()

    def _crash(self) -> Finding:
        self._process.join()
        code = self._process.exitcode
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        last = [line for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        self._end()
        said = f"; its last words: {last[-1].strip()[:200]}" if last else ""
        mend = "report this with the whole command line, unless memory ran out (SIGKILL): then lower -batch_size"
        return Finding(FAILURE, f"the process that did this has ended with {how}{said}", mend)

    def _end(self) -> None:
        self._connection.close()
        self._process = self._connection = None

    def close(self) -> None:
        """End the process, and with it those that it has started."""
        if self._process is not None:
            self._process.kill()
            self._process.join(_END_SECONDS)
            self._end()


def _serve(connection: Any, checkup: Checkup, checks: List[Check], log: str, parent: int) -> None:
    """What the process runs: checks by their numbers, until it is killed."""
    from ..parallel.launch import die_with_parent

    die_with_parent(parent)
    signals.ignore_all()  # the parent handles them
    signals.install()
    with open(log, "wb", buffering=0) as file:  # what libraries print is no part of the table, and would spoil JSON
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    while True:
        try:
            number, checkup.found = connection.recv()
        except EOFError:
            return
        connection.send(carried_out(checks[number], checkup))


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
def temporary_in(save: str) -> Iterator[Tuple[Path, str]]:
    """A temporary folder in the output folder, or elsewhere with the reason why not there; both folders are gone
    afterwards if they were not there before."""
    target = Path(save).absolute()
    made: List[Path] = []
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
