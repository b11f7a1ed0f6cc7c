"""A program: updates of a network of 3 x 3 x 3 convolutions, clipped, beside Paddle's own loop over plain layers.

It prints how the gradients of the weights lie in memory, and "equal" where all losses are, else both.
"""

import numpy as np
import paddle

from paddlevit_dist.core.engine import TrainStep
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.tasks.model_factory import prepare
from paddlevit_dist.core.tasks.step_types import LossTerm, StepPosition, TaskTraits
from paddlevit_dist.core.tasks.task import Task
from paddlevit_dist.extensions.cpu_kernels.accelerate import accelerate

CLIP, RATE, UPDATES = 0.5, 0.1, 4


def make_model() -> paddle.nn.Layer:
    paddle.seed(3)
    nn = paddle.nn
    return nn.Sequential(nn.Conv3D(2, 8, 3, padding=1), nn.ReLU(), nn.Conv3D(8, 4, 3, padding=1), nn.Flatten())


class Volumes(Task):
    """Regression of volumes on volumes."""

    traits = TaskTraits(normalizers_per_sample={"loss": 1})

    def __init__(self) -> None:
        super().__init__(None)

    def train_step(self, model, batch, step):
        return {"loss": LossTerm(((model(batch["x"]) - batch["y"]) ** 2).mean(1).sum(), 2)}


def batches():
    generator = np.random.default_rng(0)
    for _ in range(UPDATES):
        x, y = generator.standard_normal((2, 2, 8, 8, 8)), generator.standard_normal((2, 4 * 8**3))
        yield {"x": paddle.to_tensor(x.astype("float32")), "y": paddle.to_tensor(y.astype("float32"))}


def turn(gradient: paddle.Tensor) -> paddle.Tensor:
    """Return the same values, as a view where operations return views."""
    axes = list(range(gradient.ndim))[::-1]
    return gradient.transpose(axes).contiguous().transpose(axes)


def prepared() -> paddle.nn.Layer:
    model = prepare(make_model())
    accelerate(model)
    for parameter in model.parameters():
        parameter.register_hook(turn)
    return model


def ours() -> list[float]:
    model = prepared()
    optimizer = paddle.optimizer.Momentum(RATE, parameters=model.parameters())
    options = {"seed": 0, "samples_per_update": 2, "accumulation_steps": 1, "gradient_clip": CLIP}
    updater = TrainStep(Volumes(), model, optimizer, TrainingPrecision(False), **options)
    losses = []
    for number, batch in enumerate(batches()):
        (terms,) = updater([batch], StepPosition(1, number, UPDATES), RATE)
        losses.append(terms["loss"].sum.item() / 2)
    return losses


def theirs() -> list[float]:
    model, losses = make_model(), []
    clip = paddle.nn.ClipGradByGlobalNorm(CLIP)
    optimizer = paddle.optimizer.Momentum(RATE, parameters=model.parameters(), grad_clip=clip)
    for batch in batches():
        loss = ((model(batch["x"]) - batch["y"]) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    model = prepared()
    model(next(batches())["x"]).sum().backward()
    print("in a row" if all(p.grad.is_contiguous() for p in model.parameters()) else "strided")
    pairs = ours(), theirs()
    print("equal" if np.allclose(*pairs, rtol=1e-5) else pairs)
