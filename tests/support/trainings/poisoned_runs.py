"""Trainings in which one rank's loss is not finite in one update, and what they leave behind."""

from pathlib import Path
from typing import Any

import numpy as np
import paddle

from paddlevit_dist import UserError, rank
from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.registry.lookup import resolve
from support.trainings import small_runs

RUN = "-batch_size=16 -epochs=1 TRAIN.WARMUP_STEPS 2 TRAIN.BATCH_NORM sync REPORT_FREQ 20".split()
RUN += ["TRAIN.MAX_SKIPPED_UPDATES", "1"]
EMA = ["TRAIN.MODEL_EMA", "True", "TRAIN.MODEL_EMA_DECAY", "0.9"]
UPDATES = 10

Arrays = dict[str, np.ndarray]


class Normalized(paddle.nn.Layer):
    """A linear classifier behind a batch normalization, with running statistics and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = paddle.nn.BatchNorm1D(256)
        self.head = paddle.nn.Linear(256, 10)
        self.register_buffer("steps", paddle.zeros([1], dtype="int64"))

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        if self.training:
            self.steps.set_value(self.steps + 1)
        return self.head(self.norm(images.flatten(1)))


def left_and_saved(
    output: str, *arguments: str, at: int, of_rank: int = 0, on_host: bool = True, world_size: int = 1
) -> tuple[str, Arrays, Arrays]:
    """Train while one rank's loss is infinite in update ``at``, counted from 1, though its gradients are finite.

    Returns:
        The message that the training ends with, what this rank has in memory, and what was saved after the update
        before.
    """

    class Poisoned(resolve("task", "classification")):
        def build_model(self) -> paddle.nn.Layer:
            return Normalized()

        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            terms = super().train_step(model, batch, step)
            if step.update == at - 1 and rank() == of_rank:
                terms["loss"] = terms["loss"]._replace(sum=terms["loss"].sum + float("inf"))
            return terms

    every = ["SAVE_EVERY_UPDATES", str(at - 1)]
    size = 16 * world_size * UPDATES
    trainer = small_runs.build(output, *RUN, *EMA, *every, *arguments, train_size=size, task_class=Poisoned)
    trainer.prepare_training()
    trainer.step.on_host = on_host
    message = "no error"
    try:
        trainer.train()
    except UserError as error:
        message = str(error)
    trainer.checkpointer.finish()
    left = {name: tensor.numpy() for name, tensor in trainer.model.state_dict().items()}
    left.update({f"ema {name}": tensor.numpy() for name, tensor in trainer.ema.state_dict().items()})
    left.update(trainer.state.optimizer_state.state_dict())
    return message, left, _saved(Path(output, "checkpoints", checkpoint_store.update_name(at - 1)))


def poisoned_on_the_second_of_two(output: str, at: int) -> tuple[str, Arrays, Arrays]:
    """The same with two processes that save by time: announced after each other update, they save after the next."""
    by_time = ["SAVE_EVERY_UPDATES", "0", "SAVE_EVERY_MINUTES", "1e-9"]
    return left_and_saved(output, *by_time, at=at, of_rank=1, world_size=2)


def _saved(directory: Path) -> Arrays:
    saved = dict(checkpoint_store.read(directory).optimizer)
    for prefix, file in (("", "model"), ("ema ", "model_ema")):
        state = paddle.load(str(directory / f"{file}.pdparams"))
        saved.update({f"{prefix}{name}": tensor.numpy() for name, tensor in state.items()})
    return saved


def require_unchanged(message: str, left: Arrays, saved: Arrays, at: int) -> None:
    """The run ended over update ``at``, which has left weights, moments, buffers and averages as they were."""
    assert f"update {at} in epoch 1 is not finite" in message and "diverged" in message
    assert left.keys() == saved.keys() and {"norm._mean", "ema norm._mean", "steps"} <= left.keys()
    assert any("moment" in name or "velocity" in name for name in left)
    for name, value in saved.items():
        np.testing.assert_array_equal(left[name], value, err_msg=name)
    assert left["steps"] == at - 1
