"""Ranks meet before they join the group: who is missing, and who else has the port, is said on every machine."""

from __future__ import annotations

import socket
import threading
from typing import Dict

import pytest

from paddlevit_dist.errors import UserError, WorkerFailure
from paddlevit_dist.parallel import roll_call

SECONDS = 5.0


@pytest.fixture
def port(monkeypatch) -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number = listener.getsockname()[1]
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDLE_MASTER", f"127.0.0.1:{number}")
    return number


def answers(ranks, size: int, seconds: float = SECONDS, **failures: str) -> Dict[int, str]:
    """What each of these ranks finds, in a thread each; "" if all are there. ``failures``: of "rank_1", why it ends."""
    found: Dict[int, str] = {}

    def answer(rank: int) -> None:
        try:
            roll_call.answer(rank, size, seconds, failures.get(f"rank_{rank}"))
            found[rank] = ""
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
    assert answers(range(2), 2, seconds=60.0) == {0: "", 1: ""}
    with socket.socket() as next_one:
        next_one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Paddle's store does
        next_one.bind(("127.0.0.1", port))


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
    assert all(line.startswith("WorkerFailure: rank 2 failed: it did not come") for line in found.values()), found


def test_a_missing_rank_is_named_to_those_who_came(port):
    found = answers([0, 1, 3], 5)
    assert len(set(found.values())) == 1
    assert found[1].startswith(f"WorkerFailure: rank 2 failed: it did not come to 127.0.0.1:{port} within 5 s")
    assert "(missing: ranks 2, 4)" in found[1]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_failed_before_is_named_to_all(port, failing):
    found = answers(range(3), 3, 60.0, **{f"rank_{failing}": "no data in\n/data/é" + "x" * 2000})
    assert len(set(found.values())) == 1
    assert found[2].startswith(f"WorkerFailure: rank {failing} failed: no data in\\n/data/é") and len(found[2]) < 1024


def test_a_failure_before_the_roll_call_is_told_and_stays_what_it_is(port, monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    told = []
    monkeypatch.setattr(roll_call, "answer", lambda *of: told.append(of))
    for was_called in (False, True):  # what fails later is for others to tell
        monkeypatch.setattr(roll_call, "_was_called", was_called)
        with pytest.raises(KeyError), roll_call.failures_told(300.0):
            raise KeyError("no such class")
    assert told == [(1, 2, 30.0, "KeyError: 'no such class'")]


def test_a_missing_first_rank_and_a_taken_port_are_told_apart(port):
    found = answers([1], 2, seconds=1.0)[1]
    assert "nothing answers there" in found
    assert "127.0.0.1 means each machine itself: if rank 0 is on another, give its launcher --host" in found
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        found = answers([0, 1], 2, seconds=2.0)
    assert found[0].startswith(f"UserError: rank 0 cannot listen on port {port}") and "another program" in found[0]
    assert found[1].startswith("UserError: ") and "another program answers there" in found[1]


def test_a_master_that_is_no_address_is_a_mistake(monkeypatch, port):
    monkeypatch.setenv("PADDLE_MASTER", "10.0.0.1")
    with pytest.raises(UserError, match="PADDLE_MASTER is '10.0.0.1': expected HOST:PORT"):
        roll_call.answer(1, 2, SECONDS)
