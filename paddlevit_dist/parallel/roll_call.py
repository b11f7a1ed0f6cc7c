"""How the ranks that Paddle's launcher has started find one another before they join the group.

Joining blocks inside Paddle, with Python's lock held and without a word, for as long as a rank is missing or another
program has the master's port. So the ranks first meet on that port by themselves, where each can say what it waits for,
or why it will not come: one that fails before comes all the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import time
from typing import Dict, Iterator, List, Optional, Tuple

from .. import printing
from ..errors import UserError, WorkerFailure
from . import failures

_HELLO = b"paddlevit_dist: go on when all are here\n"
_LINE = re.compile(rb"paddlevit_dist: rank (\d{1,7})(?: failed: ([^\n]*))?\n")
_ADVICE = ": see whether it was started, with this master, and what its log says"
_LONGEST = 1024  # bytes of an answer
_RETRY_SECONDS = 0.1
_TOLD_SECONDS = 30.0  # one that fails waits so long for the others, who read their data for about as long as it did
_LATE_SECONDS = 5.0  # and those that have come for one that is still to be told

_was_called = False  # whether this rank has answered


def endpoint() -> Tuple[str, int]:
    """Host and port of the group's store, which rank 0 serves: found as Paddle does.

    Raises:
        UserError: the variable that Paddle reads is no HOST:PORT.
    """
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    name, found = "MASTER_ADDR and MASTER_PORT", f"{address}:{port}"
    if not (address and port):
        name, found = "PADDLE_MASTER", os.environ.get("PADDLE_MASTER", "")
    if not found:
        name, found = "PADDLE_TRAINER_ENDPOINTS", os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")[0]
    host, _, digits = found.rpartition(":")
    if not host or not digits.isdecimal() or not 0 < int(digits) < 65536:
        raise UserError(f"{name} is '{found}': expected HOST:PORT of rank 0's machine, as Paddle's launcher sets it")
    return host, int(digits)


@contextlib.contextmanager
def failures_told(seconds: Optional[float]) -> Iterator[None]:
    """For what a rank does before it answers: if that fails, the other ranks are told why, and end too.

    Args:
        seconds: as long as ``answer`` will wait; None: no rank will answer, and none is told.
    """
    try:
        yield
    except Exception as error:
        rank, size = (int(os.environ.get(f"PADDLE_{name}", "0")) for name in ("TRAINER_ID", "TRAINERS_NUM"))
        if size > 1 and seconds is not None and not _was_called:
            with contextlib.suppress(UserError, WorkerFailure):
                answer(rank, size, min(seconds, _TOLD_SECONDS), failures.reason(error))
        raise


def answer(rank: int, size: int, seconds: float, failure: Optional[str] = None) -> None:
    """Return once all ranks are there. Every rank must call this.

    Args:
        seconds: how long to wait.
        failure: why this rank is about to end.
    Raises:
        UserError: another program has the master's port.
        WorkerFailure: a rank has failed, or did not come in time.
    """
    global _was_called
    _was_called = True
    host, port = endpoint()
    deadline = time.monotonic() + seconds
    if failure is not None:
        failure = printing.one_line(failure).encode()[: _LONGEST - 100].decode(errors="ignore")
    if rank == 0:
        _gather(host, port, size, deadline, seconds, failure)
    else:
        _report(rank, host, port, deadline, seconds, failure)


def _gather(host: str, port: int, size: int, deadline: float, seconds: float, failure: Optional[str]) -> None:
    try:
        listener = socket.create_server(("", port), backlog=size + 16)
    except OSError as error:
        raise UserError(
            f"rank 0 cannot listen on port {port} (the master is {host}:{port}): {os.strerror(error.errno or 0)}; "
            "another program has it: choose a free port"
        ) from error
    ranks: Dict[int, socket.socket] = {}
    with listener, contextlib.ExitStack() as connections:
        failed = _collect(listener, ranks, size, deadline, connections)
        missing = [rank for rank in range(1, size) if rank not in ranks]
        listener.close()  # before they go on: whoever connects from now on must find Paddle's store
        if failure is not None:
            failed = 0, failure
        elif failed is None and missing:
            others = f" (missing: ranks {', '.join(map(str, missing))})" if len(missing) > 1 else ""
            found = f"it did not come to {host}:{port} within {seconds:g} s (WATCHDOG_SECONDS){others}{_ADVICE}"
            failed = missing[0], found
        for connection in ranks.values():
            with contextlib.suppress(OSError):  # it will notice by itself
                connection.sendall(b"go\n" if failed is None else f"{failed[0]} {failed[1]}\n".encode())
        for connection in ranks.values():  # they close first: nothing of this lingers on the port
            connection.settimeout(2.0)
            with contextlib.suppress(OSError):
                connection.recv(1)
    if failed is not None:
        raise WorkerFailure(*failed)


def _collect(
    listener: socket.socket,
    ranks: Dict[int, socket.socket],
    size: int,
    deadline: float,
    connections: contextlib.ExitStack,
) -> Optional[Tuple[int, str]]:
    """Put the connection of each rank that comes into ``ranks``. Strangers are left alone.

    Returns:
        The first rank that comes because it has failed, and why.
    """
    waiting: Dict[socket.socket, bytes] = {}
    failed: Optional[Tuple[int, str]] = None
    while len(ranks) < size - 1 and time.monotonic() < deadline:
        readable, _, _ = select.select([listener, *waiting], [], [], min(1.0, max(0.0, deadline - time.monotonic())))
        for ready in readable:
            if ready is listener:
                connection = connections.enter_context(listener.accept()[0])
                with contextlib.suppress(OSError):
                    connection.sendall(_HELLO)
                waiting[connection] = b""
                continue
            said = _received(ready)
            waiting[ready] += said
            known = _LINE.fullmatch(waiting[ready])
            if known and 0 < int(known[1]) < size:
                ranks[int(known[1])] = ready
                if known[2] is not None and failed is None:
                    failed = int(known[1]), known[2].decode(errors="replace")
                    deadline = min(deadline, time.monotonic() + _LATE_SECONDS)
            if known or not said or len(waiting[ready]) > _LONGEST:
                del waiting[ready]
    return failed


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(_LONGEST)
    except OSError:
        return b""


def _report(rank: int, host: str, port: int, deadline: float, seconds: float, failure: Optional[str]) -> None:
    """Tell rank 0 that this one is here, or why it is not going to be, and wait until all are."""
    word = f"paddlevit_dist: rank {rank}{'' if failure is None else f' failed: {failure}'}\n".encode()
    found = "nothing answers there: see whether it was started, and that its machine can be reached"
    if host.startswith("127."):
        found += f"; {host} means each machine itself: if rank 0 is on another, give its launcher --host"
    is_foreign = False
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, port), timeout=1.0) as connection:
                connection.settimeout(_RETRY_SECONDS)
                lines = _lines(connection, word, deadline, seconds)
        except OSError:
            time.sleep(_RETRY_SECONDS)
            continue
        is_foreign = not lines or lines[0] + b"\n" != _HELLO
        if len(lines) > 1 and not is_foreign:
            if lines[1] == b"go":
                return
            missing, _, message = lines[1].decode(errors="replace").partition(" ")
            raise WorkerFailure(int(missing) if missing.isdecimal() else 0, message)
        found = "it was there, and has ended: its log says why"
        time.sleep(_RETRY_SECONDS)
    waited = f"rank {rank} has waited for rank 0 at {host}:{port} for {seconds:g} s (WATCHDOG_SECONDS)"
    if is_foreign:
        raise UserError(f"{waited}, but another program answers there: choose a free port for the master")
    raise WorkerFailure(0, f"{waited}; {found}")


def _lines(connection: socket.socket, word: bytes, deadline: float, seconds: float) -> List[bytes]:
    """What the other side says to ``word`` until it closes, says the second line, or something unexpected."""
    said = b""
    connection.sendall(word)
    while time.monotonic() < deadline and len(said) < 4 * _LONGEST and said.count(b"\n") < 2:
        try:
            part = connection.recv(_LONGEST)
        except socket.timeout:
            continue
        if not part:
            break
        said += part
        if said == _HELLO:
            deadline = time.monotonic() + 1.25 * seconds + 5.0  # rank 0 is there: it gives up first, and says why
    return said.split(b"\n")[:-1]
