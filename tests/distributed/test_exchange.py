"""Collectives whoever started the processes, on one machine without a server between them, and when things go wrong."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

import pytest

import paddlevit_dist
from paddlevit_dist.parallel import collectives

from .harness import run_command, run_workers, succeeded

PROGRAM = str(Path(__file__).with_name("plain_spawn.py"))
LAUNCH = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2"]


@pytest.mark.parametrize("launch", [[], LAUNCH], ids=["dist.spawn", "paddle.distributed.launch"])
def test_collectives_in_a_users_own_program(launch, tmp_path):
    logs = ["--log_dir", str(tmp_path)] if launch else []
    run = [sys.executable, *launch, *logs, PROGRAM, str(tmp_path)]
    succeeded(run_command(run, timeout=60, PADDLE_DISTRI_BACKEND="gloo"))
    seen = [json.loads((tmp_path / f"seen_{rank}.json").read_text()) for rank in range(2)]
    assert all(of_rank["delayed before"] > 0 for of_rank in seen), "Paddle itself sends at once: nothing is to be done"
    for of_rank in seen:
        assert of_rank["delayed after"] == 0
        assert of_rank["gathered"] == ["rank 0", "rank 1"]
        assert of_rank["reduced"] == {"loss": 1.5}
        assert of_rank["requests"] == 0
    assert "rank(s) [1]" in seen[0]["left alone"] and "ended" in seen[0]["left alone"]


class Unreadable:
    """Can be pickled, but not read again."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __reduce__(self):
        return _refuse, (bytes(self.size),)


def _refuse(content: bytes):
    raise ValueError("this cannot be read")


def gather_what_cannot_be_read():
    """What follows on an object that raises while it is read, from a slot and from memory of its own."""
    answers = []
    for size in (10, 100_000):
        data = Unreadable(size) if paddlevit_dist.rank() == 1 else "readable"
        with pytest.raises(ValueError, match="cannot be read"):
            paddlevit_dist.all_gather(data)
        answers.append(paddlevit_dist.all_gather(size))
    return answers


def test_the_group_is_usable_after_an_object_that_cannot_be_read():
    results = succeeded(run_workers("distributed.test_exchange:gather_what_cannot_be_read", timeout=60)).results
    assert results == [[[10, 10], [100_000, 100_000]]] * 2


def gather_without_room():
    """Rank 1 may write no more than 1 MB into memory; returns lengths, and what stays open of 20 exchanges."""
    paddlevit_dist.all_gather(None)
    assert collectives._way_of_messages is not collectives._network
    if paddlevit_dist.rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    lengths = [len(part) for part in paddlevit_dist.all_gather(bytes(3_000_000 + paddlevit_dist.rank()))]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        paddlevit_dist.all_gather(bytes(100_000))
    return lengths, len(os.listdir("/proc/self/fd")) - before


def test_what_finds_no_room_in_memory_goes_over_the_network_and_nothing_stays_open():
    results = succeeded(run_workers("distributed.test_exchange:gather_without_room", timeout=60)).results
    assert results == [([3_000_000, 3_000_001], 0)] * 2


def gather_by_four(size: int):
    rank = paddlevit_dist.rank()
    sums = [paddlevit_dist.reduce_dict({"n": rank * turn}, average=False)["n"] for turn in range(50)]
    gathered = paddlevit_dist.all_gather(bytes([rank]) * (size * rank))
    return sums, [(len(part), set(part)) for part in gathered]


def test_four_ranks_in_quick_succession_never_read_a_message_too_early_or_too_late():
    results = succeeded(
        run_workers("distributed.test_exchange:gather_by_four", 20_000, processes=4, timeout=60)
    ).results
    expected = [6 * turn for turn in range(50)], [(20_000 * rank, {rank} if rank else set()) for rank in range(4)]
    assert results == [expected] * 4
