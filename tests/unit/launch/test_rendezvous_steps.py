"""The steps of a rendezvous, one by one and without waiting: addresses, messages, who is admitted, what is told."""

import contextlib
import json
import multiprocessing.connection
import os
import socket
import threading
from types import SimpleNamespace

import pytest
from support import processes

from paddlevit_dist import UserError
from paddlevit_dist.launch import rendezvous, secret
from paddlevit_dist.runtime.errors import WorkerFailure

VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "PADDLE_MASTER", "PADDLE_TRAINER_ENDPOINTS")


@pytest.fixture(autouse=True)
def fresh(fresh_rank):
    """A rank that has met no other, and has no secret."""


class Client:
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


class Network:
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
    made = Network(simulated_time, port)
    monkeypatch.setattr(multiprocessing.connection, "wait", made.wait)
    yield made
    for client in made.clients:
        if client.socket is not None:
            client.socket.close()


@pytest.mark.parametrize(
    "values, found",
    [
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1", "PADDLE_MASTER": "b:2"}, ("a", 1)),
        ({"MASTER_ADDR": "a", "PADDLE_MASTER": "b:65535"}, ("b", 65535)),
        ({"MASTER_PORT": "1", "PADDLE_TRAINER_ENDPOINTS": "c:3,d:4"}, ("c", 3)),
        ({"PADDLE_MASTER": "[::1]:70", "PADDLE_TRAINER_ENDPOINTS": "c:3"}, ("[::1]", 70)),
        ({}, "PADDLE_TRAINER_ENDPOINTS is ''"),
        ({"PADDLE_MASTER": "b"}, "PADDLE_MASTER is 'b'"),
        ({"PADDLE_MASTER": ":5"}, "PADDLE_MASTER is ':5'"),
        ({"PADDLE_MASTER": "b:0"}, "PADDLE_MASTER is 'b:0'"),
        ({"PADDLE_MASTER": "b:65536"}, "PADDLE_MASTER is 'b:65536'"),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "x"}, "MASTER_ADDR and MASTER_PORT is 'a:x'"),
    ],
)
def test_the_address_of_rank_0_is_found_or_its_variable_named(monkeypatch, values, found):
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    if isinstance(found, tuple):
        assert rendezvous.endpoint() == found
        return
    with pytest.raises(UserError) as refused:
        rendezvous.endpoint()
    assert str(refused.value) == f"{found}: expected HOST:PORT of rank 0's machine, as Paddle's launcher sets it"


def test_rank_and_size_are_those_of_the_environment(monkeypatch):
    assert rendezvous.get_rank_and_size() == (0, 1)
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "5")
    assert rendezvous.get_rank_and_size() == (2, 5)


# Joining


@contextlib.contextmanager
def answering_rank_0(monkeypatch, rank: int, size: int):
    """This process is one of several ranks; another program is rank 0, and lets it join once. Yields who has joined."""
    joined = []

    def answer() -> None:
        with listener.accept()[0] as connected:
            joined.append(1)
            connection = rendezvous.RankConnection(connected)
            connection.send(program="paddlevit_dist", challenge="c", fingerprint=1)
            connection.send(session="s", proof="")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        for name, value in {
            **{"MASTER_ADDR": "", "MASTER_PORT": "", "PADDLE_MASTER": address, "PADDLE_TRAINER_ENDPOINTS": address},
            **{"PADDLE_TRAINER_ID": str(rank), "PADDLE_TRAINERS_NUM": str(size)},
        }.items():
            monkeypatch.setenv(name, value)
        listener.settimeout(60.0)
        thread = threading.Thread(target=answer)
        thread.start()
        yield joined
        thread.join(60.0)


@pytest.mark.parametrize("spawned", [True, False])
@pytest.mark.parametrize("has_met", [True, False])
def test_ranks_meet_before_they_open_the_store_and_what_paddle_says_is_shown_on_errors(
    monkeypatch, capsys, store, spawned, has_met
):
    for name in VARIABLES:
        monkeypatch.setenv(name, "a:1")
    monkeypatch.setenv("PADDLE_DISTRI_BACKEND", "x")
    rendezvous.join_group("cpu", spawned)  # one process
    assert store.served == [] and os.environ["PADDLE_MASTER"] == "a:1"
    store.error = RuntimeError("no store")
    with answering_rank_0(monkeypatch, 1, 3) as joined:
        if has_met:
            rendezvous.meet(1, 3, 60.0)
        with pytest.raises(ConnectionError, match="no store"):
            rendezvous.join_group("cpu", spawned)
    assert joined == [1] and store.served == ["3"]
    assert capsys.readouterr().err == "of Paddle\n" and os.environ["PADDLE_DISTRI_BACKEND"] == "gloo"
    kept = {name for name in VARIABLES if name in os.environ}
    assert kept == ({"PADDLE_TRAINER_ENDPOINTS"} if spawned else set(VARIABLES))


def test_a_group_without_a_watchdog_is_joined_within_300_seconds(monkeypatch, network):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    begun = network.time.now
    with pytest.raises(WorkerFailure, match=r"it did not connect to .* within 300 s"):
        rendezvous.join_group("cpu", False)
    assert network.time.now - begun == pytest.approx(300.0, abs=0.5)


def own_address() -> str:
    """The address from which this machine reaches others, as the kernel chooses it; 127.0.0.1 without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("10.255.255.255", 9))
        return probe.getsockname()[0]
    return "127.0.0.1"


def test_gloo_takes_the_interface_of_the_machines_address(monkeypatch):
    by_address = {}
    for address in ("127.0.0.1", own_address()):
        monkeypatch.setenv("POD_IP", address)
        by_address[address] = rendezvous.find_interface()
    assert by_address["127.0.0.1"] == "lo" and set(by_address.values()) <= {name for _, name in socket.if_nameindex()}
    monkeypatch.setenv("PADDLE_CURRENT_ENDPOINT", "localhost:6170")  # it has the process's own port
    assert rendezvous.find_interface() == "lo"
    for elsewhere in ("203.0.113.7:6170", "no such name:1", "127.0.1.1:6170", "fd00::1:9", "a..b:1"):
        monkeypatch.setenv("PADDLE_CURRENT_ENDPOINT", elsewhere)
        assert rendezvous.find_interface() == ""


@pytest.mark.parametrize(
    "before, spawned, endpoint, after",
    [(None, False, "127.0.0.1:1", "lo"), ("", False, "127.0.0.1:1", "lo"), ("eth7", False, "127.0.0.1:1", "eth7"),
     (None, False, "203.0.113.7:1", None), (None, True, "127.0.0.1:1", None)],
)  # fmt: skip
def test_an_interface_is_chosen_where_the_user_names_none(monkeypatch, store, before, spawned, endpoint, after):
    monkeypatch.setenv("PADDLE_CURRENT_ENDPOINT", endpoint)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", before or "")
    if before is None:
        monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    store.group_error = RuntimeError("connect [127.0.0.1]:11669: Connection refused\n")
    with answering_rank_0(monkeypatch, 1, 2), pytest.raises(RuntimeError, match="Connection refused") as failed:
        rendezvous.join_group("cpu", spawned)
    assert os.environ.get("GLOO_SOCKET_IFNAME") == after
    assert ("set GLOO_SOCKET_IFNAME to the name" in str(failed.value)) is not spawned


def test_a_rank_says_after_30_seconds_whom_it_waits_for_and_rarely_again(network, capsys):
    network.time.meanwhile = lambda number: setattr(network.time, "now", network.time.now + 0.95)
    with pytest.raises(WorkerFailure):
        rendezvous.meet(1, 3, 300.0)
    seconds = [line.split(", ")[1] for line in capsys.readouterr().err.splitlines()]
    assert seconds == [f"{number} s so far" for number in (30, 60, 120, 240)]
    network.time.meanwhile = lambda number: None
    with pytest.raises(WorkerFailure):
        rendezvous.meet(0, 3, 70.0)
    _, *lines = capsys.readouterr().err.splitlines()  # after the one of the missing secret
    assert lines == [f"waiting for rank(s) 1, 2 to connect to rank 0, {number} s so far" for number in (30, 60)]


@pytest.mark.parametrize("rank, seen", [(0, "1"), (2, "3")])
@pytest.mark.parametrize("error", [None, RuntimeError(" no port\nmore"), ZeroDivisionError()])
def test_rank_0_serves_the_store_without_waiting_for_others(monkeypatch, network, store, rank, seen, error):
    if rank == 0:
        network.clients = [Client(arrive(1)), Client(arrive(2))]
        rendezvous.meet(0, 3, 60.0)
    else:
        with answering_rank_0(monkeypatch, 2, 3):
            rendezvous.meet(2, 3, 60.0)
    monkeypatch.setenv("PADDLE_TRAINER_ID", str(rank))
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    monkeypatch.setenv("PADDLE_MASTER", "b:2")
    store.served.clear()
    store.error = error
    kind = ConnectionError if isinstance(error, RuntimeError) else type(error)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        with contextlib.nullcontext() if error is None else pytest.raises(kind) as raised:
            rendezvous.join_group("cpu", False)
        assert bool(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) is (error is None)
    assert store.served == [seen] and os.environ["PADDLE_TRAINERS_NUM"] == "3"
    if isinstance(error, RuntimeError):
        assert str(raised.value) == (
            f"rank {rank} cannot join the group at b:2: no port; does another program use this port or send to it?"
        )


def test_small_messages_of_connections_are_sent_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        before = sorted(os.listdir("/proc/self/fd"))
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
        rendezvous.send_small_messages_at_once()
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "size, seconds, error, told",
    [
        (3, 300.0, ValueError("x"), (30.0, "ValueError: x")),
        (3, 20.0, UserError("x"), (20.0, "x")),
        (1, 300.0, ValueError("x"), None),
        (3, None, ValueError("x"), None),
        (3, 300.0, KeyboardInterrupt(), None),
    ],
)
@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_failure_before_the_meeting_is_told_to_the_others(monkeypatch, network, size, seconds, error, told, others):
    network.clients = [Client(arrive(rank)) for rank in range(1, 1 + others)]
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(size))
    begun = network.time.now
    with pytest.raises(type(error)) as raised, rendezvous.broadcast_startup_failure(seconds):
        raise error
    assert raised.value is error and rendezvous.has_met() is (told is not None)
    waited = network.time.now - begun
    if told is None:
        assert waited == 0.0 and network.pauses == []
    else:
        assert waited == pytest.approx(0.0 if others == 2 else told[0])
        assert [client.read() for client in network.clients] == [{"failed": [0, told[1]]}] * others


def test_after_the_meeting_a_failure_is_not_told(monkeypatch, network):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    network.clients = [Client(arrive(1))]
    rendezvous.meet(0, 2, 60.0)
    pauses = len(network.pauses)
    with pytest.raises(ValueError), rendezvous.broadcast_startup_failure(60.0):
        raise ValueError
    assert len(network.pauses) == pauses and "failed" not in network.clients[0].read()


@pytest.mark.parametrize("failure, told", [("a\nb", "a\\nb"), ("é" * 500, "é" * 400), ("x" * 801, "x" * 800)])
def test_a_reason_is_one_short_line(network, failure, told):
    network.clients = [Client(arrive(1))]
    assert not rendezvous.has_met()
    with pytest.raises(WorkerFailure):
        rendezvous.meet(0, 2, 9.0, failure)
    assert network.clients[0].read() == {"failed": [0, told]} and rendezvous.has_met()


# Messages


@pytest.fixture
def pair():
    """Two ends of a connection, which wait for nothing."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.001)
        yield rendezvous.RankConnection(ours), theirs


def test_messages_are_lines_of_json(pair):
    ours, theirs = pair
    assert ours.receive() == []
    theirs.sendall(b'{"a": 1}\n{"b"')
    assert ours.receive() == [{"a": 1}]
    theirs.sendall(b": 2}\n")
    ours.unread = [{"c": 3}]
    assert [ours.receive(), ours.receive(), ours.receive()] == [[{"c": 3}], [{"b": 2}], []]
    ours.send(x="é", y=[1])
    assert theirs.recv(100) == json.dumps({"x": "é", "y": [1]}).encode() + b"\n"
    theirs.close()
    ours.send(x=1)  # nobody reads it
    assert ours.receive() is None


@pytest.mark.parametrize(
    "content",
    [b"GET /\n", b"[1]\n", b"3\n", b'{"a": 1}\n[]\n', b"\xff\n", b"[" * 50_000 + b"\n", b"x" * 65536],
    ids=range(7),
)
def test_what_is_no_message_is_not_one_of_ours(pair, content):
    ours, theirs = pair
    theirs.setblocking(False)
    theirs.sendall(content)
    assert ours.receive() is None


def test_a_long_line_is_waited_for(pair):
    ours, theirs = pair
    theirs.sendall(b'"' + b"x" * 65534)
    assert ours.receive() == []


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


def test_the_next_message_is_awaited_until_a_time(simulated_time):
    connected = SlowSocket(simulated_time, [None, None, b'{"a": 1}\n{"b": 2}\n{"c": 3}\n'])
    connection, begun = rendezvous.RankConnection(connected), simulated_time.now
    assert connection.receive_one(begun + 3.0) == {"a": 1} and connection.unread == [{"b": 2}, {"c": 3}]
    assert connection.receive() == [{"b": 2}, {"c": 3}]
    for later, waits in ((2.0, 2), (1.5, 2), (0.0, 0)):
        before = simulated_time.now
        assert connection.receive_one(before + later) is None and simulated_time.now - before == waits
    connected.answers = [b""]  # it has ended
    assert connection.receive_one(simulated_time.now + 9.0) is None and simulated_time.now == before + 1.0


# Rank 0


def arrive(rank=1, **more):
    return {"rank": rank, "nonce": "n", **more}


def test_ranks_of_the_run_are_admitted_with_their_proof_only(simulated_time):
    secret.use(b"s" * 32)
    own = secret.fingerprint()
    arrivals = rendezvous.ArrivedRanks(4, own)
    assert len(bytes.fromhex(arrivals.challenge)) == 16
    proof = secret.proof(arrivals.challenge, "1", "n")
    for hello in (
        *(
            {},
            {"rank": "1"},
            arrive(0, proof=proof),
            arrive(4, proof=proof),
            arrive(-1),
            arrive(1),
            arrive(2, proof=proof),
        ),
        *(arrive(1, proof=proof, nonce="m"), arrive(1, proof=None)),
    ):
        arrivals.admit("stranger", {"fingerprint": own, **hello})
    assert arrivals.missing() == [1, 2, 3] and arrivals.peers == {}
    arrivals.admit("a", arrive(1, proof=proof, fingerprint=own))
    arrivals.admit("b", arrive(2, fingerprint=own + 1))
    simulated_time.now += 1.0
    arrivals.admit("c", arrive(2, fingerprint=own + 2))
    arrivals.admit("d", arrive(3, fingerprint=own + 3))
    simulated_time.now += 2.0
    assert (arrivals.missing(), arrivals.peers, arrivals.nonces) == ([2, 3], {1: "a"}, {1: "n"})
    assert arrivals.other_secrets() == {}
    simulated_time.now += 0.5
    assert arrivals.other_secrets() == {2: own + 1}
    simulated_time.now += 1.0
    assert arrivals.other_secrets() == {2: own + 1, 3: own + 3}
    arrivals.admit("e", arrive(2, proof=secret.proof(arrivals.challenge, "2", "n")))
    assert arrivals.other_secrets() == {3: own + 3} and arrivals.failed is None
    arrivals.admit("f", arrive(3, failure="no disk"))
    arrivals.admit("g", arrive(2, failure="no network"))
    assert arrivals.failed == (3, "no disk") and arrivals.missing() == [] and arrivals.peers[2] == "g"


def test_all_are_admitted_to_hear_a_failure():
    secret.use(b"s" * 32)
    arrivals = rendezvous.ArrivedRanks(3, None)
    arrivals.admit("a", arrive(1, fingerprint=99))
    arrivals.admit("b", arrive(2))
    assert arrivals.peers == {1: "a", 2: "b"} and arrivals.failed is None


def meet(network, hellos, failure=None) -> str | dict:
    """What rank 0 of 4 finds when these have come: the peers, or an error."""
    network.clients = [Client(hello) for hello in hellos]
    try:
        return rendezvous.meet(0, 4, 9.0, failure)
    except (UserError, WorkerFailure) as error:
        return f"{type(error).__name__}: {error}"


def test_all_get_the_session_once_the_store_is_there(network, store, capsys):
    monitored = []
    for _ in range(2):
        secret.use(b"s" * 32)
        before = secret.key_name("board")
        peers = meet(network, [arrive(rank, nonce=f"n{rank}") for rank in (1, 2, 3)])
        session = network.clients[0].read()
        assert session == {"session": session["session"], "proof": secret.proof(session["session"], "1", "n1")}
        for rank, client in enumerate(network.clients[1:], 2):
            assert client.read() == {**session, "proof": secret.proof(session["session"], str(rank), f"n{rank}")}
        for rank, peer in peers.items():
            assert peer.socket.getpeername() == network.clients[rank - 1].socket.getsockname()
            peer.socket.close()
        own_name = secret.key_name("board")
        secret.begin_session(session["session"])
        assert secret.key_name("board") == own_name != before  # of the session that all are told
        monitored.append(session["session"])
        assert len(bytes.fromhex(session["session"])) == 32
        network.restart()
    assert len(set(monitored)) == 2 and store.served == ["1", "1"]  # a new one each time
    assert capsys.readouterr().err == ""


NOT_CONNECTED = "it did not connect to {0} within 9 s (WATCHDOG_SECONDS)"
NOTE = "note: messages between ranks are not signed; "


@pytest.mark.parametrize(
    "hellos, failure, told",
    [
        (
            [arrive(1), arrive(3)],
            None,
            (2, f"{NOT_CONNECTED}: check that it was"),
        ),
        (
            [arrive(2)],
            None,
            (1, f"{NOT_CONNECTED} (missing: ranks 1, 3): check that"),
        ),
        ([arrive(1), arrive(2), arrive(3)], "no disk", (0, "no disk")),
        ([arrive(1)], "no disk", (0, "no disk")),
        ([arrive(1), arrive(2, failure="no data")], None, (2, "no data")),
        (
            [arrive(1), arrive(3, fingerprint=9), arrive(2, fingerprint=8)],
            None,
            (2, "rank(s) [2, 3] have a secret, and rank 0 has none: set PADDLEVIT_DIST_SECRET or"),
        ),
    ],
)
def test_all_that_came_are_told_why_the_run_ends(network, store, capsys, hellos, failure, told):
    found = meet(network, hellos, failure)
    rank, text = told[0], told[1].format(f"127.0.0.1:{network.address[1]}")
    kind = "UserError: " if "secret" in text else f"WorkerFailure: rank {rank} failed: "
    assert found.startswith(kind + text) and store.served == []
    assert capsys.readouterr().err.startswith(NOTE) is (failure is None)
    for client in network.clients:
        if "fingerprint" not in client.hello:
            ((name, (guilty, reason)),) = client.read().items()
            assert (name, guilty) == ("failed", rank) and reason.startswith(text) and client.read() is None


def test_a_taken_port_is_named(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("PADDLE_MASTER", f"127.0.0.1:{port}")
        with pytest.raises(UserError) as refused:
            rendezvous.meet(0, 2, 9.0)
    assert str(refused.value) == (
        f"rank 0 cannot listen on port {port} (the master is 127.0.0.1:{port}): Address already in use; another "
        "program uses it: choose a free port"
    )


def test_ranks_are_collected_among_others(network):
    secret.use(b"s" * 32)
    stranger, silent = Client(b"GET /\r\n"), Client()
    network.clients = [stranger, silent, Client(arrive(2)), Client(arrive(1))]
    peers = rendezvous.meet(0, 3, 600.0)
    challenges = {client.greeting.pop("challenge") for client in network.clients}
    assert len(challenges) == 1
    for client in network.clients:
        assert client.greeting == {"program": "paddlevit_dist", "fingerprint": secret.fingerprint()}
    assert [client.is_connected() for client in network.clients] == [False, False, True, True]
    for rank, peer in peers.items():
        assert peer.socket.getpeername() == network.clients[4 - rank].socket.getsockname()
        peer.socket.close()
    assert sorted(peers) == [1, 2]


@pytest.mark.parametrize("seconds, pauses", [(1.2, [0.5, 0.5, 0.2]), (0.5, [0.5]), (0.0, [])])
def test_ranks_are_collected_until_a_time(network, seconds, pauses):
    with pytest.raises(WorkerFailure):
        rendezvous.meet(0, 2, seconds)
    assert network.pauses == pytest.approx(pauses)


def test_ranks_with_other_secrets_are_waited_for_a_few_seconds_only(network):
    network.clients, begun = [Client(arrive(1, fingerprint=7))], network.time.now
    with pytest.raises(UserError, match="secret"):
        rendezvous.meet(0, 3, 50.0)
    assert 3.0 < network.time.now - begun <= 3.5


def test_after_a_failure_others_have_five_seconds(network):
    network.clients = [Client(arrive(1, failure="no disk")), Client(arrive(2, failure="no data"))]
    network.pause, begun = 1.0, network.time.now
    with pytest.raises(WorkerFailure, match="rank 1 failed: no disk"):
        rendezvous.meet(0, 4, 400.0)
    assert network.time.now - begun == 7.0  # told after two
    assert [client.read() for client in network.clients] == [{"failed": [1, "no disk"]}] * 2


def test_who_was_not_admitted_in_time_is_closed(network):
    network.clients = [Client(), Client(b"no message\n"), Client(arrive(1))]
    with pytest.raises(WorkerFailure):
        rendezvous.meet(0, 4, 9.0)
    assert [client.read() is None for client in network.clients] == [True, True, False]
    assert not any(client.is_connected() for client in network.clients[:2])


# Other ranks


@pytest.fixture
def connect(monkeypatch, simulated_time):
    """Return a function by which rank 2 connects: each try finds nobody (None), or a socket with these answers."""
    monkeypatch.setenv("PADDLE_MASTER", "10.0.0.1:70")

    def connect_with(tries, failure=None):
        state = SimpleNamespace(made=[], error=None, connection=None)
        left = list(tries)

        def create(address, timeout) -> SlowSocket:
            assert (address, timeout) == (rendezvous.endpoint(), 1.0)
            answers = left.pop(0) if left else None
            if answers is None:
                simulated_time.now += 1.0
                raise OSError
            state.made.append(SlowSocket(simulated_time, answers))
            return state.made[-1]

        monkeypatch.setattr(socket, "create_connection", create)
        try:
            state.connection = rendezvous.meet(2, 3, 8.0, failure)[0]
        except (UserError, WorkerFailure) as error:
            state.error = f"{type(error).__name__}: {error}"
        return state

    return connect_with


ENDED = b""
OURS = b'{"program": "paddlevit_dist", "challenge": "c", "fingerprint": 1}\n'
SESSION = b'{"session": "s", "proof": ""}\n'


def test_a_rank_tries_until_rank_0_answers_with_a_session(connect, simulated_time):
    state = connect([None, [ENDED], [b'{"program": "x"}\n'], [OURS, ENDED], [OURS, SESSION]])
    assert state.connection.socket is state.made[-1] and state.error is None
    assert [peer.is_closed for peer in state.made] == [True, True, True, False]
    assert [len(peer.told) for peer in state.made] == [0, 0, 1, 1]
    assert simulated_time.waits == [0.05] * 4


def test_rank_0_gives_up_before_a_rank_that_it_has_greeted(connect, simulated_time):
    begun = simulated_time.now
    state = connect([[OURS]])
    assert "it answered, but has ended" in state.error
    assert simulated_time.now - begun == pytest.approx(15.05)  # 8 + a quarter of 8 + 5


WAITED = "rank 2 waited for rank 0 at 10.0.0.1:70 for 8 s (WATCHDOG_SECONDS)"
NOTHING = "nothing answers there: check that it was started and that its machine can be reached"


@pytest.mark.parametrize(
    "tries, error",
    [
        ([], f"WorkerFailure: rank 0 failed: {WAITED}; {NOTHING}"),
        ([[ENDED]] * 9, f"UserError: {WAITED}, but another program answers there: choose a free port for the master"),
        (
            [[ENDED], [OURS, ENDED]],
            f"WorkerFailure: rank 0 failed: {WAITED}; it answered, but has ended: read its log for the reason",
        ),
        ([[OURS, b'{"failed": [3, "no disk"]}\n']], "WorkerFailure: rank 3 failed: no disk"),
    ],
)
def test_a_rank_says_why_it_does_not_meet_rank_0(connect, tries, error):
    assert connect(tries, "own failure").error == error


def test_an_address_of_each_machine_itself_is_explained(connect, monkeypatch):
    monkeypatch.setenv("PADDLE_MASTER", "127.0.0.1:70")
    more = "; 127.0.0.1 means each machine itself: if rank 0 is on another machine, pass --host to its launcher"
    assert connect([]).error.endswith(f"(WATCHDOG_SECONDS); {NOTHING}{more}")


@pytest.mark.parametrize("failure", [None, "no disk"])
@pytest.mark.parametrize(
    "answer, found",
    [
        (b'{"failed": [1, "x"]}\n', {"failed": [1, "x"]}),
        (ENDED, {}),
        (b'{"session": "t", "proof": "x"}\n', {}),
    ],
)
def test_a_rank_greets_with_its_proof_or_its_failure(simulated_time, failure, answer, found):
    secret.use(b"s" * 32)
    before = secret.key_name("board")
    connected, begun = SlowSocket(simulated_time, [None, answer]), simulated_time.now
    greeting = {"challenge": "c", "fingerprint": secret.fingerprint()}
    answered = rendezvous.greet(rendezvous.RankConnection(connected), greeting, 2, failure, begun + 2.0)
    assert simulated_time.now == begun + 2.0
    (hello,) = connected.told
    if failure is not None:
        assert answered == (json.loads(answer) if answer else {}) and hello == {"rank": 2, "failure": failure}
        return
    assert answered == found and secret.key_name("board") == before
    nonce = hello.pop("nonce")
    assert len(bytes.fromhex(nonce)) == 16
    assert hello == {"rank": 2, "fingerprint": secret.fingerprint(), "proof": secret.proof("c", "2", nonce)}
    assert rendezvous.greet(rendezvous.RankConnection(connected), greeting, 2, failure, simulated_time.now) == {}


class HonestSocket(SlowSocket):
    """Rank 0, which proves that it has the secret."""

    def recv(self, size: int) -> bytes:
        proof = secret.proof("t", "2", self.told[-1]["nonce"])
        return json.dumps({"session": "t", "proof": proof}).encode() + b"\n"


@pytest.mark.parametrize("shown", ["none", "own"])
def test_a_session_begins_if_rank_0_proves_it(simulated_time, shown):
    secret.use(b"s" * 32)
    connection, later = rendezvous.RankConnection(HonestSocket(simulated_time, [])), simulated_time.now + 7.0
    greeting = {"challenge": "c", **({} if shown == "none" else {"fingerprint": secret.fingerprint()})}
    assert rendezvous.greet(connection, greeting, 2, None, later)["session"] == "t"
    begun = secret.key_name("board")
    secret.begin_session("t")
    assert begun == secret.key_name("board")
    with pytest.raises(UserError, match=r"^rank\(s\) \[0\] have another secret than rank 2: "):
        rendezvous.greet(connection, {"challenge": "c", "fingerprint": 99}, 2, None, later)
