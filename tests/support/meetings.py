"""Programs that connect to rank 0 of a run, and sockets of rank 0 as other ranks see them, without waiting."""

import contextlib
import json
import multiprocessing.connection
import socket

import pytest

from paddlevit_dist.core.launch import secret
from support import processes


def arrive(rank=1, **more):
    return {"rank": rank, "nonce": "n", **more}


class ConnectingProgram:
    """A program that connects to rank 0 and says ``hello`` once it is greeted, or says nothing; a rank, if it is one.

    Attributes:
        greeting: what rank 0 says first; None before.
    """

    def __init__(self, hello: dict | bytes | None = None) -> None:
        self.hello, self.greeting, self.socket = hello, None, None

    def connect(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)

    def answer(self) -> None:
        self.greeting = self.read()
        if isinstance(self.hello, dict):
            more = {} if "failure" in self.hello else {"fingerprint": secret.fingerprint()}
            proof = secret.proof(self.greeting["challenge"], str(self.hello["rank"]), self.hello["nonce"])
            self.socket.sendall(json.dumps({"proof": proof, **more, **self.hello}).encode() + b"\n")
        elif self.hello is not None:
            self.socket.sendall(self.hello)

    def read(self) -> dict | None:
        """The next message of rank 0; None if the connection has ended, or says nothing."""
        self.socket.settimeout(0.1)
        line = b""
        with contextlib.suppress(ConnectionResetError, TimeoutError):
            while not line.endswith(b"\n") and (byte := self.socket.recv(1)):
                line += byte
        return json.loads(line) if line else None

    def is_connected(self) -> bool:
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1) != b""
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False


class SimulatedNetwork:
    """Lets programs act while rank 0 waits, in one thread; the time passes when none has anything to do.

    Attributes:
        clients: those who connect, a pause between two of them.
        pauses: for how long rank 0 would have waited at most, in seconds, in order.
        pause: how many seconds pass between the acts of two clients.
    """

    def __init__(self, time, port: int) -> None:
        self.time, self.address = time, ("127.0.0.1", port)
        self.clients, self.pauses, self.pause = [], [], 0.0
        self._wait = multiprocessing.connection.wait
        self.restart()

    def restart(self) -> None:
        """Let the clients come again."""
        self._acts = None

    def _turns(self):
        for client in self.clients:
            client.connect(self.address)
            yield
            client.answer()
            yield

    def wait(self, sockets, seconds) -> list:
        self.pauses.append(seconds)
        self._acts = self._acts or self._turns()
        next(self._acts, None)
        ready = self._wait(sockets, seconds)
        self.time.now += self.pause if ready else 0.0
        return ready


@pytest.fixture
def network(monkeypatch, simulated_time, store):
    """The network of rank 0, at a port of this machine."""
    (port,) = processes.free_ports(1)
    monkeypatch.setenv("PADDLE_MASTER", f"127.0.0.1:{port}")
    made = SimulatedNetwork(simulated_time, port)
    monkeypatch.setattr(multiprocessing.connection, "wait", made.wait)
    yield made
    for client in made.clients:
        if client.socket is not None:
            client.socket.close()


class SlowSocket:
    """A connection on which each of ``answers`` comes within a second; None: it does not."""

    def __init__(self, time, answers) -> None:
        self.time, self.answers, self.told, self.is_closed = time, list(answers), [], False

    def sendall(self, data: bytes) -> None:
        self.told.append(json.loads(data))

    def recv(self, size: int) -> bytes:
        self.time.now += 1.0
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            raise TimeoutError
        return answer

    def close(self) -> None:
        self.is_closed = True
