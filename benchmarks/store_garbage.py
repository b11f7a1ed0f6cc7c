"""What a stranger may send to the port on which the ranks of a run meet."""

import contextlib
import os
import random
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

_LISTENING = "0A"


class Stranger:
    """A process on the same machine that is no rank. Call ``leave`` at the end.

    Args:
        session: of the run's processes.
    """

    def __init__(self, session: int) -> None:
        self.session = session
        self.held: list[socket.socket] = []

    def wait_for_port(self, seconds: float) -> int | None:
        """The port of the store, which is the first one of the run's; None if the run ends without one."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and Path("/proc", str(self.session)).exists():
            ports = self.ports()
            if ports:
                return ports[0]
            time.sleep(0.02)
        return None

    def ports(self) -> list[int]:
        """Ports on which processes of the run listen, in the order in which they were opened."""
        sockets = set()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int((process / "stat").read_text().rpartition(")")[2].split()[3]) != self.session:
                    continue
                for descriptor in (process / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        sockets.add(os.readlink(descriptor))
        found = []
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with contextlib.suppress(OSError):
                for line in Path(table).read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == _LISTENING and f"socket:[{fields[9]}]" in sockets:
                        found.append((int(fields[9]), int(fields[1].rpartition(":")[2], 16)))
        return [port for _, port in sorted(found)]  # the kernel numbers sockets as they are made

    def send(self, port: int, content: bytes, connections: int = 1, hold: bool = True) -> str:
        """Send the same to the port on some connections, which stay open if ``hold``; returns what came of it."""
        done = 0
        for _ in range(connections):
            try:
                connection = socket.create_connection(("127.0.0.1", port), timeout=2.0)
                connection.sendall(content)
            except OSError as error:
                return f"{done} of {connections} connections, then {error.strerror or error}"
            done += 1
            if hold:
                self.held.append(connection)
            else:
                connection.close()
        return f"{done} connection(s) of {len(content)} bytes"

    def leave(self) -> None:
        """Close every connection."""
        for connection in self.held:
            connection.close()


def _request(command: int, key: bytes, rest: bytes = b"") -> bytes:
    """A request in the store's own format: a command, a key with its length, and what belongs to it."""
    return struct.pack("<iQ", command, len(key)) + key + rest


_ADD, _GET, _CHECK, _SET, _WAIT, _STOP = range(6)
_noise = random.Random(0)
_NUMBER = struct.pack("<q", 1 << 40)

KINDS: tuple[tuple[str, Callable[[Stranger, int], str]], ...] = (
    ("nothing, connection held", lambda who, port: who.send(port, b"")),
    ("nothing, connection closed", lambda who, port: who.send(port, b"", hold=False)),
    ("200 connections held", lambda who, port: who.send(port, b"", connections=200)),
    ("4 kB of noise", lambda who, port: who.send(port, _noise.randbytes(4096))),
    ("1 MB of noise", lambda who, port: who.send(port, _noise.randbytes(1 << 20), hold=False)),
    ("zero bytes", lambda who, port: who.send(port, bytes(4096))),
    ("an HTTP request", lambda who, port: who.send(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
    ("half a request", lambda who, port: who.send(port, struct.pack("<i", _SET) + b"\x10")),
    ("a key of 2^60 bytes", lambda who, port: who.send(port, struct.pack("<iQ", _SET, 1 << 60))),
    ("an unknown command", lambda who, port: who.send(port, _request(77, b"key"))),
    (
        "barriers of this package",
        lambda who, port: who.send(
            port, b"".join(_request(_ADD, f"paddlevit_dist/barrier/{n}/0".encode(), _NUMBER) for n in range(1, 50))
        ),
    ),
    ("a request to stop", lambda who, port: who.send(port, _request(_STOP, b""))),
)
