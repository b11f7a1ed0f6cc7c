"""Short trainings that send signals to themselves at a chosen moment."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.processes import wait_until
from support.trainings import small_runs

import paddlevit_dist
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.runtime import errors, process_exit, signals

ORDERLY = (
    "SAVE_EVERY_MINUTES 0 MODEL.DROPOUT 0 MODEL.DROPPATH 0 TRAIN.MIXUP_ALPHA 0 TRAIN.CUTMIX_ALPHA 0 "
    "TRAIN.WARMUP_EPOCHS 0"
).split()


def acting(before_update: Callable[[int], None], after_evaluation_batch: Callable[[], None] = lambda: None) -> type:
    """The task, with something that happens in the middle of each update (counted from 1) and evaluation."""

    class Acting(resolve("task", "classification")):
        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            if step.micro == 0:
                before_update(step.update + 1)
            return super().train_step(model, batch, step)

        def eval_step(self, model: Any, batch: Any, step: Any) -> None:
            super().eval_step(model, batch, step)
            after_evaluation_batch()

    return Acting


def train(output: str, arguments: list, signals_at: dict) -> None:
    """Five updates an epoch; ``signals_at``: update -> rank and the signal that it gets in it, and that the main
    process knows of before it ends."""

    def act(update: int) -> None:
        rank, number = signals_at.get(update, (None, None))
        begun = f"{output}.begun_{update}"  # by the main process, which another may be ahead of
        if rank is not None and paddlevit_dist.rank() == 0:
            open(begun, "w", encoding="utf-8").close()
        if rank == paddlevit_dist.rank():
            wait_until(lambda: os.path.exists(begun), "the signal did not arrive")
            os.kill(os.getpid(), number)
        if rank is not None and paddlevit_dist.rank() == 0:
            wait_until(
                signals.save_requested if number == signal.SIGUSR1 else signals.stop_reason, "the signal did not arrive"
            )

    small_runs.build(output, *ORDERLY, *arguments, train_size=160, task_class=acting(act)).train()


def evaluate(output: str, arguments: list) -> None:
    """Rank 1 is asked to stop after the first batch of the evaluation after epoch 1; a rank leaves a line a batch."""
    trained = []

    def act() -> None:
        if not trained:  # the check of a user's metrics before the first update
            return
        with open(f"{output}.batches", "a", encoding="utf-8") as file:
            file.write(f"{paddlevit_dist.rank()}\n")
        if paddlevit_dist.rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        wait_until(signals.stop_reason, "the signal did not arrive")  # by now both are, for the parent has passed it on

    task = acting(trained.append, act)
    small_runs.build(output, *ORDERLY, *arguments, train_size=160, val_size=160, task_class=task).train()


def interrupt_twice(output: str, everyone: bool) -> None:
    """In the second update, Ctrl-C comes to the main process, and again once its workers know. The update never
    ends."""

    def act(update: int) -> None:
        if update < 2:
            return
        if paddlevit_dist.rank() == 0:
            main = os.getppid() if everyone else os.getpid()
            os.kill(main, signal.SIGINT)
            wait_until(signals.stop_reason, "the signal did not arrive")
            Path(f"{output}.when").write_text(str(time.time()))
            os.kill(main, signal.SIGINT)
        time.sleep(300)

    small_runs.build(output, *ORDERLY, "-epochs=2", "-batch_size=16", train_size=160, task_class=acting(act)).train()


def threads_after_a_stop(output: str) -> list:
    """Names of the threads that have none of their own name, once a stop before the first update has been noticed."""
    try:
        arguments = ["-batch_size=32", "-num_workers=0", "-stop_after_seconds=0.001"]
        small_runs.build(output, *ORDERLY, *arguments, train_size=160).train()
    except errors.Stopped:
        process_exit.end_if_in_danger(99)
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("Thread-")]
    raise AssertionError("it was not stopped")


class Stalling:
    """Samples that take for ever from the third batch on. The training process is asked to stop once it has done all
    that it could, and waits for them."""

    def __init__(self, samples: Any, main: int, saved: Path) -> None:
        self.samples, self.main, self.saved, self.read = samples, main, saved, 0

    def __len__(self) -> int:
        return 160

    def sample(self, index: int, generator: Any) -> Any:
        self.read += 1
        if self.read > 64:
            while not self.saved.exists():
                time.sleep(0.01)
            time.sleep(0.5)  # by now it waits; if it did not yet, the test would show less, and not fail
            os.kill(self.main, signal.SIGTERM)
            time.sleep(300)
        return self.samples.sample(index % len(self.samples), generator)

    def describe(self, index: int) -> str:
        return str(index)


def train_on_data_that_stall(output: str, num_workers: int) -> None:
    arguments = ["-epochs=2", "-batch_size=32", f"-num_workers={num_workers}", "SAVE_EVERY_UPDATES", "2"]
    trainer = small_runs.build(output, *ORDERLY, *arguments, train_size=160)
    saved = Path(output, "checkpoints", "last")
    trainer.datasets["train"].samples = Stalling(trainer.datasets["train"].samples, os.getpid(), saved)
    trainer.train()
