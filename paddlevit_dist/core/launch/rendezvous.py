"""The rendezvous of a run's ranks: they connect at rank 0's port before Paddle's store takes it.

Joining blocks inside Paddle, with Python's lock held and without output, while a rank is missing or another program has
the port. So each rank first sends its rank and proves that it has the run's secret, or reports its failure. Rank 0 lets
them continue once its store listens. Under Paddle's launcher they keep these connections (``group_watch``).
"""

import contextlib
import fcntl
import hashlib
import io
import json
import multiprocessing.connection
import os
import secrets
import socket
import struct
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
_LONGEST = 65536  # bytes per line
_LONGEST_REASON = 800  # bytes
_RETRY_SECONDS = 0.05
_JOIN_SECONDS = 300.0  # the default
_PATIENCE_SECONDS = 3.0  # a rank that came with another secret and is still missing will not come
_FAILURE_SECONDS = 30.0  # a failed rank waits this long for the others, which read data for about as long as it did
_LATE_SECONDS = 5.0  # ranks that have arrived wait this long for one that has not heard of a failure
_NOTICE_SECONDS = 30.0  # a rank says after this time whom it waits for, and again when it has waited twice as long
_SIOCGIFADDR = 0x8915  # of Linux: the IPv4 address of a network interface
_ADVICE = ": check that it was started with this master, and read its log"

_GLOO_ADVICE = (
    "each machine must reach the others' addresses: pass --host ADDRESS to Paddle's launcher on each, or set "
    "GLOO_SOCKET_IFNAME to the name of its network interface"
)

_has_met = False


def has_met() -> bool:
    """Return whether this rank has met the others here. In a user's own program, ranks join by themselves."""
    return _has_met


class RankConnection:
    """A connection between two ranks for messages: one JSON object per line."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._rest = b""
        self.unread: list[dict[str, Any]] = []  # received together with an earlier message

    def send(self, **message: object) -> None:
        """Send one message; do nothing if the other side is gone, as ``receive`` reports that."""
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the messages since the last call, waiting for the first; None: the peer is gone or not one of ours."""
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

    def receive_one(self, deadline: float) -> dict[str, Any] | None:
        """Return the next message; None if there is none until ``deadline``, in seconds of the monotonic clock."""
        messages: list[dict[str, Any]] | None = []
        while messages == [] and time.monotonic() < deadline:
            messages = self.receive()  # for a second at most
        if not messages:
            return None
        first, *self.unread = messages
        return first


Peers = dict[int, RankConnection]  # by rank: on rank 0 all others, on the others rank 0


def endpoint() -> tuple[str, int]:
    """Return host and port of the store on rank 0, or raise UserError for a variable other than HOST:PORT."""
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    name, value = "MASTER_ADDR and MASTER_PORT", f"{address}:{port}"
    if not (address and port):
        name, value = "PADDLE_MASTER", os.environ.get("PADDLE_MASTER", "")
    if not value:
        name, value = "PADDLE_TRAINER_ENDPOINTS", os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")[0]
    host, _, digits = value.rpartition(":")
    if not host or not digits.isdecimal() or not 0 < int(digits) < 65536:
        raise UserError(f"{name} is '{value}': expected HOST:PORT of rank 0's machine, as Paddle's launcher sets it")
    return host, int(digits)


def get_rank_and_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks from the environment; 0 and 1 without a launcher."""
    return int(os.environ.get("PADDLE_TRAINER_ID", "0")), int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))


def join_group(device: str, spawned: bool) -> None:
    """Select this process's device and, if there are several processes, join their group. Every rank must call this.

    Raises UserError if another program has the port, or ranks have different secrets, WorkerFailure if a rank has
    failed, or did not come in time, and ConnectionError if Paddle's store cannot be served.

    Args:
        device: kind of each process's device (``core/runtime/device_kinds.py``); "cpu" uses gloo.
        spawned: whether this machine's parent process started this one. Rendezvous variables that a cluster's shell may
            have exported are then not meant for it and are dropped.
    """
    paddle.set_device(device)
    rank, size = get_rank_and_size()
    if size < 2:
        return
    if spawned:
        for name in ("MASTER_ADDR", "MASTER_PORT", "PADDLE_MASTER"):
            os.environ.pop(name, None)
    backend = device_kinds.get_kind(device).backend
    if backend in ("gloo", "xccl"):  # Paddle finds the other backends by itself
        os.environ["PADDLE_DISTRI_BACKEND"] = backend
    has_interface = spawned or os.environ.get("GLOO_SOCKET_IFNAME")
    if backend == "gloo" and not has_interface and (interface := find_interface()):
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    if not _has_met:
        for peer in meet(rank, size, _JOIN_SECONDS).values():
            peer.socket.close()
    messages = io.StringIO()  # Paddle 3 prints its modified flags on every start
    try:
        with contextlib.redirect_stderr(messages):
            _open_store(rank)
            dist.init_parallel_env()
    except BaseException as error:
        print(messages.getvalue(), end="", file=sys.stderr)
        if backend == "gloo" and not spawned and isinstance(error, RuntimeError):
            raise RuntimeError(f"{str(error).strip()} ({_GLOO_ADVICE})") from error
        raise


def find_interface() -> str:
    """Return the network interface with this machine's address for the others (``--host``); "" if there is none.

    Without a name, gloo takes the address that the machine's name resolves to, often 127.0.1.1.
    """
    host = os.environ.get("PADDLE_CURRENT_ENDPOINT", "").rpartition(":")[0] or os.environ.get("POD_IP", "")
    with contextlib.suppress(OSError, UnicodeError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        address = socket.inet_aton(socket.gethostbyname(host))
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                if fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))[20:24] == address:
                    return name
    return ""


class _WaitNotice:
    """Prints whom this rank waits for, after a while and then each time that the wait has doubled."""

    def __init__(self) -> None:
        self._began, self._due = time.monotonic(), _NOTICE_SECONDS

    def print_if_due(self, whom: str) -> None:
        waited = time.monotonic() - self._began
        if waited >= self._due:
            self._due = 2 * waited
            print(printing.one_line(f"waiting for {whom}, {waited:.0f} s so far"), file=sys.stderr, flush=True)


def _open_store(rank: int) -> None:
    """Open Paddle's store. Rank 0 serves it, and must not wait for the others in native code."""
    before = os.environ["PADDLE_TRAINERS_NUM"]
    if rank == 0:
        os.environ["PADDLE_TRAINERS_NUM"] = "1"
    try:
        paddle.base.core.create_or_get_global_tcp_store()
    except (RuntimeError, ValueError, OSError) as error:  # the first line of Paddle's message has the cause
        reason = str(error).strip().split("\n")[0]
        raise ConnectionError(
            f"rank {rank} cannot join the group at {':'.join(map(str, endpoint()))}: {reason}; does another program "
            "use this port or send to it?"
        ) from error
    finally:
        os.environ["PADDLE_TRAINERS_NUM"] = before
    send_small_messages_at_once()


def send_small_messages_at_once() -> None:
    """Disable Nagle's algorithm on this process's TCP connections (Linux).

    With it, each of the small pieces of a request of the store's client waits 44 ms; a request takes 0.1 ms without.
    """
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        with contextlib.suppress(OSError):  # closed by now, or not a connection
            copy = os.dup(int(name))
            try:
                socket.socket(fileno=copy).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                os.close(copy)


@contextlib.contextmanager
def broadcast_startup_failure(seconds: float | None) -> Iterator[None]:
    """Report a failure in the block to ranks that have not met this one yet, so that they end too.

    ``seconds``: how long ``meet`` will wait; None: no rank will come, so none is notified.
    """
    try:
        yield
    except Exception as error:
        rank, size = get_rank_and_size()
        if size > 1 and seconds is not None and not _has_met:
            with contextlib.suppress(UserError, WorkerFailure, ConnectionError):
                meet(rank, size, min(seconds, _FAILURE_SECONDS), failures.reason(error))
        raise


def meet(rank: int, size: int, seconds: float, failure: str | None = None) -> Peers:
    """Return the connections of all ranks, with one secret, once rank 0's store listens. Every rank must call this.

    Wait for ``seconds``; ``failure``: why this rank is about to end. Raises as ``join_group`` does.
    """
    global _has_met
    _has_met = True
    if failure is not None:
        failure = printing.one_line(failure).encode()[:_LONGEST_REASON].decode(errors="ignore")
    return _accept_ranks(size, seconds, failure) if rank == 0 else {0: _connect_to_rank_0(rank, seconds, failure)}


class ArrivedRanks:
    """The ranks that have connected to rank 0, with its secret's ``fingerprint``; None admits all to hear a failure."""

    def __init__(self, size: int, fingerprint: int | None) -> None:
        self.size, self.fingerprint = size, fingerprint
        self.challenge = secrets.token_hex(16)  # so that a recorded proof cannot be replayed
        self.peers: Peers = {}
        self.nonces: dict[int, str] = {}
        self.failed: tuple[int, str] | None = None
        self._others: dict[int, tuple[int, float]] = {}  # rank -> another secret's fingerprint, and its time

    def admit(self, connection: RankConnection, hello: dict[str, Any]) -> None:
        """Take a rank that says ``hello`` with a proof, or note its failure or its other secret; ignore strangers."""
        rank, nonce, failure, shown = (hello.get(name) for name in ("rank", "nonce", "failure", "fingerprint"))
        if not (isinstance(rank, int) and 0 < rank < self.size):
            return
        if isinstance(failure, str):
            self.failed = self.failed or (rank, failure)
        elif isinstance(shown, int) and self.fingerprint not in (None, shown):
            self._others.setdefault(rank, (shown, time.monotonic()))
            return
        elif self.fingerprint is not None and not secret.is_proof(
            hello.get("proof", ""), self.challenge, str(rank), str(nonce)
        ):
            return
        self.peers[rank], self.nonces[rank] = connection, str(nonce)

    def missing(self) -> list[int]:
        """Return the ranks that have not been admitted."""
        return [rank for rank in range(1, self.size) if rank not in self.peers]

    def other_secrets(self) -> dict[int, int]:
        """Return the fingerprints of ranks that came a while ago with another secret, and not again with this one."""
        before = time.monotonic() - _PATIENCE_SECONDS
        return {
            rank: shown
            for rank, (shown, came_at) in self._others.items()
            if came_at < before and rank not in self.peers
        }

    def collect(self, listener: socket.socket, deadline: float) -> None:
        """Accept the ranks until all are there, or ``deadline``; ignore other programs that connect."""
        waiting: dict[Any, RankConnection] = {}  # by socket
        notice = _WaitNotice()
        while self.missing() and not self.other_secrets() and time.monotonic() < deadline:
            notice.print_if_due(f"rank(s) {', '.join(map(str, self.missing()))} to connect to rank 0")
            pause = min(0.5, max(0.0, deadline - time.monotonic()))
            for ready in multiprocessing.connection.wait([listener, *waiting], pause):
                if ready is listener:
                    connection = RankConnection(listener.accept()[0])
                    connection.send(program=_PROGRAM, challenge=self.challenge, fingerprint=self.fingerprint)
                    waiting[connection.socket] = connection
                    continue
                hello = waiting[ready].receive()
                if hello:
                    had_failed = self.failed is not None
                    self.admit(waiting[ready], hello[0])
                    if self.failed is not None and not had_failed:
                        deadline = min(deadline, time.monotonic() + _LATE_SECONDS)
                if hello != []:
                    unknown = waiting.pop(ready)
                    if unknown not in self.peers.values():
                        unknown.socket.close()
        for unknown in waiting.values():
            unknown.socket.close()


def _accept_ranks(size: int, seconds: float, failure: str | None) -> Peers:
    host, port = endpoint()
    try:
        # Debian resolves a machine's own name to 127.0.1.1.
        listener = socket.create_server((host if host.startswith("127.") else "", port), backlog=1024)
    except OSError as error:
        raise UserError(
            f"rank 0 cannot listen on port {port} (the master is {host}:{port}): {os.strerror(error.errno or 0)}; "
            "another program uses it: choose a free port"
        ) from error
    if failure is None:
        secret.print_missing_protection()
    arrivals = ArrivedRanks(size, secret.fingerprint() if failure is None else None)
    with listener:  # closed before the ranks continue: later connections must reach Paddle's store
        arrivals.collect(listener, time.monotonic() + seconds)
    missing, others = arrivals.missing(), arrivals.other_secrets()
    failed, is_lost = (0, failure) if failure is not None else arrivals.failed, False
    if failed is None and others:
        failed = min(others), secret.describe_mismatch(0, others)
    elif failed is None and missing:
        ranks = f" (missing: ranks {', '.join(map(str, missing))})" if len(missing) > 1 else ""
        reason = f"it did not connect to {host}:{port} within {seconds:g} s (WATCHDOG_SECONDS){ranks}{_ADVICE}"
        failed, is_lost = (missing[0], reason), True
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
        raise UserError(failed[1]) if others else WorkerFailure(*failed, is_lost=is_lost)
    return arrivals.peers


def _connect_to_rank_0(rank: int, seconds: float, failure: str | None) -> RankConnection:
    """Report this rank, or its failure, to rank 0 and wait until all ranks are there."""
    host, port = endpoint()
    deadline = time.monotonic() + seconds
    reason = "nothing answers there: check that it was started and that its machine can be reached"
    if host.startswith("127."):
        reason += f"; {host} means each machine itself: if rank 0 is on another machine, pass --host to its launcher"
    is_foreign, notice = False, _WaitNotice()
    while time.monotonic() < deadline:
        notice.print_if_due(f"rank 0 at {host}:{port}")
        try:
            connection = RankConnection(socket.create_connection((host, port), timeout=1.0))
        except OSError:
            time.sleep(_RETRY_SECONDS)
            continue
        greeting = connection.receive_one(deadline) or {}
        is_foreign = greeting.get("program") != _PROGRAM
        if not is_foreign:
            answer = greet(
                connection, greeting, rank, failure, deadline + 0.25 * seconds + 5.0
            )  # rank 0 gives up first
            if "session" in answer:
                return connection
            if "failed" in answer:
                raise WorkerFailure(*answer["failed"])
            reason = "it answered, but has ended: read its log for the reason"
        connection.socket.close()
        time.sleep(_RETRY_SECONDS)
    waited = f"rank {rank} waited for rank 0 at {host}:{port} for {seconds:g} s (WATCHDOG_SECONDS)"
    if is_foreign:
        raise UserError(f"{waited}, but another program answers there: choose a free port for the master")
    raise WorkerFailure(0, f"{waited}; {reason}")


def greet(
    connection: RankConnection, greeting: dict[str, Any], rank: int, failure: str | None, deadline: float
) -> dict[str, Any]:
    """Greet rank 0 and return its final answer; empty if it is gone or does not prove that it has the secret.

    Raises UserError if its ``greeting`` shows another secret.
    """
    if failure is not None:
        connection.send(rank=rank, failure=failure)
        return connection.receive_one(deadline) or {}
    fingerprint, shown = secret.fingerprint(), greeting.get("fingerprint")
    nonce = secrets.token_hex(16)
    proof = secret.proof(str(greeting.get("challenge")), str(rank), nonce)
    connection.send(rank=rank, nonce=nonce, fingerprint=fingerprint, proof=proof)
    if isinstance(shown, int) and shown != fingerprint:
        raise UserError(secret.describe_mismatch(rank, {0: shown}))
    answer = connection.receive_one(deadline) or {}
    if "session" in answer:
        if not secret.is_proof(answer.get("proof"), str(answer["session"]), str(rank), nonce):
            return {}
        secret.begin_session(str(answer["session"]))
    return answer
