"""How the ranks of a run find one another at its store, and how the store's door closes behind them.

Paddle's store listens on every network interface, and serves whoever connects. Rank 0 therefore opens it first of all,
for this machine alone if all ranks are on it, waits until every rank has shown that it has the run's secret, and then
lets the kernel drop all further attempts to connect, which no rank needs. Only then do the ranks give
``paddle.distributed`` their addresses.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import time
from typing import Any, Callable, List, Optional, Tuple

import paddle

from ..errors import UserError
from . import secret
from .sockets import accepted, let_in_nobody, let_in_only, listeners, own_sockets, send_small_messages_at_once

_JOIN_SECONDS = 300.0  # machines that are started together come within seconds; importing may take a minute
_PATIENCE_SECONDS = 3.0  # a rank that is missing for longer, and has shown another secret, will not come
_TOLD_SECONDS = 10.0
_PREFIX = "paddlevit_dist/"

Address = Tuple[str, int]
_met = False


def enter(rank: int, size: int, at_store: Optional[Callable[[], Any]] = None) -> None:
    """Join the run at its store, and close it to everybody else. Every rank must call this before it joins the group.

    Args:
        at_store: called where the store is open and its door too: to make further connections.
    Raises:
        UserError: ranks have different secrets, or some did not come in time.
        ConnectionError: the store cannot be served, or breaks off.
    """
    host, port = _master()
    try:
        store = _open_store(rank)
        if at_store is not None:
            at_store()
        addresses = meet(store, rank, size, _JOIN_SECONDS)
    except (RuntimeError, ValueError, OSError) as error:  # Paddle's, whose first line says what happened
        reason = str(error).strip().split("\n")[0]
        raise ConnectionError(
            f"rank {rank} cannot join the group at {host}:{port}: {reason}; does another program use this port, or "
            "send to it?"
        ) from error
    if rank == 0:
        close_door(port, addresses)


def _open_store(rank: int) -> Any:
    """Paddle's store: rank 0 serves it, and so must be told not to wait for the others in native code, where it could
    neither close the door nor say whom it waits for."""
    if rank != 0:
        return paddle.base.core.create_or_get_global_tcp_store()
    before = os.environ["PADDLE_TRAINERS_NUM"]
    os.environ["PADDLE_TRAINERS_NUM"] = "1"
    try:
        store = paddle.base.core.create_or_get_global_tcp_store()
    finally:
        os.environ["PADDLE_TRAINERS_NUM"] = before
    endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
    if all(endpoint.startswith("127.") for endpoint in [*endpoints, _master()[0]]):
        for listener in listeners(_master()[1]):
            let_in_only(listener, "127.0.0.0", 8)
    return store


def _master() -> Address:
    """Where the store is."""
    endpoint = os.environ.get("PADDLE_MASTER") or os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")[0]
    host, _, port = endpoint.rpartition(":")
    return host, int(port)


def meet(store: Any, rank: int, size: int, seconds: Optional[float] = None) -> List[Address]:
    """Wait until all ranks have shown that they have the secret; every rank must call this. Once done, it returns at
    once.

    Args:
        store: the group's.
        seconds: how long to wait; None waits for as long as it takes.
    Returns:
        Where the ranks' connections to the store come from, as they see it.
    Raises:
        UserError: ranks have different secrets, or some did not come in time.
    """
    global _met
    if _met:
        return []
    send_small_messages_at_once()
    if rank == 0:
        _tell_what_is_missing()
    own = {"nonce": secrets.token_hex(16), "addresses": _own_addresses()}
    store.add(f"{_PREFIX}fingerprint/{rank}", secret.fingerprint())  # under a name that those with another secret know
    store.set(secret.key_name(f"{_PREFIX}hello/{rank}"), json.dumps(own))
    store.add(secret.key_name(f"{_PREFIX}joined/{rank}"), 1)
    store.add(secret.key_name(f"{_PREFIX}joined"), 1)
    _wait(store, rank, size, seconds)
    hellos = [json.loads(store.get(secret.key_name(f"{_PREFIX}hello/{other}"))) for other in range(size)]
    secret.begin_session([hello["nonce"].encode() for hello in hellos])
    _met = True
    return [(host, port) for hello in hellos for host, port in hello["addresses"]]


def _tell_what_is_missing() -> None:
    note = None
    if secret.of_run() is None:
        note = (
            f"note: messages between ranks are not signed; set {secret.FILE_VARIABLE} or {secret.VARIABLE} to the same "
            "secret on all machines"
        )
    elif secret.VARIABLE in os.environ and "PADDLE_LOCAL_SIZE" in os.environ:  # which only Paddle's launcher sets
        note = (
            f"note: Paddle's launcher has written {secret.VARIABLE} to the files of its --log_dir, for others to read; "
            f"set {secret.FILE_VARIABLE} instead, and choose another secret"
        )
    if note is not None:
        print(note, file=sys.stderr, flush=True)


def _wait(store: Any, rank: int, size: int, seconds: Optional[float]) -> None:
    started, pause = time.monotonic(), 0.0005
    next_look = started + _PATIENCE_SECONDS
    while store.add(secret.key_name(f"{_PREFIX}joined"), 0) < size:
        now = time.monotonic()
        if now > next_look:
            _see_that_secrets_agree(store, rank, size)
            next_look = now + _PATIENCE_SECONDS
        if seconds is not None and now - started > seconds:
            raise UserError(
                f"rank(s) {_missing(store, size)} did not join within {seconds:g} s; see that all machines run and "
                f"reach {':'.join(map(str, _master()))}"
            )
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _missing(store: Any, size: int) -> List[int]:
    return [rank for rank in range(size) if not store.add(secret.key_name(f"{_PREFIX}joined/{rank}"), 0)]


def _see_that_secrets_agree(store: Any, rank: int, size: int) -> None:
    own = secret.fingerprint()
    shown = {other: store.add(f"{_PREFIX}fingerprint/{other}", 0) for other in _missing(store, size)}
    others = [other for other, number in shown.items() if number not in (0, own)]
    if not others:
        return
    store.add(f"{_PREFIX}told", 1)
    deadline = time.monotonic() + _TOLD_SECONDS
    # The store ends with rank 0: the others need it to learn the same.
    while rank == 0 and time.monotonic() < deadline and store.add(f"{_PREFIX}told", 0) < size:
        time.sleep(0.02)
    if own == 1:
        what = f"rank(s) {others} have a secret, and rank {rank} has none"
    elif all(shown[other] == 1 for other in others):
        what = f"rank(s) {others} have no secret, and rank {rank} has one"
    else:
        what = f"rank(s) {others} have another secret than rank {rank}"
    raise UserError(f"{what}: set {secret.VARIABLE} or {secret.FILE_VARIABLE} to the same on all machines")


def close_door(port: int, addresses: List[Address]) -> bool:
    """Drop what arrives at this process's store from now on, other than from connections that the ranks have.

    Args:
        port: where the store listens.
        addresses: the ranks' ends of their connections; another connection is ended. If one of them is not connected
            (it came through address translation), none is.
    Returns:
        Whether this system can do it.
    """
    closed = [let_in_nobody(listener) for listener in listeners(port)]
    connections = [(connection, connection.getpeername()[:2]) for connection in accepted(port)]
    if set(addresses) <= {peer for _, peer in connections}:
        for connection, peer in connections:
            if peer not in addresses:
                with contextlib.suppress(OSError):  # it left by itself
                    connection.shutdown(socket.SHUT_RDWR)
    for connection, _ in connections:
        connection.close()
    return bool(closed) and all(closed)


def _own_addresses() -> List[Address]:
    """This process's ends of its connections to the store."""
    host, port = _master()
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host)
    found = []
    for own in own_sockets():
        with own, contextlib.suppress(OSError):
            if own.getpeername()[:2] == (host, port):
                found.append(own.getsockname()[:2])
    return found
