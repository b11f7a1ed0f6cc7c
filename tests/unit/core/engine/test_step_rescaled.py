"""Passes that run again after a change of the loss's scale: running statistics, and what a task counts."""

import numpy as np
import paddle
import pytest
from paddle import nn

from paddlevit_dist.core.engine import TrainStep
from paddlevit_dist.core.engine.fused_optimizers import FusedAdamW
from paddlevit_dist.core.engine.nan_guard import NonFiniteGuard
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.tasks.step_types import LossTerm, StepPosition, TaskTraits

UPDATES = 6


class SquaresTask:
    """Squares of the outputs, summed."""

    traits = TaskTraits(normalizers_per_sample={"loss": 1}, normalizer_names=("loss",))

    def __init__(self):
        self.calls = 0

    def train_step(self, model, batch, step):
        self.calls += 1
        return {"loss": LossTerm((model(batch["x"]) ** 2).sum(), len(batch["x"]))}


def train(is_queued, finite_before, skipped):
    """Run updates with a loss scaler, on a CPU as on a GPU: each is settled when the next is begun, or at once."""
    paddle.seed(0)
    model, task = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1D(8), nn.Linear(8, 2)), SquaresTask()
    groups = [{"params": model.parameters(), "weight_decay": 0.0}]
    decays = {parameter.name: 0.0 for parameter in model.parameters()}
    precision = TrainingPrecision(True, "float16", on_gpu=True)
    precision.enabled = False
    precision.load_state_dict({**precision.state_dict(), "incr_count": finite_before})
    updater = TrainStep(
        task,
        model,
        FusedAdamW(decays, learning_rate=0.0, parameters=groups, weight_decay=0.0),
        precision,
        seed=0,
        samples_per_update=16,
        accumulation_steps=1,
        gradient_clip=None,
        nan_guard=NonFiniteGuard(limit=9),
        on_host=False,
    )
    for number in range(UPDATES):
        inputs = np.random.default_rng(number).standard_normal((16, 4)).astype(np.float32) + 2
        inputs = inputs * np.float32(np.inf) if number == skipped else inputs
        (updater.launch if is_queued else updater)(
            [{"x": paddle.to_tensor(inputs)}], StepPosition(1, number, UPDATES), 1e-3
        )
    updater.flush()
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}, precision.scale, task.calls


@pytest.mark.parametrize(("finite_before", "skipped", "scale"), [(1998, None, 131072.0), (1997, 4, 65536.0)])
def test_statistics_take_each_batch_once_when_the_scale_changes(finite_before, skipped, scale):
    at_once, one, calls = train(False, finite_before, skipped)
    queued, other, more = train(True, finite_before, skipped)
    assert one == other == scale and more > calls == UPDATES  # passes did run again
    for name, value in at_once.items():
        np.testing.assert_array_equal(queued[name], value, err_msg=name)
