"""Learning rates of a network's blocks."""

import re
from typing import Any

import paddle

from ...core.runtime.errors import UserError
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.model import as_model
from ...core.tasks.protocols import ParameterGrouping
from .task import SemanticSegmentation


class BlockGrouping(TaskAspect, ParameterGrouping):
    """Gives the blocks of a network a learning rate of their own."""

    task: SemanticSegmentation

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]]:
        """Group the parameters by learning rate, blocks or rest; UserError: a network has no blocks."""
        factor, layers = self.task.config.POINTS.BLOCK_LR_FACTOR, as_model(model).layer_names
        names = [name for name, _ in model.named_parameters()]
        if factor == 1.0:
            return [{"names": names}]
        if layers is None:
            name = self.task.config.MODEL.NAME
            raise UserError(f"POINTS.BLOCK_LR_FACTOR: {name} has no numbered blocks; remove this key")
        slow = [name for name in names if re.match(rf"(?:{layers})\.", name)]
        return [{"names": slow, "learning_rate": factor}, {"names": [name for name in names if name not in set(slow)]}]
