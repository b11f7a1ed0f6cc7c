"""How rank 0 meets the other ranks, by a network in one thread: whom it waits for, and what they are told."""

import socket

import pytest
from support.meetings import ConnectingProgram, arrive
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import rendezvous, secret
from paddlevit_dist.core.runtime.errors import WorkerFailure


@pytest.fixture(autouse=True)
def fresh(fresh_rank):
    """A rank that has met no other, and has no secret."""


def meet(network, hellos, failure=None) -> str | dict:
    """What rank 0 of 4 finds when these have come: the peers, or an error."""
    network.clients = [ConnectingProgram(hello) for hello in hellos]
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
        message = refusal_of(rendezvous.meet, 0, 2, 9.0)
    assert message == (
        f"rank 0 cannot listen on port {port} (the master is 127.0.0.1:{port}): Address already in use; another "
        "program uses it: choose a free port"
    )


def test_rank_0_listens_nowhere_else_if_all_ranks_are_on_its_machine(network, store):
    with socket.create_server(("127.0.0.2", network.address[1])):  # the port is not free on all addresses
        peers = meet(network, [arrive(1), arrive(2), arrive(3)])
    for peer in peers.values():
        peer.socket.close()
    assert sorted(peers) == [1, 2, 3]


def test_ranks_are_collected_among_others(network):
    secret.use(b"s" * 32)
    stranger, silent = ConnectingProgram(b"GET /\r\n"), ConnectingProgram()
    network.clients = [stranger, silent, ConnectingProgram(arrive(2)), ConnectingProgram(arrive(1))]
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
    network.clients, begun = [ConnectingProgram(arrive(1, fingerprint=7))], network.time.now
    with pytest.raises(UserError, match="secret"):
        rendezvous.meet(0, 3, 50.0)
    assert 3.0 < network.time.now - begun <= 3.5


def test_after_a_failure_others_have_five_seconds(network):
    network.clients = [ConnectingProgram(arrive(1, failure="no disk")), ConnectingProgram(arrive(2, failure="no data"))]
    network.pause, begun = 1.0, network.time.now
    with pytest.raises(WorkerFailure, match="rank 1 failed: no disk"):
        rendezvous.meet(0, 4, 400.0)
    assert network.time.now - begun == 7.0  # told after two
    assert [client.read() for client in network.clients] == [{"failed": [1, "no disk"]}] * 2


def test_who_was_not_admitted_in_time_is_closed(network):
    network.clients = [ConnectingProgram(), ConnectingProgram(b"no message\n"), ConnectingProgram(arrive(1))]
    with pytest.raises(WorkerFailure):
        rendezvous.meet(0, 4, 9.0)
    assert [client.read() is None for client in network.clients] == [True, True, False]
    assert not any(client.is_connected() for client in network.clients[:2])
