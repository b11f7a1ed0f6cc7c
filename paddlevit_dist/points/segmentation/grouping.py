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
        slow = None if factor == 1.0 else re.compile(rf"(?:{layers})\.")
        groups: dict[tuple[bool, float], list[str]] = {}
        for name, parameter in model.named_parameters():
            if not parameter.stop_gradient:
                is_exempt = len(parameter.shape) <= 1 or name in interface.no_weight_decay()
                rate = 1.0 if slow is None or slow.match(name) is None else factor
                groups.setdefault((is_exempt, rate), []).append(name)
        decay = config.TRAIN.WEIGHT_DECAY
        return [
            {"names": names, "weight_decay": 0.0 if is_exempt else decay, "learning_rate": rate}
            for (is_exempt, rate), names in sorted(groups.items())
        ]
