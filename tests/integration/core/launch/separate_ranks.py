"""Ranks of one run that are started separately, each with its own environment."""

import json
import socket
import subprocess
from pathlib import Path

import paddle
import pytest
from support.hosts.garbage import HOLDS_UP_OLD_PADDLE, KINDS
from support.processes import free_ports, start_rank, wait_until

PROGRAM = str(Path(__file__).with_name("one_rank.py"))
SECRET = {"PADDLEVIT_DIST_SECRET": "a secret of the tests"}
IS_OLD = paddle.__version__.startswith(("2.", "3.0.", "3.1.", "3.2."))
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
    said = [process.communicate(timeout=600)[1] for process in processes]
    return [(process.returncode, err) for process, err in zip(processes, said)]


def garbage(port: int, kinds) -> list[socket.socket]:
    return [held for kind in kinds for held in KINDS[kind]("127.0.0.1", port)]
