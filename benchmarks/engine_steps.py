"""The engine's own updates with the task of a run, for benchmarks that compare them with a peer's loop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from paddlevit_dist import Trainer
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import CountingCollate
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.core.tasks.task_factory import make_task


def build_step(words: list[str], folder: Path, number: int, epoch: int = 1) -> Callable[[], Any]:
    """Return an update on one batch of the first ``number`` training samples, made by the task's collate function.

    The run has the settings ``words``, and its output in ``folder``. A loss that is not finite ends the program.
    """
    values = settings.load([*words, f"-output={folder}"]).values
    task = make_task(values)
    datasets = {split: task.build_dataset(split, folder) for split in ("train", "val")}
    trainer = Trainer(values, task, datasets)
    trainer.prepare_training()
    trainer.model.train()
    samples = [datasets["train"].sample(index, np.random.default_rng(index)) for index in range(number)]
    collated = CountingCollate(task)(samples)  # facts for the host, such as sizes, are a dict
    batch = {key: part if isinstance(part, dict) else paddle.to_tensor(part) for key, part in collated.items()}
    update = 0

    def step() -> None:
        nonlocal update
        (terms,) = trainer.step([dict(batch)], StepPosition(epoch, update, 10_000), 1e-4)
        update += 1
        if not trainer.step.finite:
            raise SystemExit(f"{values.MODEL.NAME}: the loss is not finite ({terms})")

    return step
