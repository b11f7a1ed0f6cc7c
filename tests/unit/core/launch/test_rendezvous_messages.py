"""Messages between ranks, and which ranks rank 0 admits."""

import json
import socket

import pytest
from support.meetings import SlowSocket, arrive

from paddlevit_dist.core.launch import rendezvous, secret


@pytest.fixture(autouse=True)
def fresh(fresh_rank):
    """A rank that has met no other, and has no secret."""


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
