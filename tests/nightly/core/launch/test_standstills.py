"""A rank that stands still ends the run, which names it, its place, and its stack or its state."""

import os
import signal
import sys
import zlib  # noqa: F401 - before Paddle, whose library has another, as in the package
from pathlib import Path
from typing import Any

import pytest
from integration.core.launch.standing_still import END_LIMIT, SECONDS, SlowImage, ending, stands_at, start
from support.processes import Finished, session_members, start_command, wait_until
from support.trainings import small_runs
from support.trainings.runs import DIGITS, MAIN

from paddlevit_dist.core.launch import status


@pytest.fixture(scope="module", autouse=True)
def kernels(tmp_path_factory):
    """Compile what the trainings call: in a fresh clone that takes longer than a rank may stand still here."""
    small_runs.build(str(tmp_path_factory.mktemp("first")), "-epochs=1", "-batch_size=16", train_size=32).train()


@pytest.mark.parametrize(
    "number, word",
    [
        (0, "in its backward pass"),
        (0, "in the evaluation"),
        (1, "in the evaluation"),
        (0, "saving epoch"),
        (1, "saving epoch"),
    ],
)
def test_a_stopped_rank_is_named_wherever_it_stands(tmp_path, number, word):
    stands_at(ending(start("stopped", str(tmp_path / "run"), str(number), word)), number, word)


def children_with_python(process: Any) -> list[int]:
    """The workers, in the order in which they were started, as soon as the kernel knows them."""
    found = []
    for pid in sorted(session_members(process.pid)):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"multiprocessing.spawn" in words:
            found.append(pid)
    return found


@pytest.mark.parametrize("number", [0, 1])
def test_a_rank_that_stops_before_it_has_imported_anything_is_named(tmp_path, number):
    watchdog = ["WATCHDOG_SECONDS", str(SECONDS)]
    process = start_command([sys.executable, str(MAIN), f"-output={tmp_path}", *DIGITS, "-ngpus=2", *watchdog])
    wait_until(lambda: len(children_with_python(process)) == 2, "no workers", process=process)
    os.kill(children_with_python(process)[number], signal.SIGSTOP)
    stands_at(ending(process), number, status.NOT_STARTED)


def run_hanging(how: str) -> Finished:
    return ending(start(how))


def test_a_rank_that_hangs_in_c_code_shows_its_stack():
    ended = run_hanging("holding Python's lock")
    assert ended.code == 1
    lines = ended.err.strip().splitlines()
    assert lines[-1].startswith("error: rank 1 failed: no progress for ") and "between two barriers" in lines[-1]
    assert any(line.endswith("in hang") for line in lines), ended.err


def test_ranks_that_wait_for_one_another_are_all_named():
    ended = run_hanging("waiting for one another")
    last = ended.err.strip().splitlines()[-1]
    assert ended.code == 1
    assert "every rank has waited for the others" in last and "rank 0 " in last and "rank 1 " in last
    assert "in a barrier" in last


def test_a_rank_stopped_inside_an_exchange_is_named_once_gloo_gives_up():
    ended = ending(start("stopped in an exchange", "300"))
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("error: rank 1 failed: no progress for ") and "T (stopped)" in last, ended.err


@pytest.mark.parametrize("number", [1, 100])  # the first, and one in mid-epoch
def test_an_image_slower_than_gloo_and_the_watchdog_only_makes_all_wait(tmp_path, number):
    output = tmp_path / "run"
    process = start("slow image", str(output), str(number))
    out, err = process.communicate(timeout=END_LIMIT)
    assert process.returncode == 0, err
    assert all(float(Path(f"{output}.{number}").read_text()) > SlowImage.seconds for number in range(2))
    assert "rank 1 has been waiting for a batch for 2" in err and "give up" not in err


def run_as_on_a_gpu(output: Path, how: str) -> Finished:
    return ending(start("as on a GPU", str(output), how))


def test_on_a_gpu_a_rank_that_waits_for_a_hanging_one_is_not_taken_for_it(tmp_path):
    ended = run_as_on_a_gpu(tmp_path / "run", "hangs")
    last = ended.err.strip().splitlines()[-1]
    assert ended.code == 1
    assert last.startswith("error: rank 1 failed: no progress for ") and "in its forward pass" in last, ended.err


def test_on_a_gpu_a_rank_waits_for_one_whose_data_are_late(tmp_path):
    ended = run_as_on_a_gpu(tmp_path / "run", "reads")
    assert ended.code == 0, ended.err
