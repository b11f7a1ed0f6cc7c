"""How each worker ended, as it records itself, and which of several failures caused the others."""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from ..runtime import limits, printing
from ..runtime.errors import OwnCodeError, Stopped, UserError
from ..runtime.files import atomic_file
from ..runtime.json_format import format_json
from ..runtime.outages import StorageOutage
from ..runtime.signals import ProcessInterrupted, get_name

FINISHED = "finished"
USER_ERROR = "user error"
STOPPED = "stopped"  # on request, with everything saved
INTERRUPTED = "interrupted"  # on request, without a save
EXCEPTION = "exception"
EXIT = "exit"
STANDSTILL = "standstill"  # recorded by the parent
_LONGEST_WAIT_SECONDS = 20.0
_SIGNALS_OF_A_CRASH = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS, signal.SIGTRAP)

# Words in the error of a collective whose peer is gone: the rank that reports it is a victim, not the cause.
_SIGNS_OF_A_LOST_PEER = ("gloo", "Connection", "connection", "TCP", "Socket", "socket", "barrier", "NCCL", "timeout")


class PeerGone(ConnectionError):
    """The process of a rank that this one waits for has ended; other records name the cause."""


_kills_before = limits.out_of_memory_kills()
_own_records: tuple[Path, int] | None = None


def keep_records(folder: Path, rank: int) -> None:
    """Set where this process records how it ends."""
    global _own_records
    _own_records = (folder, rank)


def explain_kill() -> str:
    """Return what may have sent SIGKILL to a process of this run."""
    return limits.memory_kill_since(_kills_before) or "the system may have run out of memory: see dmesg"


def end_process(message: str) -> None:
    """Exit immediately, from any thread, with a message for the parent to print."""
    if _own_records is not None:
        _record(EXCEPTION, message)
        wait_for_parent()
    else:
        print(f"error: {printing.one_line(message)}", file=sys.stderr, flush=True)
    os._exit(1)


def wait_for_parent() -> None:
    """Wait, after recording the failure, until the parent, having stopped the peers, ends this process.

    A peer that loses this rank inside a collective would abort and hide the cause behind its own output.
    """
    time.sleep(_LONGEST_WAIT_SECONDS)


def reason(error: BaseException) -> str:
    """Format an error: its message, preceded by its type unless it is a user's mistake."""
    return str(error) if isinstance(error, (UserError, StorageOutage)) else f"{type(error).__name__}: {error}"


def record_finish() -> None:
    """Record that this rank's work is complete: exit code 0 alone proves nothing (Ctrl-C in a worker gives 0 too)."""
    _record(FINISHED, "")


def record_failure(error: BaseException) -> None:
    """Record the error that ended this rank."""
    if isinstance(error, Stopped):
        _record(STOPPED, str(error), reason=error.reason, saved=error.saved)
        return
    if isinstance(error, ProcessInterrupted):
        record_interruption(error.number, error.again)
        return
    is_told = isinstance(error, (UserError, StorageOutage))
    mistake, own = str(error) if is_told else limits.explain(error), None
    if mistake is None or isinstance(error, OwnCodeError):
        own = OwnCodeError.find(error)
        mistake = mistake if own is None else str(own)
    if mistake is not None:
        kind, message = USER_ERROR, mistake
    elif isinstance(error, SystemExit):
        kind, message = EXIT, f"sys.exit({error.code!r})"
    else:
        kind, message = EXCEPTION, reason(error)
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    own_trace = None if own is None else own.traceback
    _record(kind, message, traceback=trace, own_traceback=own_trace, exit_code=getattr(error, "exit_code", 2))


def record_interruption(number: int, again: bool) -> None:
    """Record that this rank had to end at once; see ``ProcessInterrupted``."""
    _record(INTERRUPTED, "interrupted", number=number, again=again)


def _record(kind: str, message: str, **more: object) -> None:
    assert _own_records is not None, "call keep_records first"
    folder, rank = _own_records
    record = {"kind": kind, "message": message, "rank": rank, "time": time.time(), **more}
    with atomic_file(folder / f"rank_{rank}.json") as out:
        out.write(format_json(record).encode())


def read(folder: Path, rank: int) -> dict[str, Any] | None:
    """Read a rank's record; None if it had no time to write one."""
    path = folder / f"rank_{rank}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def describe_end(rank: int, exit_code: int | None, folder: Path) -> dict[str, Any]:
    """Return the record of an ended rank, derived from its exit code if it wrote none or failed after finishing."""
    record = read(folder, rank)
    is_done = record is not None and record["kind"] == FINISHED
    if record is not None and not (is_done and exit_code):
        return record
    if exit_code is not None and exit_code < 0:
        hint = f" ({explain_kill()})" if -exit_code == signal.SIGKILL else ""
        message = f"ended by {get_name(-exit_code)}{hint}{' after its work was complete' if is_done else ''}"
        return {"kind": "killed", "signal": -exit_code, "rank": rank, "message": message}
    when = "after" if is_done else "before"
    return {"kind": EXIT, "rank": rank, "message": f"ended with exit code {exit_code} {when} its work was complete"}


def find_root_cause(ends: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record, among failed ranks with the time each ended, that explains the others."""
    independent = [end for end in ends if not looks_like_a_lost_peer(end)]
    return min(independent or ends, key=lambda end: end["time"])


def is_lost(end: dict[str, Any]) -> bool:
    """Return whether a rank did not fail by itself, so that it may succeed if it is started again.

    It was killed or hangs, or it reports only that another rank is gone. Ranks that wait for each other do not count.
    """
    if end["kind"] == STANDSTILL:
        return not end.get("waits", False)
    return looks_like_a_lost_peer(end) or is_killed(-end.get("signal", 0))


def is_killed(exit_code: int) -> bool:
    """Return whether the exit code is that of a process that another one, or the system, has killed.

    ``exit_code`` is negative for a signal, as ``subprocess`` has it.
    """
    return exit_code < 0 and -exit_code not in _SIGNALS_OF_A_CRASH


def is_echo(error: Exception) -> bool:
    """Return whether ``error`` only reports that another rank is gone."""
    if isinstance(error, (UserError, StorageOutage, ConnectionError)):  # these name their own cause
        return isinstance(error, PeerGone)
    return looks_like_a_lost_peer({"kind": EXCEPTION, "message": str(error)})


def looks_like_a_lost_peer(end: dict[str, Any]) -> bool:
    """Return whether a record is of the kind that a rank writes when another one is gone."""
    if end["kind"] == "killed":
        return end.get("signal") == signal.SIGABRT  # gloo aborts inside backward when its peer is gone
    if end["kind"] in (USER_ERROR, EXIT, STOPPED, INTERRUPTED, STANDSTILL):
        return False
    return any(sign in end.get("message", "") for sign in _SIGNS_OF_A_LOST_PEER)
