"""A rank that stands still ends the run, which names it, its place, and its stack or its state."""

import ctypes
import os
import signal
import sys
import time
import zlib  # noqa: F401 - before Paddle, whose library has another, as in the package
from pathlib import Path
from typing import Any

import paddle
import pytest
from support import acting, small_runs
from support.processes import Finished, ended_by_itself, session_members, start_command, wait_until
from support.runs import DIGITS, MAIN

from paddlevit_dist.distributed import all_reduce_sum, barrier, rank
from paddlevit_dist.engine import steps
from paddlevit_dist.launch import launch_workers, plan_processes, status
from paddlevit_dist.registry import resolve

SECONDS = 8  # how long a rank may stand still here
START_LIMIT, END_LIMIT = 90.0, 120.0  # on a machine that is busy with something else

# ---- a real training -----------------------------------------------------------------------------------------------


def train_and_stop(output: str, number: str, word: str) -> None:
    """A training in which one rank is stopped as soon as it notes a place whose text contains ``word``."""
    if rank() == int(number):
        acting.at_place(word, signal.SIGSTOP)
    small_runs.build(output, "-epochs=1000", "-batch_size=16", train_size=64).train()


def ending(process: Any) -> Finished:
    return ended_by_itself(process, END_LIMIT)


def stands_at(ended: Finished, number: int, words: str) -> None:
    assert ended.code == 1, ended.err
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith(f"error: rank {number} failed: stood still for "), ended.err
    assert "(WATCHDOG_SECONDS)" in last and words in last
    assert "T (stopped)" in last


@pytest.mark.parametrize(
    "number, word",
    [
        (1, "in its forward pass"),
        pytest.param(0, "in its backward pass", marks=pytest.mark.long),
        pytest.param(0, "in the evaluation", marks=pytest.mark.long),
        pytest.param(1, "in the evaluation", marks=pytest.mark.long),
        pytest.param(0, "saving epoch", marks=pytest.mark.long),
        pytest.param(1, "saving epoch", marks=pytest.mark.long),
    ],
)
def test_a_stopped_rank_ends_the_run_with_its_number_and_place(tmp_path, number, word):
    words = [str(tmp_path / "run"), str(number), word]
    ended = ending(start_command([sys.executable, __file__, "stopped", *words], is_copy=True))
    stands_at(ended, number, word)


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


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 1])
def test_a_rank_that_stops_before_it_has_imported_anything_is_named(tmp_path, number):
    watchdog = ["WATCHDOG_SECONDS", str(SECONDS)]
    process = start_command([sys.executable, str(MAIN), f"-output={tmp_path}", *DIGITS, "-ngpus=2", *watchdog])
    wait_until(lambda: len(children_with_python(process)) == 2, "no workers", START_LIMIT)
    os.kill(children_with_python(process)[number], signal.SIGSTOP)
    stands_at(ending(process), number, status.NOT_STARTED)


# ---- workers that stand still while they could run ---------------------------------------------------------------


def hang(how: str) -> None:
    status.note("between two barriers")
    for _ in range(3):
        barrier()
    if rank() == 1 and how == "holding Python's lock":
        ctypes.PyDLL(None).sleep(1000)
    if how == "stopped in an exchange":
        if rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        all_reduce_sum(paddle.ones([1]))
    barrier()
    if rank() == 0 and how == "waiting for one another":
        wait_for_a_message_that_never_comes()
    barrier()


def wait_for_a_message_that_never_comes() -> None:
    with status.waiting_for_ranks():
        time.sleep(1000)


def run_hanging(how: str) -> Finished:
    return ending(start_command([sys.executable, __file__, how], is_copy=True))


@pytest.mark.long
def test_a_rank_that_hangs_in_c_code_shows_its_stack():
    ended = run_hanging("holding Python's lock")
    assert ended.code == 1
    lines = ended.err.strip().splitlines()
    assert lines[-1].startswith("error: rank 1 failed: stood still for ") and "between two barriers" in lines[-1]
    assert any(line.endswith("in hang") for line in lines), ended.err


@pytest.mark.long
def test_ranks_that_wait_for_one_another_are_all_named():
    ended = run_hanging("waiting for one another")
    last = ended.err.strip().splitlines()[-1]
    assert ended.code == 1
    assert "every rank has waited for the others" in last and "rank 0 " in last and "rank 1 " in last
    assert "in a barrier" in last


@pytest.mark.long
def test_a_rank_stopped_inside_an_exchange_is_named_once_gloo_gives_up():
    ended = ended_by_itself(
        start_command([sys.executable, __file__, "stopped in an exchange", "300"], is_copy=True), 180
    )
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("error: rank 1 failed: stood still for ") and "T (stopped)" in last, ended.err


# ---- slow is not still -------------------------------------------------------------------------------------------


class SlowImage(small_runs.Part):
    """Rank 1 takes longer over one image than gloo would wait."""

    seconds = 35.0

    def __init__(self, samples: Any, size: int, number: int = 100) -> None:
        super().__init__(samples, size)
        self.left = number

    def sample(self, index: int, generator: Any) -> Any:
        self.left -= 1
        if rank() == 1 and self.left == 0:
            time.sleep(self.seconds)
        return super().sample(index, generator)


def train_with_a_slow_image(output: str, number: str) -> None:
    trainer = small_runs.build(output, "-epochs=1", "-batch_size=16")
    trainer.datasets["train"] = SlowImage(trainer.datasets["train"], 320, int(number))
    started = time.monotonic()
    trainer.train()
    Path(f"{output}.{rank()}").write_text(str(time.monotonic() - started))


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 100])  # the first, and one in mid-epoch
def test_an_image_slower_than_gloo_and_the_watchdog_only_makes_all_wait(tmp_path, number):
    output = tmp_path / "run"
    process = start_command([sys.executable, __file__, "slow image", str(output), str(number)], is_copy=True)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert all(float(Path(f"{output}.{number}").read_text()) > SlowImage.seconds for number in range(2))
    assert "rank 1 has been waiting for a batch for 2" in err and "give up" not in err


# ---- as on a GPU, where ranks do not meet before they exchange -----------------------------------------------------


def train_as_on_a_gpu(output: str, how: str) -> None:
    """Rank 1 is late in its third update: its data are, or its forward pass stands still."""

    class Hanging(resolve("task", "classification")):
        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            if how == "hangs" and rank() == 1 and step.update == 2:
                time.sleep(1000)
            return super().train_step(model, batch, step)

    steps.is_on_gpu = lambda: True
    trainer = small_runs.build(output, "-epochs=1", "-batch_size=16", task_class=Hanging)
    if how == "reads":
        SlowImage.seconds = 2.5 * SECONDS
        trainer.datasets["train"] = SlowImage(trainer.datasets["train"], 320)
    trainer.train()


def run_as_on_a_gpu(output: Path, how: str) -> Finished:
    return ending(start_command([sys.executable, __file__, "as on a GPU", str(output), how], is_copy=True))


def test_on_a_gpu_a_rank_that_waits_for_a_hanging_one_is_not_taken_for_it(tmp_path):
    ended = run_as_on_a_gpu(tmp_path / "run", "hangs")
    last = ended.err.strip().splitlines()[-1]
    assert ended.code == 1
    assert last.startswith("error: rank 1 failed: stood still for ") and "in its forward pass" in last, ended.err


@pytest.mark.long
def test_on_a_gpu_a_rank_waits_for_one_whose_data_are_late(tmp_path):
    ended = run_as_on_a_gpu(tmp_path / "run", "reads")
    assert ended.code == 0, ended.err


# ---- what a watcher sees -----------------------------------------------------------------------------------------


def test_pages_show_the_last_place_of_each_rank():
    pages = status.new_pages(3)
    assert [status.read(pages, number).text for number in range(3)] == [status.NOT_STARTED] * 3
    pid = os.fork()
    if pid == 0:
        status.publish(pages, 1)
        status.note("in a place with a long name " + "ä" * 600)
        status.note("in a place")
        with status.during("doing something"), status.waiting_for_ranks():
            os._exit(0)
    os.waitpid(pid, 0)
    place = status.read(pages, 1)
    assert (place.text, place.waits, place.process) == ("in a place: doing something", True, pid)
    assert status.read(pages, 2).text == status.NOT_STARTED


if __name__ == "__main__":
    from paddlevit_dist.runtime.errors import run_and_report

    name, *rest = sys.argv[1:]
    trainings = {"stopped": train_and_stop, "slow image": train_with_a_slow_image, "as on a GPU": train_as_on_a_gpu}
    work, words = (trainings[name], tuple(rest)) if name in trainings else (hang, (name,))
    seconds = float(rest[0]) if rest and work is hang else SECONDS
    sys.exit(run_and_report(lambda: launch_workers(work, words, plan_processes(2), watchdog_seconds=seconds)))
