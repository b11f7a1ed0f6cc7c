"""One update of a model by the engine's own updater."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np
import paddle

from paddlevit_dist.contracts.task import Step, Task
from paddlevit_dist.engine.precision import Precision
from paddlevit_dist.engine.steps import Updater
from paddlevit_dist.parallel import data_parallel


def changes_of_an_update(task: Task, model: paddle.nn.Layer, batches: List[Dict[str, Any]], samples: int) -> Dict:
    """What plain SGD of rate 1 adds to each parameter of the model that learns, by name.

    Args:
        batches: the micro-batches of this rank, with their counts.
        samples: of the update, over all ranks.
    """
    before = {name: p.numpy().copy() for name, p in model.named_parameters() if not p.stop_gradient}
    learning = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    updater = Updater(
        task,
        data_parallel(model),
        paddle.optimizer.SGD(learning_rate=0.0, parameters=learning),
        Precision(False),
        seed=0,
        samples_per_update=samples,
        accumulation_steps=len(batches),
        gradient_clip=None,
    )
    updater(batches, Step(1, 0, 1), learning_rate=1.0)
    after: Dict[str, np.ndarray] = {name: parameter.numpy() for name, parameter in model.named_parameters()}
    return {name: after[name] - value for name, value in before.items()}
