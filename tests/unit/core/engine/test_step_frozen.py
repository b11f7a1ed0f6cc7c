"""Layers that a user's ``train_step`` freezes and thaws by itself learn, or the run says that they would not."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle import nn
from support.refusals import refusal_of
from yacs.config import CfgNode

from paddlevit_dist.core.engine import TrainStep
from paddlevit_dist.core.engine.optimizer import build_optimizer
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.tasks.step_types import LossTerm, StepPosition, TaskTraits
from paddlevit_dist.core.tasks.task import Task

ADAMW = CfgNode({"NAME": "AdamW", "EPS": 1e-8, "BETAS": (0.9, 0.99), "MOMENTUM": 0.8})


class OwnStep(Task):
    """Freezes the first layer in the updates that it is given, and thaws it in the others."""

    traits = TaskTraits(normalizers_per_sample={"loss": 1}, normalizer_names=("loss",))

    def __init__(self, frozen_in):
        super().__init__(SimpleNamespace(TASK="own"))
        self.frozen_in = frozen_in

    def train_step(self, model, batch, step):
        for parameter in model[0].parameters():
            parameter.stop_gradient = step.update in self.frozen_in
        return {"loss": LossTerm((model(batch["x"]) ** 2).sum(), len(batch["x"]))}


def start(frozen_in=(), is_fixed=False):
    paddle.seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    for parameter in model[0].parameters():
        parameter.stop_gradient = is_fixed
    optimizer = build_optimizer(ADAMW, model, None, 0.1)
    sizes = {"samples_per_update": 4, "accumulation_steps": 1, "gradient_clip": 1.0}
    return model, TrainStep(OwnStep(frozen_in), model, optimizer, TrainingPrecision(False), seed=0, **sizes)


@pytest.mark.parametrize("frozen_in", [(0, 1), (2, 3), (0, 3)])
def test_what_an_own_step_freezes_stands_still_and_what_it_thaws_learns_as_in_a_plain_loop(frozen_in):
    model, step = start(frozen_in)
    plain, _ = start()
    own = [
        paddle.optimizer.AdamW(0.05, beta2=0.99, parameters=[p], weight_decay=0.1 * (p.ndim > 1))
        for p in plain.parameters()
    ]
    for update in range(4):
        x = paddle.to_tensor(np.random.default_rng(update).standard_normal((4, 4)).astype("float32"))
        step([{"x": x}], StepPosition(1, update, 4), 0.05)
        (plain(x) ** 2).sum().scale(1 / 4).backward()
        learning = plain[2].parameters() if update in frozen_in else plain.parameters()
        norm = float(sum((p.grad**2).sum() for p in learning).sqrt())
        for optimizer, parameter in zip(own, plain.parameters()):
            if any(parameter is each for each in learning):
                parameter.grad.set_value(parameter.grad * min(1.0, 1.0 / (norm + 1e-6)))
                optimizer.step()
            parameter.clear_gradient(False)
        for found, expected in zip(model.parameters(), plain.parameters()):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_a_layer_that_was_fixed_when_training_began_cannot_be_thawed_by_a_step():
    _, step = start(frozen_in=(0,), is_fixed=True)
    batch = {"x": paddle.ones([4, 4])}
    step([batch], StepPosition(1, 0, 4), 0.05)
    message = refusal_of(step, [batch], StepPosition(1, 1, 4), 0.05)
    assert all(part in message for part in ("OwnStep.train_step", "0.weight and 1 more", "ParameterGrouping"))
