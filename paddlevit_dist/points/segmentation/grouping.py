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
        """Group the trainable parameters by learning rate (blocks or rest) and weight decay."""
        config, interface = self.task.config, as_model(model)
        factor, layers = config.POINTS.BLOCK_LR_FACTOR, interface.layer_names
        if factor != 1.0 and layers is None:
            raise UserError(f"POINTS.BLOCK_LR_FACTOR: {config.MODEL.NAME} has no numbered blocks; remove this key")
        is_of_block = re.compile(rf"(?:{layers})\.").match if factor != 1.0 else lambda name: None
        groups: dict[tuple[bool, bool], list[str]] = {}
        for name, parameter in model.named_parameters():
            if not parameter.stop_gradient:
                decays = len(parameter.shape) > 1 and name not in interface.no_weight_decay()
                groups.setdefault((not decays, is_of_block(name) is not None), []).append(name)
        return [
            {
                "names": names,
                "weight_decay": 0.0 if is_exempt else config.TRAIN.WEIGHT_DECAY,
                "learning_rate": factor if is_slow else 1.0,
            }
            for (is_exempt, is_slow), names in sorted(groups.items())
        ]
