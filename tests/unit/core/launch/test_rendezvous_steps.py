"""The steps of a rendezvous, one by one and without waiting: addresses, messages, who is admitted, what is told."""

import contextlib
import os
import socket
import threading

import pytest
from support.meetings import ConnectingProgram, arrive
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import rendezvous
from paddlevit_dist.core.runtime.errors import WorkerFailure

VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "PADDLE_MASTER", "PADDLE_TRAINER_ENDPOINTS")


@pytest.fixture(autouse=True)
def fresh(fresh_rank):
    """A rank that has met no other, and has no secret."""


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
    message = refusal_of(rendezvous.endpoint)
    assert message == f"{found}: expected HOST:PORT of rank 0's machine, as Paddle's launcher sets it"


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
        network.clients = [ConnectingProgram(arrive(1)), ConnectingProgram(arrive(2))]
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
    network.clients = [ConnectingProgram(arrive(rank)) for rank in range(1, 1 + others)]
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
    network.clients = [ConnectingProgram(arrive(1))]
    rendezvous.meet(0, 2, 60.0)
    pauses = len(network.pauses)
    with pytest.raises(ValueError), rendezvous.broadcast_startup_failure(60.0):
        raise ValueError
    assert len(network.pauses) == pauses and "failed" not in network.clients[0].read()


@pytest.mark.parametrize("failure, told", [("a\nb", "a\\nb"), ("é" * 500, "é" * 400), ("x" * 801, "x" * 800)])
def test_a_reason_is_one_short_line(network, failure, told):
    network.clients = [ConnectingProgram(arrive(1))]
    assert not rendezvous.has_met()
    with pytest.raises(WorkerFailure):
        rendezvous.meet(0, 2, 9.0, failure)
    assert network.clients[0].read() == {"failed": [0, told]} and rendezvous.has_met()
