"""The steps of a rendezvous, one by one and without waiting: addresses, messages, who is admitted, what is told."""

import contextlib
import json
import os
import socket
import sys
from types import SimpleNamespace

import paddle
import pytest
from support import processes

from paddlevit_dist import UserError
from paddlevit_dist.launch import rendezvous, secret
from paddlevit_dist.runtime.errors import WorkerFailure

VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "PADDLE_MASTER", "PADDLE_TRAINER_ENDPOINTS")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """A rank that has met no other, and has no secret."""
    for name in (*VARIABLES, secret.VARIABLE, secret.FILE_VARIABLE, "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(rendezvous, "_has_met", False)
    monkeypatch.setattr(secret, "_run_secret", None)
    monkeypatch.setattr(secret, "_session_key", None)


@pytest.fixture
def clock(monkeypatch):
    """The time, which a sleep moves on; ``sleeps`` are their lengths."""
    state = SimpleNamespace(now=100.0, sleeps=[])

    def sleep(seconds: float) -> None:
        state.sleeps.append(seconds)
        state.now += seconds

    monkeypatch.setattr(rendezvous, "time", SimpleNamespace(monotonic=lambda: state.now, sleep=sleep))
    return state


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


class Peer:
    """The connection of another rank; ``told`` is what it is sent."""

    def __init__(self) -> None:
        self.told, self.is_closed = [], False
        self.socket = self

    def send(self, **message) -> None:
        self.told.append(message)

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("spawned", [True, False])
@pytest.mark.parametrize("has_met", [True, False])
def test_ranks_meet_before_they_open_the_store_and_what_paddle_says_is_shown_on_errors(
    monkeypatch, capsys, spawned, has_met
):
    calls, peer = [], Peer()

    def open_store(rank: int) -> None:
        calls.append(("store", rank))
        print("of Paddle", file=sys.stderr)
        raise ConnectionError("no store")

    monkeypatch.setattr(rendezvous, "meet", lambda *words: calls.append(("meet", *words)) or {0: peer})
    monkeypatch.setattr(rendezvous, "_open_store", open_store)
    monkeypatch.setattr(rendezvous, "_has_met", has_met)
    for name in VARIABLES:
        monkeypatch.setenv(name, "a:1")
    monkeypatch.setenv("PADDLE_DISTRI_BACKEND", "x")
    rendezvous.join_group("cpu", spawned)  # one process
    assert calls == [] and os.environ["PADDLE_MASTER"] == "a:1"
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    with pytest.raises(ConnectionError, match="no store"):
        rendezvous.join_group("cpu", spawned)
    assert calls == [*([] if has_met else [("meet", 1, 3, 300.0)]), ("store", 1)] and peer.is_closed is not has_met
    assert capsys.readouterr().err == "of Paddle\n" and os.environ["PADDLE_DISTRI_BACKEND"] == "gloo"
    kept = {name for name in VARIABLES if name in os.environ}
    assert kept == ({"PADDLE_TRAINER_ENDPOINTS"} if spawned else set(VARIABLES))


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
def test_an_interface_is_chosen_where_the_user_names_none(monkeypatch, before, spawned, endpoint, after):
    values = {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2", "PADDLE_CURRENT_ENDPOINT": endpoint}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", before or "")
    if before is None:
        monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.setattr(rendezvous, "meet", lambda *words: {})
    monkeypatch.setattr(rendezvous, "_open_store", lambda rank: None)

    def refused() -> None:
        raise RuntimeError("connect [127.0.0.1]:11669: Connection refused\n")

    monkeypatch.setattr(rendezvous.dist, "init_parallel_env", refused)
    with pytest.raises(RuntimeError, match="Connection refused") as failed:
        rendezvous.join_group("cpu", spawned)
    assert os.environ.get("GLOO_SOCKET_IFNAME") == after
    assert ("set GLOO_SOCKET_IFNAME to the name" in str(failed.value)) is not spawned


def test_a_rank_says_after_30_seconds_whom_it_waits_for_and_rarely_again(monkeypatch, clock, capsys):
    monkeypatch.setenv("PADDLE_MASTER", "127.0.0.1:9")
    monkeypatch.setattr(rendezvous, "_RETRY_SECONDS", 1.0)
    (port,) = processes.free_ports(1)
    monkeypatch.setenv("PADDLE_MASTER", f"127.0.0.1:{port}")
    with pytest.raises(WorkerFailure):
        rendezvous._connect_to_rank_0(1, 300.0, None)
    seconds = [line.split(", ")[1] for line in capsys.readouterr().err.splitlines()]
    assert seconds == [f"{number} s so far" for number in (30, 60, 120, 240)]

    def wait(sockets, pause) -> list:
        clock.now += 10.0
        return []

    monkeypatch.setattr(rendezvous.multiprocessing.connection, "wait", wait)
    rendezvous._collect("listener", rendezvous._ArrivedRanks(3, None), clock.now + 70.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"waiting for rank(s) 1, 2 to connect to rank 0, {number} s so far" for number in (30, 60)]


@pytest.mark.parametrize("rank, seen", [(0, "1"), (2, "3")])
@pytest.mark.parametrize("error", [None, RuntimeError(" no port\nmore"), ZeroDivisionError()])
def test_rank_0_serves_the_store_without_waiting_for_others(monkeypatch, rank, seen, error):
    calls = []

    def create() -> None:
        calls.append(os.environ["PADDLE_TRAINERS_NUM"])
        if error is not None:
            raise error

    monkeypatch.setattr(paddle.base.core, "create_or_get_global_tcp_store", create)
    monkeypatch.setattr(rendezvous, "send_small_messages_at_once", lambda: calls.append("at once"))
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    monkeypatch.setenv("PADDLE_MASTER", "b:2")
    kind = ConnectionError if isinstance(error, RuntimeError) else type(error)
    with contextlib.nullcontext() if error is None else pytest.raises(kind) as raised:
        rendezvous._open_store(rank)
    assert calls == [seen, *["at once"] * (error is None)] and os.environ["PADDLE_TRAINERS_NUM"] == "3"
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
    "size, seconds, has_met, error, told",
    [
        (3, 300.0, False, ValueError("x"), (1, 3, 30.0, "ValueError: x")),
        (3, 20.0, False, UserError("x"), (1, 3, 20.0, "x")),
        (1, 300.0, False, ValueError("x"), None),
        (3, None, False, ValueError("x"), None),
        (3, 300.0, True, ValueError("x"), None),
        (3, 300.0, False, KeyboardInterrupt(), None),
    ],
)
@pytest.mark.parametrize("other", [None, UserError("y"), WorkerFailure(0, "y"), ConnectionError("y")])
def test_a_failure_before_the_meeting_is_told_to_the_others(monkeypatch, size, seconds, has_met, error, told, other):
    calls = []

    def meet(*words) -> None:
        calls.append(words)
        if other is not None:
            raise other

    monkeypatch.setattr(rendezvous, "meet", meet)
    monkeypatch.setattr(rendezvous, "_has_met", has_met)
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(size))
    with pytest.raises(type(error)) as raised, rendezvous.broadcast_startup_failure(seconds):
        raise error
    assert raised.value is error and calls == ([] if told is None else [told])


@pytest.mark.parametrize(
    "failure, told", [(None, None), ("a\nb", "a\\nb"), ("é" * 500, "é" * 400), ("x" * 801, "x" * 800)]
)
def test_rank_0_accepts_and_others_connect(monkeypatch, failure, told):
    monkeypatch.setattr(rendezvous, "_accept_ranks", lambda *words: ("accept", *words))
    monkeypatch.setattr(rendezvous, "_connect_to_rank_0", lambda *words: ("connect", *words))
    assert not rendezvous.has_met()
    assert rendezvous.meet(0, 3, 9.0, failure) == ("accept", 3, 9.0, told) and rendezvous.has_met()
    assert rendezvous.meet(2, 3, 9.0, failure) == {0: ("connect", 2, 9.0, told)}


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


def test_the_next_message_is_awaited_until_a_time(pair, clock):
    ours, theirs = pair
    answers = [[], [], [{"a": 1}, {"b": 2}, {"c": 3}]]

    def receive():
        clock.now += 1.0
        return answers.pop(0)

    connection = SimpleNamespace(receive=receive, unread=None)
    assert rendezvous._next(connection, 103.0) == {"a": 1} and connection.unread == [{"b": 2}, {"c": 3}]
    for later, waits in ((2.0, 2), (1.5, 2), (0.0, 0)):
        answers = [[]] * 9
        before = clock.now
        assert rendezvous._next(connection, clock.now + later) is None and clock.now - before == waits
    answers = [None]
    assert rendezvous._next(connection, clock.now + 9.0) is None


# Rank 0


def arrive(rank=1, **more):
    return {"rank": rank, "nonce": "n", **more}


def test_ranks_of_the_run_are_admitted_with_their_proof_only(clock):
    secret.use(b"s" * 32)
    own = secret.fingerprint()
    arrivals = rendezvous._ArrivedRanks(4, own)
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
    clock.now += 1.0
    arrivals.admit("c", arrive(2, fingerprint=own + 2))
    arrivals.admit("d", arrive(3, fingerprint=own + 3))
    clock.now += 2.0
    assert (arrivals.missing(), arrivals.peers, arrivals.nonces) == ([2, 3], {1: "a"}, {1: "n"})
    assert arrivals.other_secrets() == {}
    clock.now += 0.5
    assert arrivals.other_secrets() == {2: own + 1}
    clock.now += 1.0
    assert arrivals.other_secrets() == {2: own + 1, 3: own + 3}
    arrivals.admit("e", arrive(2, proof=secret.proof(arrivals.challenge, "2", "n")))
    assert arrivals.other_secrets() == {3: own + 3} and arrivals.failed is None
    arrivals.admit("f", arrive(3, failure="no disk"))
    arrivals.admit("g", arrive(2, failure="no network"))
    assert arrivals.failed == (3, "no disk") and arrivals.missing() == [] and arrivals.peers[2] == "g"


def test_all_are_admitted_to_hear_a_failure():
    secret.use(b"s" * 32)
    arrivals = rendezvous._ArrivedRanks(3, None)
    arrivals.admit("a", arrive(1, fingerprint=99))
    arrivals.admit("b", arrive(2))
    assert arrivals.peers == {1: "a", 2: "b"} and arrivals.failed is None


@pytest.fixture
def accept(monkeypatch, clock):
    """Return a function by which rank 0 of 4 accepts who has come: ``change`` may alter what has arrived."""
    calls = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    monkeypatch.setenv("PADDLE_MASTER", f"127.0.0.1:{port}")
    monkeypatch.setattr(rendezvous, "_open_store", lambda rank: calls.append(("store", rank)))
    monkeypatch.setattr(secret, "print_missing_protection", lambda: calls.append("note"))
    monkeypatch.setattr(secret, "begin_session", lambda session: calls.append(("session", session)))

    def accept_ranks(ranks, failure=None, change=lambda arrivals: None):
        def collect(listener, arrivals, deadline) -> None:
            assert deadline == clock.now + 9.0 and listener.getsockname() == ("127.0.0.1", port)
            assert arrivals.fingerprint == (None if failure else secret.fingerprint()) and arrivals.size == 4
            arrivals.peers.update({rank: Peer() for rank in ranks})
            arrivals.nonces.update({rank: f"n{rank}" for rank in ranks})
            change(arrivals)
            state.arrivals = arrivals

        monkeypatch.setattr(rendezvous, "_collect", collect)
        state = SimpleNamespace(calls=calls, port=port, error=None, peers=None)
        try:
            state.peers = rendezvous._accept_ranks(4, 9.0, failure)
        except (UserError, WorkerFailure) as error:
            state.error = f"{type(error).__name__}: {error}"
        return state

    return accept_ranks


def test_all_get_the_session_once_the_store_is_there(accept):
    secret.use(b"s" * 32)
    state = accept([1, 2, 3])
    *before, (_, session) = state.calls
    assert before == ["note", ("store", 0)] and len(bytes.fromhex(session)) == 32
    assert state.peers is state.arrivals.peers and state.error is None
    for rank, peer in state.peers.items():
        assert peer.told == [{"session": session, "proof": secret.proof(session, str(rank), f"n{rank}")}]
    assert accept([1, 2, 3]).calls[-1] != ("session", session)  # a new one each time


@pytest.mark.parametrize(
    "ranks, failure, change, told",
    [
        (
            [1, 3],
            None,
            None,
            (
                2,
                "it did not connect to {0} within 9 s (WATCHDOG_SECONDS): check that it was started with this master, ",
            ),
        ),
        (
            [2],
            None,
            None,
            (1, "it did not connect to {0} within 9 s (WATCHDOG_SECONDS) (missing: ranks 1, 3): check that"),
        ),
        ([1, 2, 3], "no disk", None, (0, "no disk")),
        ([1], "no disk", None, (0, "no disk")),
        ([1, 2], None, lambda arrivals: setattr(arrivals, "failed", (2, "no data")), (2, "no data")),
        (
            [1],
            None,
            lambda arrivals: arrivals._others.update({3: (9, 0.0), 2: (8, 0.0)}),
            (2, "rank(s) [2, 3] have a secret, and rank 0 has none: set PADDLEVIT_DIST_SECRET or"),
        ),
    ],
)
def test_all_that_came_are_told_why_the_run_ends(accept, ranks, failure, change, told):
    state = accept(ranks, failure, change or (lambda arrivals: None))
    rank, text = told[0], told[1].format(f"127.0.0.1:{state.port}")
    kind = "UserError: " if "secret" in text else f"WorkerFailure: rank {rank} failed: "
    assert state.error.startswith(kind + text) and state.calls == ([] if failure else ["note"])
    for peer in state.arrivals.peers.values():
        ((name, (guilty, reason)),) = peer.told[0].items()
        assert (name, guilty) == ("failed", rank) and reason.startswith(text) and len(peer.told) == 1


def test_a_taken_port_is_named(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("PADDLE_MASTER", f"127.0.0.1:{port}")
        with pytest.raises(UserError) as refused:
            rendezvous._accept_ranks(2, 9.0, None)
    assert str(refused.value) == (
        f"rank 0 cannot listen on port {port} (the master is 127.0.0.1:{port}): Address already in use; another "
        "program uses it: choose a free port"
    )


def test_ranks_are_collected_among_others(monkeypatch):
    secret.use(b"s" * 32)
    arrivals = rendezvous._ArrivedRanks(3, secret.fingerprint())
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as opened:
        clients = [opened.enter_context(socket.create_connection(listener.getsockname())) for _ in range(4)]
        clients[0].sendall(b"GET /\r\n")
        for rank in (2, 1):
            proof = secret.proof(arrivals.challenge, str(rank), "n")
            clients[rank].sendall(json.dumps(arrive(rank, proof=proof)).encode() + b"\n")
        rendezvous._collect(listener, arrivals, rendezvous.time.monotonic() + 600.0)
        greeting = {"program": "paddlevit_dist", "challenge": arrivals.challenge, "fingerprint": secret.fingerprint()}
        for client in clients:
            client.settimeout(60.0)
            assert json.loads(client.makefile().readline()) == greeting
        for client in (clients[0], clients[3]):  # a stranger, and one that has said nothing
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
        for rank, peer in arrivals.peers.items():
            assert peer.socket.getpeername() == clients[rank].getsockname()
            opened.enter_context(peer.socket)
    assert sorted(arrivals.peers) == [1, 2]


@pytest.mark.parametrize("moments, waits", [((0.0, 0.2, 8.9), [0.5, 0.5, 0.1]), ((9.0,), []), ((10.0,), [])])
def test_ranks_are_collected_until_a_time(monkeypatch, clock, moments, waits):
    found, times = [], iter([*moments[1:], 99.0])

    def wait(sockets, seconds) -> list:
        assert sockets == ["listener"]
        found.append(seconds)
        clock.now = 100.0 + next(times)
        return []

    clock.now += moments[0]
    monkeypatch.setattr(rendezvous.multiprocessing.connection, "wait", wait)
    rendezvous._collect("listener", rendezvous._ArrivedRanks(2, None), 109.0)
    assert found == pytest.approx(waits)


@pytest.mark.parametrize("others", [{1: (7, 0.0)}, {}])
def test_ranks_with_other_secrets_are_not_waited_for(monkeypatch, clock, others):
    def wait(sockets, seconds) -> list:
        clock.now = 200.0
        return waits.append(seconds) or []

    waits, arrivals = [], rendezvous._ArrivedRanks(2, 5)
    arrivals._others.update(others)
    monkeypatch.setattr(rendezvous.multiprocessing.connection, "wait", wait)
    rendezvous._collect("listener", arrivals, 150.0)
    assert waits == ([] if others else [0.5])


def test_after_a_failure_others_have_five_seconds(monkeypatch, clock, pair):
    ours, theirs = pair
    arrivals = rendezvous._ArrivedRanks(4, None)
    arrivals.failed, waits = None, []
    monkeypatch.setattr(rendezvous, "RankConnection", lambda connected: connected)
    hellos = [[arrive(1, failure="no disk")], [arrive(2, failure="no data")]]

    class Client(Peer):
        """A rank that reports a failure."""

        def receive(self):
            return hellos.pop(0)

    clients = [Client(), Client()]
    listener = SimpleNamespace(accept=lambda: (clients[len(waits) // 2], None))

    def wait(sockets, seconds) -> list:
        waits.append(round(seconds, 3))
        clock.now += 2.0
        return [[listener], [sockets[-1]]][(len(waits) - 1) % 2] if len(waits) <= 4 else []

    monkeypatch.setattr(rendezvous.multiprocessing.connection, "wait", wait)
    rendezvous._collect(listener, arrivals, 500.0)
    assert arrivals.failed == (1, "no disk") and sorted(arrivals.peers) == [1, 2]
    assert clock.now == 110.0 and len(waits) == 5  # told at 104, over at 109


# Other ranks


@pytest.fixture
def connect(monkeypatch, clock):
    """Return a function by which rank 2 connects: rank 0 greets and answers in these ways, one after the other."""
    monkeypatch.setenv("PADDLE_MASTER", "10.0.0.1:70")

    def connect_with(greetings, answers=(), failure=None):
        state = SimpleNamespace(made=[], greeted=[], error=None, connection=None)
        left, replies = list(greetings), list(answers)

        def create(address, timeout) -> Peer:
            assert (address, timeout) == (rendezvous.endpoint(), 1.0)
            clock.now += 1.0
            if not left or left[0] is OSError:
                del left[:1]
                raise OSError
            state.made.append(Peer())
            return state.made[-1]

        def greet(connection, greeting, *words) -> dict:
            state.greeted.append((greeting, *words))
            return replies.pop(0)

        monkeypatch.setattr(rendezvous.socket, "create_connection", create)
        monkeypatch.setattr(rendezvous, "_next", lambda connection, deadline: left.pop(0))
        monkeypatch.setattr(rendezvous, "_greet", greet)
        try:
            state.connection = rendezvous._connect_to_rank_0(2, 8.0, failure)
        except (UserError, WorkerFailure) as error:
            state.error = f"{type(error).__name__}: {error}"
        return state

    return connect_with


OURS = {"program": "paddlevit_dist", "challenge": "c"}


def test_a_rank_tries_until_rank_0_answers_with_a_session(connect, clock):
    state = connect([OSError, None, {"program": "x"}, OURS, OURS], [{}, {"session": "s"}])
    assert state.connection.socket is state.made[-1] and state.error is None
    assert [peer.is_closed for peer in state.made] == [True, True, True, False]
    assert state.greeted == [(OURS, 2, None, 115.0)] * 2  # 100 + 8 + a quarter of 8 + 5: rank 0 gives up first
    assert clock.sleeps == [0.05] * 4


WAITED = "rank 2 waited for rank 0 at 10.0.0.1:70 for 8 s (WATCHDOG_SECONDS)"
NOTHING = "nothing answers there: check that it was started and that its machine can be reached"


@pytest.mark.parametrize(
    "greetings, answers, error",
    [
        ([], [], f"WorkerFailure: rank 0 failed: {WAITED}; {NOTHING}"),
        ([None] * 9, [], f"UserError: {WAITED}, but another program answers there: choose a free port for the master"),
        (
            [None, OURS],
            [{}],
            f"WorkerFailure: rank 0 failed: {WAITED}; it answered, but has ended: read its log for the reason",
        ),
        ([OURS], [{"failed": [3, "no disk"]}], "WorkerFailure: rank 3 failed: no disk"),
    ],
)
def test_a_rank_says_why_it_does_not_meet_rank_0(connect, greetings, answers, error):
    assert connect(greetings, answers, "own failure").error == error


def test_an_address_of_each_machine_itself_is_explained(connect, monkeypatch):
    monkeypatch.setenv("PADDLE_MASTER", "127.0.0.1:70")
    more = "; 127.0.0.1 means each machine itself: if rank 0 is on another machine, pass --host to its launcher"
    assert connect([]).error.endswith(f"(WATCHDOG_SECONDS); {NOTHING}{more}")


@pytest.mark.parametrize("failure", [None, "no disk"])
@pytest.mark.parametrize(
    "answer, found", [({"failed": [1, "x"]}, {"failed": [1, "x"]}), (None, {}), ({"session": "t", "proof": "x"}, {})]
)
def test_a_rank_greets_with_its_proof_or_its_failure(monkeypatch, failure, answer, found):
    secret.use(b"s" * 32)
    peer, deadlines = Peer(), []
    monkeypatch.setattr(rendezvous, "_next", lambda connection, deadline: deadlines.append(deadline) or answer)
    greeting = {"challenge": "c", "fingerprint": secret.fingerprint()}
    if failure is not None:
        assert rendezvous._greet(peer, greeting, 2, failure, 7.0) == (answer or {})
        assert peer.told == [{"rank": 2, "failure": failure}] and deadlines == [7.0]
        return
    assert rendezvous._greet(peer, greeting, 2, None, 7.0) == found and deadlines == [7.0]
    (hello,) = peer.told
    nonce = hello.pop("nonce")
    assert len(bytes.fromhex(nonce)) == 16 and secret._session_key is None
    assert hello == {"rank": 2, "fingerprint": secret.fingerprint(), "proof": secret.proof("c", "2", nonce)}


def test_a_session_begins_if_rank_0_proves_it(monkeypatch):
    secret.use(b"s" * 32)
    peer, begun = Peer(), []

    def answer(connection, deadline) -> dict:
        proof = secret.proof("t", "2", peer.told[0]["nonce"])
        return {"session": "t", "proof": proof}

    monkeypatch.setattr(rendezvous, "_next", answer)
    monkeypatch.setattr(secret, "begin_session", begun.append)
    for greeting in ({"challenge": "c"}, {"challenge": "c", "fingerprint": secret.fingerprint()}):
        peer.told.clear()
        assert rendezvous._greet(peer, greeting, 2, None, 7.0)["session"] == "t"
    assert begun == ["t", "t"]
    with pytest.raises(UserError, match=r"^rank\(s\) \[0\] have another secret than rank 2: "):
        rendezvous._greet(peer, {"challenge": "c", "fingerprint": 99}, 2, None, 7.0)


def test_who_was_not_admitted_in_time_is_closed(monkeypatch, clock):
    clients, turns = [Peer() for _ in range(4)], iter([*"aaaa", 3, 2])
    monkeypatch.setattr(rendezvous, "RankConnection", lambda connected: connected)
    listener = SimpleNamespace(accept=lambda: (clients[len(accepted)], accepted.append(1)))
    accepted, arrivals = [], rendezvous._ArrivedRanks(4, None)
    clients[2].receive = lambda: [arrive(1)]
    clients[3].receive = lambda: None  # gone

    def wait(sockets, seconds) -> list:
        clock.now += 1.0
        turn = next(turns, None)
        return [] if turn is None else [listener] if turn == "a" else [clients[turn]]

    monkeypatch.setattr(rendezvous.multiprocessing.connection, "wait", wait)
    rendezvous._collect(listener, arrivals, 110.0)
    assert [client.is_closed for client in clients] == [True, True, False, True]
    assert arrivals.peers == {1: clients[2]} and all(len(client.told) == 1 for client in clients)
