"""Whoever does not have the run's secret gets nothing executed, and does not disturb the run."""

import json
import socket
import subprocess
from pathlib import Path

import paddle
import pytest
from support.garbage import HOLDS_UP_OLD_PADDLE, KINDS
from support.processes import free_ports, start_rank, wait_until

PROGRAM = str(Path(__file__).with_name("one_rank.py"))
SECRET = {"PADDLEVIT_DIST_SECRET": "a secret of the tests"}
IS_OLD = tuple(map(int, paddle.__version__.split(".")[:2])) < (3, 3)
TO_BE_ENDURED = [kind for kind in KINDS if not (IS_OLD and kind in HOLDS_UP_OLD_PADDLE)]
EXPECTED = [["rank 0", "rank 1"], 3]


class Ranks:
    """Starts ranks of one run separately, each with its own environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(2)
        self.processes: list[subprocess.Popen] = []

    def start(self, rank: int, *options: str, **variables: str) -> subprocess.Popen:
        words = [PROGRAM, str(self.folder), *options]
        process = start_rank(rank, self.ports, words, PADDLE_DISTRI_BACKEND="gloo", **variables)
        self.processes.append(process)
        return process

    def wait_for(self, name: str) -> None:
        wait_until(lambda: (self.folder / name).exists(), f"no {name}")

    def wait_for_store(self) -> None:
        wait_until(lambda: connects(self.ports[0]), "the store does not listen")

    def gathered(self) -> list:
        return [json.loads((self.folder / f"gathered_{rank}.json").read_text()) for rank in range(2)]


def connects(port: int, seconds: float = 1.0) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=seconds).close()
    except OSError:
        return False
    return True


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


def garbage(port: int, kinds) -> list[socket.socket]:
    return [held for kind in kinds for held in KINDS[kind]("127.0.0.1", port)]


def test_strangers_are_neither_believed_nor_waited_for(ranks):
    """Garbage of all kinds on the run's port, before all ranks are there and after, and a process that tries to join as
    rank 1 before the real one."""
    first = ranks.start(0, "--wait", **SECRET)
    ranks.wait_for_store()
    ranks.start(1, "--evil")
    ranks.wait_for("came")
    held = garbage(ranks.ports[0], KINDS)
    second = ranks.start(1, **SECRET)
    ranks.wait_for("joined")
    held += garbage(ranks.ports[0], TO_BE_ENDURED)
    (ranks.folder / "go").touch()
    assert finish(first, second) == [(0, ""), (0, "")]
    assert ranks.gathered() == [EXPECTED] * 2
    assert not (ranks.folder / "executed").exists()
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
def test_garbage_to_the_store_of_a_users_own_program(ranks):
    processes = [ranks.start(rank, "--open", "--wait", **SECRET) for rank in range(2)]
    ranks.wait_for("joined")
    held = garbage(ranks.ports[0], TO_BE_ENDURED)
    (ranks.folder / "go").touch()
    assert [code for code, _ in finish(*processes)] == [0, 0]
    assert ranks.gathered() == [EXPECTED] * 2
    for connection in held:
        connection.close()
