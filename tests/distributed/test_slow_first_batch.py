"""A rank whose first batch takes longer than gloo waits does not end the run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.processes import run_workers, succeeded
from support.small_runs import DIGITS, TINY, Part

from paddlevit_dist import Trainer, config
from paddlevit_dist.parallel import rank
from paddlevit_dist.registry import resolve

SECONDS = 33.0  # more than gloo's 30


class SlowStart(Part):
    """Rank 1 reads its first sample slowly, as from a cold disk."""

    def __init__(self, samples: Any, size: int) -> None:
        super().__init__(samples, size)
        self.is_slow = True

    def sample(self, index: int, generator: Any) -> Any:
        if self.is_slow and rank() == 1:
            self.is_slow = False
            time.sleep(SECONDS)
        return super().sample(index, generator)


def train(output: str) -> float:
    values = config.load([f"-output={output}", *DIGITS, *TINY, "-epochs=1", "-batch_size=16"]).values
    Path(output).mkdir(parents=True, exist_ok=True)
    task = resolve("task", values.TASK)(values)
    train_samples = SlowStart(task.build_dataset("train", Path(output)), 64)
    trainer = Trainer(values, task, {"train": train_samples, "val": Part(task.build_dataset("val", Path(output)), 32)})
    started = time.monotonic()
    trainer.train()
    return time.monotonic() - started


@pytest.mark.long
def test_the_others_wait_and_are_told_why(tmp_path):
    ended = succeeded(run_workers("distributed.test_slow_first_batch:train", str(tmp_path / "out"), timeout=150.0))
    assert min(ended.results) > SECONDS
    assert "rank 1 has been waiting for a batch for 2" in ended.err
