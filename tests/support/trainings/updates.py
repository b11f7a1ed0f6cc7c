"""One update of a model by the engine's own updater."""

from typing import Any

import numpy as np
import paddle

from paddlevit_dist.core.distributed import data_parallel
from paddlevit_dist.core.engine import COUNTS, TrainStep
from paddlevit_dist.core.engine.fused_optimizers import PerParameterStep
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.core.tasks.task import Task
from support.waits import Waits, counted_waits


class PlainAdamW(PerParameterStep, paddle.optimizer.AdamW):
    """Paddle's AdamW, without the trial of a faster update at its first step."""


def update_one_by_one(optimizer: Any) -> Any:
    """The optimizer, which from now on updates one parameter after the other by Paddle's own update."""
    assert not optimizer._has_chosen
    optimizer._has_chosen = True
    return optimizer


def changes_of_an_update(task: Task, model: paddle.nn.Layer, batches: list[dict[str, Any]], samples: int) -> dict:
    """What plain SGD of rate 1 adds to each parameter of the model that learns, by name.

    Args:
        batches: the micro-batches of this rank, with their counts.
        samples: of the update, over all ranks.
    """
    before = {name: p.numpy().copy() for name, p in model.named_parameters() if not p.stop_gradient}
    learning = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    updater = TrainStep(
        task,
        data_parallel(model),
        paddle.optimizer.SGD(learning_rate=0.0, parameters=learning),
        TrainingPrecision(False),
        seed=0,
        samples_per_update=samples,
        accumulation_steps=len(batches),
        gradient_clip=None,
    )
    updater(batches, StepPosition(1, 0, 1), learning_rate=1.0)
    after: dict[str, np.ndarray] = {name: parameter.numpy() for name, parameter in model.named_parameters()}
    return {name: after[name] - value for name, value in before.items()}


def waits_of_an_update(task: Task, model: paddle.nn.Layer, collated: dict[str, Any], samples: int) -> Waits:
    """For what the host would wait on a GPU in an update by AdamW with one micro-batch, the second of a run.

    Args:
        collated: by the task, arrays still.
    """
    updater = TrainStep(
        task,
        model,
        PlainAdamW(parameters=[p for p in model.parameters() if not p.stop_gradient]),
        TrainingPrecision(False),
        seed=0,
        samples_per_update=samples,
        accumulation_steps=1,
        gradient_clip=1.0,
        on_host=False,
    )
    if task.traits.normalizers_per_sample is None:
        counts = task.loss_normalizers(collated)
        collated = {**collated, COUNTS: np.array([counts[name] for name in task.traits.normalizer_names], np.float64)}
    batch = {name: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for name, v in collated.items()}
    for update in range(2):
        with counted_waits() as waits:
            updater([dict(batch)], StepPosition(1, update, 2), learning_rate=1e-4)
    return waits
