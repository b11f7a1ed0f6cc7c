"""Whoever does not have the run's secret gets nothing executed, and does not disturb the run."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import List

import paddle
import pytest
from support.garbage import HOLDS_UP_OLD_PADDLE, KINDS, SPOILS_THE_START
from support.processes import start_command

PROGRAM = str(Path(__file__).with_name("one_rank.py"))
SECRET = {"PADDLEVIT_DIST_SECRET": "a secret of the tests"}
IS_OLD = tuple(map(int, paddle.__version__.split(".")[:2])) < (3, 3)
TO_BE_ENDURED = [kind for kind in KINDS if not (IS_OLD and kind in HOLDS_UP_OLD_PADDLE)]
BEFORE_ALL_ARE_THERE = [kind for kind in TO_BE_ENDURED if kind != SPOILS_THE_START]
EXPECTED = [["rank 0", "rank 1"], 3]


class Ranks:
    """Starts ranks of one run separately, each with its own environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(2)
        self.processes: List[subprocess.Popen] = []

    def start(self, rank: int, *options: str, **variables: str) -> subprocess.Popen:
        endpoints = [f"127.0.0.1:{port}" for port in self.ports]
        process = start_command(
            [sys.executable, PROGRAM, str(self.folder), *options],
            PADDLE_TRAINER_ID=str(rank),
            PADDLE_TRAINERS_NUM="2",
            PADDLE_TRAINER_ENDPOINTS=",".join(endpoints),
            PADDLE_CURRENT_ENDPOINT=endpoints[rank],
            PADDLE_DISTRI_BACKEND="gloo",
            GLOO_SOCKET_IFNAME="lo",
            **variables,
        )
        self.processes.append(process)
        return process

    def wait_for(self, name: str) -> None:
        wait_until(lambda: (self.folder / name).exists(), f"no {name}")

    def wait_for_store(self) -> None:
        wait_until(lambda: connects(self.ports[0]), "the store does not listen")

    def gathered(self) -> list:
        return [json.loads((self.folder / f"gathered_{rank}.json").read_text()) for rank in range(2)]


def free_ports(number: int) -> List[int]:
    listeners = [socket.socket() for _ in range(number)]
    for listener in listeners:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def connects(port: int, seconds: float = 1.0) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=seconds).close()
    except OSError:
        return False
    return True


def wait_until(condition, complaint: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.02)


@pytest.fixture
def ranks(tmp_path):
    started = Ranks(tmp_path)
    yield started
    for process in started.processes:
        process.kill()
        process.communicate()


def finish(*processes: subprocess.Popen) -> list:
    """Exit code and stderr of each."""
    said = [process.communicate(timeout=90)[1] for process in processes]
    return [(process.returncode, err) for process, err in zip(processes, said)]


def test_strangers_who_come_first_are_neither_believed_nor_waited_for(ranks):
    """Garbage of all kinds on the store's port, and a process that joins as rank 1 before the real one."""
    first = ranks.start(0, "--wait", **SECRET)
    ranks.wait_for_store()
    stranger = ranks.start(1, "--evil")
    ranks.wait_for("came")
    held = [held for kind in BEFORE_ALL_ARE_THERE for held in KINDS[kind]("127.0.0.1", ranks.ports[0])]
    second = ranks.start(1, **SECRET)
    ranks.wait_for("joined")
    assert not connects(ranks.ports[0]), "the store's door is open though all ranks are there"
    (ranks.folder / "go").touch()
    assert finish(first, second) == [(0, ""), (0, "")]
    assert ranks.gathered() == [EXPECTED] * 2
    assert not (ranks.folder / "executed").exists()
    assert finish(stranger)[0][0] != 0
    for connection in held:
        connection.close()


@pytest.mark.long
def test_different_secrets_are_told_in_one_line_on_each_machine(ranks):
    ended = finish(ranks.start(0, **SECRET), ranks.start(1, PADDLEVIT_DIST_SECRET="another secret of tests"))
    assert [code for code, _ in ended] == [2, 2]
    for rank, (_, err) in enumerate(ended):
        assert err.startswith(f"error: rank(s) [{1 - rank}] have another secret than rank {rank}: set ")
        assert err.count("\n") == 1


@pytest.mark.long
def test_a_secret_on_one_machine_only_is_told_in_one_line_on_each(ranks):
    (code, err), (other_code, other_err) = finish(ranks.start(0), ranks.start(1, **SECRET))
    assert (code, other_code) == (2, 2)
    assert err.splitlines()[-1].startswith("error: rank(s) [1] have a secret, and rank 0 has none: set ")
    assert other_err.startswith("error: rank(s) [0] have no secret, and rank 1 has one: set ")


@pytest.mark.long
def test_a_secret_that_paddles_launcher_has_written_down_is_told(ranks):
    ended = finish(*(ranks.start(rank, PADDLE_LOCAL_SIZE="1", **SECRET) for rank in range(2)))
    assert [code for code, _ in ended] == [0, 0]
    assert ended[0][1].startswith(
        "note: Paddle's launcher has written PADDLEVIT_DIST_SECRET to the files of its --log_dir"
    )
    assert ended[0][1].count("\n") == 1 and ended[1][1] == ""


@pytest.mark.long
def test_without_a_secret_whoever_comes_first_is_believed(ranks):
    """What the secret is for."""
    first = ranks.start(0)
    ranks.wait_for_store()
    ranks.start(1, "--evil", "--polite")
    ranks.wait_for("executed")
    first.kill()


@pytest.mark.long
@pytest.mark.parametrize("kind", BEFORE_ALL_ARE_THERE)
def test_garbage_while_ranks_are_awaited(kind, ranks):
    first = ranks.start(0, **SECRET)
    ranks.wait_for_store()
    held = KINDS[kind]("127.0.0.1", ranks.ports[0])
    assert finish(first, ranks.start(1, **SECRET)) == [(0, ""), (0, "")]
    assert ranks.gathered() == [EXPECTED] * 2
    for connection in held:
        connection.close()


@pytest.mark.long
def test_a_count_of_paddles_that_is_overwritten_at_the_start_is_told(ranks):
    """The one kind that no rank can get round: Paddle's own key, before the door closes."""
    ranks.start(0, **SECRET)
    ranks.wait_for_store()
    KINDS[SPOILS_THE_START]("127.0.0.1", ranks.ports[0])
    ranks.start(1, **SECRET)
    # Rank 0 reads it, or rank 1 is refused for it, depending on who comes first.
    wait_until(lambda: any(process.poll() is not None for process in ranks.processes), "nobody noticed")
    noticed = next(process for process in ranks.processes if process.poll() is not None)
    ((code, err),) = finish(noticed)
    assert code == 1 and f"cannot join the group at 127.0.0.1:{ranks.ports[0]}: " in err.splitlines()[-1]


@pytest.mark.long
@pytest.mark.parametrize("kind", TO_BE_ENDURED)
def test_garbage_to_a_store_that_stays_open(kind, ranks):
    """In a user's own program, whose store we leave alone."""
    processes = [ranks.start(rank, "--open", "--wait", **SECRET) for rank in range(2)]
    ranks.wait_for("joined")
    held = KINDS[kind]("127.0.0.1", ranks.ports[0])
    (ranks.folder / "go").touch()
    assert [code for code, _ in finish(*processes)] == [0, 0]
    assert ranks.gathered() == [EXPECTED] * 2
    for connection in held:
        connection.close()
