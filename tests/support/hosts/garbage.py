"""What strangers may send to the port of a group's store."""

import contextlib
import os
import random
import socket
import struct
from collections.abc import Callable

_ADD, _GET, _SET, _WAIT = 0, 1, 3, 4
_KEY = b"/init/"


def _request(command: int, key: bytes = _KEY, rest: bytes = b"") -> bytes:
    return struct.pack("<iQ", command, len(key)) + key + rest


def _sending(content: bytes) -> Callable[[str, int], list[socket.socket]]:
    def send(host: str, port: int) -> list[socket.socket]:
        connection = socket.create_connection((host, port), timeout=1.0)
        with contextlib.suppress(ConnectionError):  # it may be shown out before it has said everything
            connection.sendall(content)
        return [connection]

    return send


def _reset(host: str, port: int) -> list[socket.socket]:
    connection = socket.create_connection((host, port), timeout=1.0)
    connection.sendall(_request(_GET)[:7])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    return []


def _many(host: str, port: int) -> list[socket.socket]:
    return [socket.create_connection((host, port), timeout=1.0) for _ in range(200)]


_RANDOM = random.Random(7)
# Paddle's store reads one request after the other before 3.3: it waits for the rest of these.
HOLDS_UP_OLD_PADDLE = {"zeros", "a request for a web page", "half a request", "a command that does not exist"}

# Each takes host and port, and returns the connections that it keeps open.
KINDS: dict[str, Callable[[str, int], list[socket.socket]]] = {
    "random bytes": _sending(_RANDOM.randbytes(64) if hasattr(_RANDOM, "randbytes") else os.urandom(64)),
    "a megabyte of random bytes": _sending(os.urandom(1 << 20)),
    "zeros": _sending(bytes(4096)),
    "a request for a web page": _sending(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "half a request": _sending(_request(_ADD)[:9]),
    "a command that does not exist": _sending(_request(77)),
    "a key of 2^62 bytes announced": _sending(struct.pack("<iQ", _ADD, 1 << 62) + b"x"),
    "a value of 2^62 bytes announced": _sending(_request(_SET, b"/x", struct.pack("<Q", 1 << 62) + b"x")),
    "a number that is none": _sending(_request(_SET, _KEY, struct.pack("<Q", 3) + b"abc")),
    "waiting for what never comes": _sending(_request(_WAIT, b"/never")),
    "a reset in the middle": _reset,
    "200 connections that are held": _many,
}
