"""What an update draws: each rank and micro-batch its own numbers, and the same ones when the update is made again."""

import paddle
from paddle import nn
from support.thread_ranks import acting_as

from paddlevit_dist.core.engine import TrainStep
from paddlevit_dist.core.engine.fused_optimizers import FusedAdamW
from paddlevit_dist.core.engine.nan_guard import NonFiniteGuard
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.tasks.step_types import LossTerm, StepPosition, TaskTraits


class DrawingTask:
    """A task whose network drops and draws; ``drawn`` has what it drew in each pass."""

    traits = TaskTraits(normalizers_per_sample={"loss": 1}, normalizer_names=("loss",))

    def __init__(self):
        self.drawn = []

    def train_step(self, model, batch, step):
        dropped = model(paddle.ones([8, 64]))
        self.drawn.append((*dropped.flatten().tolist(), *paddle.randn([4]).tolist()))
        return {"loss": LossTerm((dropped**2).sum(), 8)}


def draw(rank=0, ranks=2, seed=5, update=3):
    """What the two micro-batches of an update draw."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5))
    for parameter in model.parameters():
        parameter.set_value(paddle.ones_like(parameter))
    task, groups = DrawingTask(), [{"params": model.parameters(), "weight_decay": 0.0}]
    decays = {parameter.name: 0.0 for parameter in model.parameters()}
    step = TrainStep(
        task,
        model,
        FusedAdamW(decays, learning_rate=0.0, parameters=groups, weight_decay=0.0),
        TrainingPrecision(False, "float16"),
        seed=seed,
        samples_per_update=16 * ranks,
        accumulation_steps=2,
        gradient_clip=None,
        nan_guard=NonFiniteGuard(limit=9),
        on_host=False,
    )
    with acting_as(rank, ranks):
        step([{}, {}], StepPosition(1, update, 9), 1e-3)
    return task.drawn


def test_ranks_micro_batches_updates_and_seeds_drop_and_draw_other_numbers_and_a_repetition_the_same():
    draws = [*draw(), *draw(rank=1), *draw(update=4), *draw(seed=6)]
    assert len(set(draws)) == len(draws) == 8
    assert draw(rank=1) == draws[2:4]
    assert draw(ranks=1) == draws[:2]  # of the first rank, however many there are
