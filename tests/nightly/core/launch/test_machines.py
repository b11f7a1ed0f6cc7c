"""Ranks of several machines: one that is gone, stands still or never comes ends the others, which name it.

The machines are processes of this one, started as Paddle's launcher would.
"""

import signal
import socket
from typing import Any

import pytest
from integration.core.launch.machines import LIMIT, SECONDS, clear_away, require_named, start_rank
from support.processes import ended_by_itself, free_ports


def last_line(process: Any) -> str:
    """What a rank that must have ended says last."""
    ended = ended_by_itself(process, LIMIT)
    assert ended.code == 1, ended.err
    return ended.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "guilty, number, word",
    [
        (1, signal.SIGKILL, "in the evaluation"),
        (0, signal.SIGKILL, "in the evaluation"),
        (0, signal.SIGSTOP, "in its forward pass"),
    ],
)
def test_a_machine_that_is_gone_or_stands_still_ends_the_others(tmp_path, guilty, number, word):
    (port,) = free_ports(1)
    words = ["train", str(tmp_path), str(guilty), str(int(number)), word]
    ranks = [start_rank(each, port, *words) for each in range(2)]
    try:
        assert last_line(ranks[1 - guilty]).startswith(f"error: rank {guilty} failed: ")
        assert ranks[guilty].wait(LIMIT) == -signal.SIGKILL  # its guard ends one that is stopped
    finally:
        clear_away(ranks)


def test_machines_that_would_train_differently_end_before_the_first_step(tmp_path):
    (port,) = free_ports(1)
    ranks = [start_rank(each, port, "train", str(tmp_path), "-1", "0", "", "SEED", str(each)) for each in range(2)]
    try:
        host = socket.gethostname()
        for process in ranks:
            _, err = process.communicate(timeout=LIMIT)
            assert process.returncode == 2, err
            told = f"error: rank 1 on {host} differs from rank 0 on {host}: SEED 1 instead of 0; give all machines "
            assert err.splitlines()[-1].startswith(told)
    finally:
        clear_away(ranks)


def test_a_rank_that_fails_while_joining_is_named_at_once(tmp_path):
    require_named(tmp_path, "join", "OSError: the network card")


@pytest.mark.parametrize("what, cause", [("fail", "ValueError: the sample at hand"), ("hang", "no progress for ")])
def test_every_machine_is_told_why_a_rank_failed(what, cause):
    (port,) = free_ports(1)
    ranks = [start_rank(each, port, what) for each in range(2)]
    try:
        for process in ranks:
            line = last_line(process)
            assert cause in line
            if process is ranks[0] or what == "hang":
                assert line.startswith("error: rank 1 failed: ")
    finally:
        clear_away(ranks)


def test_a_rank_that_never_comes_is_named_on_all_machines():
    (port,) = free_ports(1)
    ranks = [start_rank(each, port, "fail", size=3) for each in range(2)]
    try:
        for process in ranks:
            line = last_line(process)
            assert line.startswith("error: rank 2 failed: it did not connect to 127.0.0.1:"), line
            assert f"within {SECONDS} s (WATCHDOG_SECONDS)" in line
    finally:
        clear_away(ranks)


def test_a_master_port_that_another_program_has_is_named_on_all_machines():
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        ranks = [start_rank(each, port, "fail") for each in range(2)]
        try:
            for process in ranks:
                _, err = process.communicate(timeout=LIMIT)
                assert process.returncode == 2, err
                (line,) = err.strip().splitlines()
                assert "another program" in line and f"127.0.0.1:{port}" in line
                assert line.endswith("choose a free port") or line.endswith("choose a free port for the master")
        finally:
            clear_away(ranks)


def test_what_aborts_after_the_work_does_not_fail_a_launched_rank_and_nothing_own_is_lost(tmp_path):
    (port,) = free_ports(1)
    ranks = [start_rank(each, port, "abort", str(tmp_path)) for each in range(2)]
    try:
        assert [ended_by_itself(process, LIMIT).code for process in ranks] == [0, 0]
        assert all((tmp_path / f"log_{rank}").read_text() == "a line" for rank in (0, 1))
        assert all((tmp_path / f"handler_{rank}").exists() for rank in (0, 1))
    finally:
        clear_away(ranks)
