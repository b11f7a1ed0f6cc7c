"""How the ranks of a run find one another: they meet at rank 0's port before Paddle's store takes it.

Joining blocks inside Paddle, with Python's lock held and without a word, for as long as a rank is missing or another
program has the port. So the ranks first meet there by themselves: each says who it is and shows that it has the run's
secret, or says why it will not come. Rank 0 tells them to go on once its store listens. Under Paddle's launcher they
keep these connections, over which they watch one another (``group_watch``).
"""

import contextlib
import hashlib
import io
import json
import multiprocessing.connection
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import paddle
import paddle.distributed as dist

from ..runtime import device_kinds, printing
from ..runtime.errors import UserError, WorkerFailure
from . import failures, secret

_PROGRAM = "paddlevit_dist"
_LONGEST = 65536  # bytes of a line
_LONGEST_REASON = 800  # bytes
_RETRY_SECONDS = 0.05
_JOIN_SECONDS = 300.0  # where nothing else is said
_PATIENCE_SECONDS = 3.0  # a rank that is missing for longer, and has come with another secret, will not come
_TOLD_SECONDS = 30.0  # one that fails waits so long for the others, who read their data for about as long as it did
_LATE_SECONDS = 5.0  # and those that have come for one that is still to be told
_ADVICE = ": see whether it was started, with this master, and what its log says"

_has_met = False


def has_met() -> bool:
    """Whether this rank has met the others here. In a program of the user's own, ranks join by themselves."""
    return _has_met


class RankConnection:
    """Messages, one JSON object a line, between two ranks."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._rest = b""
        self.unread: list[dict[str, Any]] = []  # came with a message before them

    def send(self, **message: Any) -> None:
        """Send one message; nothing where the other side has gone, which ``receive`` tells."""
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """Return what has come since the last call, once it has; None: the other side has gone, or is not ours."""
        if self.unread:
            unread, self.unread = self.unread, []
            return unread
        try:
            received = self.socket.recv(_LONGEST)
            *lines, self._rest = (self._rest + received).split(b"\n")
            messages = [json.loads(line) for line in lines]
        except TimeoutError:
            return []
        except (OSError, ValueError, RecursionError):
            return None
        is_ours = received and len(self._rest) < _LONGEST and all(isinstance(message, dict) for message in messages)
        return messages if is_ours else None


Peers = dict[int, RankConnection]  # by rank: on rank 0 all others, on the others rank 0


def endpoint() -> tuple[str, int]:
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


def number_and_size() -> tuple[int, int]:
    """This process's rank and the number of ranks, as whoever started it has set them; 0 and 1 if nobody has."""
    return int(os.environ.get("PADDLE_TRAINER_ID", "0")), int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))


def join_group(device: str, spawned: bool) -> None:
    """Select this process's device and, if it is one of several, join their group. Every rank must call this.

    Args:
        device: the kind that each process drives one of (``runtime/device_kinds.py``); "cpu" has gloo.
        spawned: this machine's parent process started us. Rendezvous variables that a cluster's shell may have
        exported are then not meant for us and are dropped.
    Raises:
        UserError, WorkerFailure, ConnectionError: see ``meet``.
    """
    paddle.set_device(device)
    rank, size = number_and_size()
    if size < 2:
        return
    if spawned:
        for name in ("MASTER_ADDR", "MASTER_PORT", "PADDLE_MASTER"):
            os.environ.pop(name, None)
    backend = device_kinds.get_kind(device).backend
    if backend in ("gloo", "xccl"):  # Paddle finds the others by itself
        os.environ["PADDLE_DISTRI_BACKEND"] = backend
    if not _has_met:
        for peer in meet(rank, size, _JOIN_SECONDS).values():
            peer.socket.close()
    messages = io.StringIO()  # Paddle 3 lists its modified flags on every start
    try:
        with contextlib.redirect_stderr(messages):
            _open_store(rank)
            dist.init_parallel_env()
    except BaseException:
        print(messages.getvalue(), end="", file=sys.stderr)
        raise


def _open_store(rank: int) -> None:
    """Paddle's store. Rank 0 serves it, and must be told not to wait for the others in native code."""
    before = os.environ["PADDLE_TRAINERS_NUM"]
    if rank == 0:
        os.environ["PADDLE_TRAINERS_NUM"] = "1"
    try:
        paddle.base.core.create_or_get_global_tcp_store()
    except (RuntimeError, ValueError, OSError) as error:  # Paddle's, whose first line says what happened
        reason = str(error).strip().split("\n")[0]
        raise ConnectionError(
            f"rank {rank} cannot join the group at {':'.join(map(str, endpoint()))}: {reason}; does another program "
            "use this port, or send to it?"
        ) from error
    finally:
        os.environ["PADDLE_TRAINERS_NUM"] = before
    send_small_messages_at_once()


def send_small_messages_at_once() -> None:
    """Disable Nagle's algorithm on this process's TCP connections (Linux).

    The store's client writes a request in several small pieces, so each one waited 44 ms for the kernel's delayed
    acknowledgement; with Nagle's algorithm off a request takes 0.1 ms.
    """
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        with contextlib.suppress(OSError):  # closed by now, or no connection
            copy = os.dup(int(name))
            try:
                socket.socket(fileno=copy).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                os.close(copy)


@contextlib.contextmanager
def broadcast_startup_failure(seconds: float | None) -> Iterator[None]:
    """For what a rank does before it meets the others: if that fails, they are told why, and end too.

    Args:
        seconds: as long as ``meet`` will wait; None: no rank will come, and none is told.
    """
    try:
        yield
    except Exception as error:
        rank, size = number_and_size()
        if size > 1 and seconds is not None and not _has_met:
            with contextlib.suppress(UserError, WorkerFailure, ConnectionError):
                meet(rank, size, min(seconds, _TOLD_SECONDS), failures.reason(error))
        raise


def meet(rank: int, size: int, seconds: float, failure: str | None = None) -> Peers:
    """Return once all ranks are there, have the same secret, and rank 0's store listens. Every rank must call this.

    Args:
        seconds: how long to wait.
        failure: why this rank is about to end.
    Returns:
        The connections over which they have met.
    Raises:
        UserError: another program has the port, or ranks have different secrets.
        WorkerFailure: a rank has failed, or did not come in time.
        ConnectionError: Paddle's store cannot be served.
    """
    global _has_met
    _has_met = True
    if failure is not None:
        failure = printing.one_line(failure).encode()[:_LONGEST_REASON].decode(errors="ignore")
    return _receive(size, seconds, failure) if rank == 0 else {0: _report(rank, seconds, failure)}


class _ArrivedRanks:
    """Rank 0: who has come so far.

    Args:
        fingerprint: of this rank's secret; None if it is about to fail, and admits all to tell them.
    """

    def __init__(self, size: int, fingerprint: int | None) -> None:
        self.size, self.fingerprint = size, fingerprint
        self.challenge = secrets.token_hex(16)  # so that a recorded proof is worth nothing
        self.peers: Peers = {}
        self.nonces: dict[int, str] = {}
        self.failed: tuple[int, str] | None = None
        self._others: dict[int, tuple[int, float]] = {}  # rank -> fingerprint of another secret, and when it came

    def admit(self, connection: RankConnection, hello: dict[str, Any]) -> None:
        """Take note of a rank that says who it is, if it is one."""
        rank, nonce, failure, shown = (hello.get(name) for name in ("rank", "nonce", "failure", "fingerprint"))
        if not (isinstance(rank, int) and 0 < rank < self.size):
            return
        if isinstance(failure, str):
            self.failed = self.failed or (rank, failure)
        elif isinstance(shown, int) and shown != self.fingerprint is not None:
            self._others.setdefault(rank, (shown, time.monotonic()))
            return
        elif self.fingerprint is not None and not secret.is_proof(
            hello.get("proof", ""), self.challenge, str(rank), str(nonce)
        ):
            return
        self.peers[rank], self.nonces[rank] = connection, str(nonce)

    def missing(self) -> list[int]:
        return [rank for rank in range(1, self.size) if rank not in self.peers]

    def other_secrets(self) -> dict[int, int]:
        """Fingerprints of ranks that came with another secret a while ago, and not with this one since."""
        before = time.monotonic() - _PATIENCE_SECONDS
        return {rank: of[0] for rank, of in self._others.items() if of[1] < before and rank not in self.peers}


def _receive(size: int, seconds: float, failure: str | None) -> Peers:
    host, port = endpoint()
    try:
        # Debian gives a machine's own name the address 127.0.1.1.
        listener = socket.create_server((host if host.startswith("127.") else "", port), backlog=1024)
    except OSError as error:
        raise UserError(
            f"rank 0 cannot listen on port {port} (the master is {host}:{port}): {os.strerror(error.errno or 0)}; "
            "another program has it: choose a free port"
        ) from error
    if failure is None:
        secret.print_missing_protection()
    arrivals = _ArrivedRanks(size, secret.fingerprint() if failure is None else None)
    with listener:  # closed before they go on: whoever connects from now on must find Paddle's store
        _collect(listener, arrivals, time.monotonic() + seconds)
    missing, others = arrivals.missing(), arrivals.other_secrets()
    failed = (0, failure) if failure is not None else arrivals.failed
    if failed is None and others:
        failed = min(others), secret.disagreement(0, others)
    elif failed is None and missing:
        ranks = f" (missing: ranks {', '.join(map(str, missing))})" if len(missing) > 1 else ""
        found = f"it did not come to {host}:{port} within {seconds:g} s (WATCHDOG_SECONDS){ranks}{_ADVICE}"
        failed = missing[0], found
    if failed is None:
        _open_store(0)
        session = hashlib.sha256("".join([secrets.token_hex(16), *arrivals.nonces.values()]).encode()).hexdigest()
        secret.begin_session(session)
    for rank, peer in arrivals.peers.items():
        if failed is None:
            peer.send(session=session, proof=secret.proof(session, str(rank), arrivals.nonces[rank]))
        else:
            peer.send(failed=failed)
    if failed is not None:
        raise UserError(failed[1]) if others else WorkerFailure(*failed)
    return arrivals.peers


def _collect(listener: socket.socket, arrivals: _ArrivedRanks, deadline: float) -> None:
    """Let the ranks arrive; whoever else connects is left alone."""
    waiting: dict[Any, RankConnection] = {}  # by socket
    while arrivals.missing() and not arrivals.other_secrets() and time.monotonic() < deadline:
        pause = min(0.5, max(0.0, deadline - time.monotonic()))
        for ready in multiprocessing.connection.wait([listener, *waiting], pause):
            if ready is listener:
                connection = RankConnection(listener.accept()[0])
                connection.send(program=_PROGRAM, challenge=arrivals.challenge, fingerprint=arrivals.fingerprint)
                waiting[connection.socket] = connection
                continue
            hello = waiting[ready].receive()
            if hello:
                had_failed = arrivals.failed is not None
                arrivals.admit(waiting[ready], hello[0])
                if arrivals.failed is not None and not had_failed:
                    deadline = min(deadline, time.monotonic() + _LATE_SECONDS)
            if hello != []:
                stranger = waiting.pop(ready)
                if stranger not in arrivals.peers.values():
                    stranger.socket.close()
    for stranger in waiting.values():
        stranger.socket.close()


def _report(rank: int, seconds: float, failure: str | None) -> RankConnection:
    """Tell rank 0 that this one is here, or why it is not going to be, and wait until all are."""
    host, port = endpoint()
    deadline = time.monotonic() + seconds
    found = "nothing answers there: see whether it was started, and that its machine can be reached"
    if host.startswith("127."):
        found += f"; {host} means each machine itself: if rank 0 is on another, give its launcher --host"
    is_foreign = False
    while time.monotonic() < deadline:
        try:
            connection = RankConnection(socket.create_connection((host, port), timeout=1.0))
        except OSError:
            time.sleep(_RETRY_SECONDS)
            continue
        greeting = _next(connection, deadline) or {}
        is_foreign = greeting.get("program") != _PROGRAM
        if not is_foreign:
            answer = _greet(connection, greeting, rank, failure, deadline + 0.25 * seconds + 5.0)  # it gives up first
            if "session" in answer:
                return connection
            if "failed" in answer:
                raise WorkerFailure(*answer["failed"])
            found = "it was there, and has ended: its log says why"
        connection.socket.close()
        time.sleep(_RETRY_SECONDS)
    waited = f"rank {rank} has waited for rank 0 at {host}:{port} for {seconds:g} s (WATCHDOG_SECONDS)"
    if is_foreign:
        raise UserError(f"{waited}, but another program answers there: choose a free port for the master")
    raise WorkerFailure(0, f"{waited}; {found}")


def _greet(
    connection: RankConnection, greeting: dict[str, Any], rank: int, failure: str | None, deadline: float
) -> dict[str, Any]:
    """Return what rank 0 answers in the end; empty if it has gone, or does not show that it has the secret."""
    if failure is not None:
        connection.send(rank=rank, failure=failure)
        return _next(connection, deadline) or {}
    own, shown = secret.fingerprint(), greeting.get("fingerprint")
    nonce = secrets.token_hex(16)
    proof = secret.proof(str(greeting.get("challenge")), str(rank), nonce)
    connection.send(rank=rank, nonce=nonce, fingerprint=own, proof=proof)
    if isinstance(shown, int) and shown != own:
        raise UserError(secret.disagreement(rank, {0: shown}))
    answer = _next(connection, deadline) or {}
    if "session" in answer:
        if not secret.is_proof(answer.get("proof"), str(answer["session"]), str(rank), nonce):
            return {}
        secret.begin_session(str(answer["session"]))
    return answer


def _next(connection: RankConnection, deadline: float) -> dict[str, Any] | None:
    """The next message; None if there is none."""
    messages: list[dict[str, Any]] | None = []
    while messages == [] and time.monotonic() < deadline:
        messages = connection.receive()  # for a second at most
    if not messages:
        return None
    first, *connection.unread = messages
    return first
