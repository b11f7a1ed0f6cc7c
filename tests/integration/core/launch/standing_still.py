"""Trainings and workers of which a rank stands still, and how such a run has to end."""

import ctypes
import os
import signal
import sys
import time
import zlib  # noqa: F401 - before Paddle, whose library has another, as in the package
from pathlib import Path
from typing import Any

import paddle
from support import acting
from support.processes import Finished, ended_by_itself, start_command
from support.trainings import small_runs

from paddlevit_dist.core.distributed import all_reduce_sum, barrier, rank
from paddlevit_dist.core.engine import step
from paddlevit_dist.core.launch import launch_workers, plan_processes, status
from paddlevit_dist.core.registry.lookup import resolve

SECONDS = 8  # how long a rank may stand still here
END_LIMIT = 600.0

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
    assert last.startswith(f"error: rank {number} failed: no progress for "), ended.err
    assert "(WATCHDOG_SECONDS)" in last and words in last
    assert "T (stopped)" in last


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


def start(*words: str) -> Any:
    """This file as a program: the work that ``words`` name, with two processes."""
    return start_command([sys.executable, __file__, *words], is_copy=True)


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


def train_with_a_slow_image(output: str, number: str) -> None:
    trainer = small_runs.build(output, "-epochs=1", "-batch_size=16")
    trainer.datasets["train"] = SlowImage(trainer.datasets["train"], 320, int(number))
    started = time.monotonic()
    trainer.train()
    Path(f"{output}.{rank()}").write_text(str(time.monotonic() - started))


# ---- as on a GPU, where ranks do not meet before they exchange -----------------------------------------------------


def train_as_on_a_gpu(output: str, how: str) -> None:
    """Rank 1 is late in its third update: its data are, or its forward pass stands still."""

    class Hanging(resolve("task", "classification")):
        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            if how == "hangs" and rank() == 1 and step.update == 2:
                time.sleep(1000)
            return super().train_step(model, batch, step)

    step.is_on_gpu = lambda: True
    trainer = small_runs.build(output, "-epochs=1", "-batch_size=16", task_class=Hanging)
    if how == "reads":
        SlowImage.seconds = 2.5 * SECONDS
        trainer.datasets["train"] = SlowImage(trainer.datasets["train"], 320)
    trainer.train()


if __name__ == "__main__":
    from paddlevit_dist.core.runtime.errors import run_and_report

    name, *rest = sys.argv[1:]
    trainings = {"stopped": train_and_stop, "slow image": train_with_a_slow_image, "as on a GPU": train_as_on_a_gpu}
    work, words = (trainings[name], tuple(rest)) if name in trainings else (hang, (name,))
    seconds = float(rest[0]) if rest and work is hang else SECONDS
    sys.exit(run_and_report(lambda: launch_workers(work, words, plan_processes(2), watchdog_seconds=seconds)))
