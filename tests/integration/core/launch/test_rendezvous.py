"""Ranks meet before they join the group: who is missing, and who else has the port, is said on every machine."""

import socket
import threading
import time

import pytest
from support.processes import free_ports

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import rendezvous, secret
from paddlevit_dist.core.runtime.errors import WorkerFailure

SECONDS = 2.0


@pytest.fixture
def port(monkeypatch, fresh_rank, store) -> int:
    (number,) = free_ports(1)
    monkeypatch.setenv("PADDLE_MASTER", f"127.0.0.1:{number}")
    return number


def answers(ranks, size: int, seconds: float = SECONDS, **failures: str) -> dict[int, str]:
    """What each of these ranks finds, in a thread each; "" if all are there. ``failures``: of "rank_1", why it ends."""
    found: dict[int, str] = {}

    def answer(rank: int) -> None:
        try:
            peers = rendezvous.meet(rank, size, seconds, failures.get(f"rank_{rank}"))
            others = [0] if rank else list(range(1, size))
            found[rank] = "" if sorted(peers) == others else f"connections of ranks {sorted(peers)}"
        except (UserError, WorkerFailure) as error:
            found[rank] = f"{type(error).__name__}: {error}"

    threads = [threading.Thread(target=answer, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    return found


def test_all_go_on_once_all_are_there_and_the_port_is_free_again(port):
    assert answers(range(4), 4, seconds=60.0) == dict.fromkeys(range(4), "")
    assert answers(range(2), 2, seconds=60.0) == {0: "", 1: ""} and rendezvous.has_met()
    with socket.socket() as next_one:
        next_one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Paddle's store does
        next_one.bind(("127.0.0.1", port))


def test_ranks_meet_at_the_address_that_a_machine_may_give_its_own_name(port, monkeypatch):
    monkeypatch.setenv("PADDLE_MASTER", f"127.0.1.1:{port}")
    assert answers(range(2), 2, seconds=60.0) == {0: "", 1: ""}


def test_strangers_do_not_count_and_do_not_disturb(port):
    connected = threading.Event()

    def disturb() -> None:
        while not connected.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
                    connection.sendall(b"GET / HTTP/1.1\r\n" * 200)
                    connected.set()
            except OSError:
                continue

    stranger = threading.Thread(target=disturb)
    stranger.start()
    try:
        found = answers([0, 1], 3)
    finally:
        connected.set()
        stranger.join(60.0)
    assert all(line.startswith("WorkerFailure: rank 2 failed: it did not connect") for line in found.values()), found


def test_a_missing_rank_is_named_to_those_who_came(port):
    found = answers([0, 1, 3], 5)
    assert len(set(found.values())) == 1
    assert found[1].startswith(f"WorkerFailure: rank 2 failed: it did not connect to 127.0.0.1:{port} within 2 s")
    assert "(missing: ranks 2, 4)" in found[1]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_failed_before_is_named_to_all(port, failing):
    found = answers(range(3), 3, 60.0, **{f"rank_{failing}": "no data in\n/data/é" + "x" * 2000})
    assert len(set(found.values())) == 1
    assert found[2].startswith(f"WorkerFailure: rank {failing} failed: no data in\\n/data/é") and len(found[2]) < 1024


def test_a_missing_first_rank_and_a_taken_port_are_told_apart(port):
    found = answers([1], 2, seconds=1.0)[1]
    assert "nothing answers there" in found
    assert "127.0.0.1 means each machine itself: if rank 0 is on another machine, pass --host to its launcher" in found
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        found = answers([0, 1], 2, seconds=2.0)
    assert found[0].startswith(f"UserError: rank 0 cannot listen on port {port}") and "another program" in found[0]
    assert found[1].startswith("UserError: ") and "another program answers there" in found[1]


def test_what_follows_an_answer_at_once_is_kept_for_the_watch():
    """Such as why rank 0 fails right after all have met."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"session": "x"}\n{"end": "no network card", "code": 1, "guilty": 0}\n')
        connection = rendezvous.RankConnection(ours)
        assert connection.receive_one(time.monotonic() + SECONDS) == {"session": "x"}
        assert connection.receive() == [{"end": "no network card", "code": 1, "guilty": 0}]


def test_a_master_that_is_no_address_is_a_mistake(monkeypatch, port):
    monkeypatch.setenv("PADDLE_MASTER", "10.0.0.1")
    with pytest.raises(UserError, match="PADDLE_MASTER is '10.0.0.1': expected HOST:PORT"):
        rendezvous.meet(1, 2, SECONDS)


@pytest.fixture
def run_with_secret(fresh_rank):
    secret.use(b"a" * 32)


def test_ranks_with_one_secret_meet(port, run_with_secret):
    assert answers(range(3), 3, seconds=60.0) == dict.fromkeys(range(3), "")


def test_only_who_shows_the_secret_is_admitted(run_with_secret, simulated_time):
    own, other = secret.fingerprint(), secret.fingerprint() + 1
    arrivals = rendezvous.ArrivedRanks(4, own)
    assert len(bytes.fromhex(arrivals.challenge)) == 16
    proofs = {rank: secret.proof(arrivals.challenge, str(rank), "nonce") for rank in (1, 2)}
    for nonsense in (
        *({}, {"rank": 0}, {"rank": 4}, {"rank": "1"}, {"rank": 1}, {"rank": 1, "proof": proofs[1]}),
        *({"rank": 1, "nonce": "\ud800", "proof": "\ud800"}, {"rank": 1, "proof": None}, {"rank": 1, "proof": [1.0]}),
    ):
        arrivals.admit(None, {"nonce": "another", "fingerprint": own, **nonsense})
    assert arrivals.missing() == [1, 2, 3]
    arrivals.admit(None, {"rank": 1, "nonce": "nonce", "fingerprint": own, "proof": proofs[1]})
    arrivals.admit(None, {"rank": 2, "nonce": "nonce", "fingerprint": other, "proof": ""})
    simulated_time.now += 3.5
    assert arrivals.missing() == [2, 3] and arrivals.other_secrets() == {2: other}
    assert secret.describe_mismatch(0, {2: other}).startswith("rank(s) [2] have another secret than rank 0: set ")
    arrivals.admit(None, {"rank": 2, "nonce": "nonce", "fingerprint": own, "proof": proofs[2]})
    assert arrivals.missing() == [3] and arrivals.other_secrets() == {}
    arrivals.admit(None, {"rank": 3, "failure": "it cannot read its secret"})
    assert arrivals.failed == (3, "it cannot read its secret") and arrivals.missing() == []


def test_a_stranger_in_the_place_of_rank_0_is_not_joined(port, run_with_secret):
    def pretend(listener: socket.socket) -> None:
        connection = rendezvous.RankConnection(listener.accept()[0])
        connection.send(program="paddlevit_dist", challenge="x", fingerprint=secret.fingerprint())
        connection.receive()
        connection.send(session="of a stranger", proof="")
        connection.socket.close()

    name = secret.key_name("board")
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(60.0)  # where nobody comes, the thread ends, too
        stranger = threading.Thread(target=pretend, args=(listener,))
        stranger.start()
        found = answers([1], 2, seconds=2.0)[1]
        stranger.join(60.0)
    assert found and secret.key_name("board") == name


@pytest.mark.parametrize("shown", [0, 1], ids=["the same secret", "another secret"])
def test_a_greeting_shows_the_fingerprint_by_which_another_secret_is_told(run_with_secret, simulated_time, shown):
    ours, theirs = map(rendezvous.RankConnection, socket.socketpair())
    own = secret.fingerprint()
    arrivals = rendezvous.ArrivedRanks(4, own + shown)
    greeting = {"challenge": arrivals.challenge, "fingerprint": arrivals.fingerprint}
    with ours.socket, theirs.socket:
        ours.socket.settimeout(SECONDS)
        if shown:
            with pytest.raises(UserError, match=r"rank\(s\) \[0\] have another secret than rank 2"):
                rendezvous.greet(ours, greeting, 2, None, time.monotonic() + SECONDS)
        else:
            assert rendezvous.greet(ours, greeting, 2, None, time.monotonic()) == {}
        (hello,) = theirs.receive()
    assert hello["fingerprint"] == own and hello["rank"] == 2
    arrivals.admit(theirs, hello)
    simulated_time.now += 3.5
    assert arrivals.missing() == ([1, 2, 3] if shown else [1, 3])
    assert arrivals.other_secrets() == ({2: own} if shown else {})
