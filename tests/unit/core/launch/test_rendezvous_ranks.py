"""How another rank meets rank 0: what it proves, until when it tries, and what it says if it fails."""

import json
import socket
from types import SimpleNamespace

import pytest
from support.meetings import SlowSocket

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import rendezvous, secret
from paddlevit_dist.core.runtime.errors import WorkerFailure


@pytest.fixture(autouse=True)
def fresh(fresh_rank):
    """A rank that has met no other, and has no secret."""


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
