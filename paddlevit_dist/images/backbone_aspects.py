"""Aspects of tasks whose network uses the backbone of a classifier: log lines, and what is asked of the network."""

from pathlib import Path
from typing import Any

import paddle

from ..core.runtime.errors import UserError
from ..core.tasks.aspects import TaskAspect
from ..core.tasks.model import as_model
from ..core.tasks.model_factory import build_outline
from ..core.tasks.protocols import LogContributor, ModelChecking, ParameterGrouping, Recomputable
from .backbone_task import BackboneTask
from .data.quarantine import merge_quarantine

_BACKBONE = "backbone."  # prefix of the backbone's parameter names


class BackboneLog(TaskAspect, LogContributor):
    """Lists images that could not be read."""

    task: BackboneTask

    def finish_epoch(self) -> list[str]:
        """Merge the unreadable images of all ranks into one list; every rank must call this."""
        return merge_quarantine(self.task.replacements, Path(self.task.config.SAVE))


class BackboneModelCheck(TaskAspect, ModelChecking):
    """Checks the configured model."""

    task: BackboneTask

    def check_model(self) -> list[str]:
        """Build the model without memory for its weights, to check its options."""
        build_outline(lambda: self.task.create_network(self.task.num_classes or 1))
        return []


class BackboneGrouping(TaskAspect, ParameterGrouping):
    """Gives the backbone its learning rate, and chooses which parameters decay."""

    task: BackboneTask

    def decays(self, name: str, parameter: paddle.Tensor, exempt: set[str]) -> bool:
        """Return whether TRAIN.WEIGHT_DECAY applies: not to biases, norms and what the model exempts, unless to all."""
        if self.task.config.TRAIN.DECAY_ALL_PARAMETERS:
            return True
        return len(parameter.shape) > 1 and name not in exempt

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]]:
        """Group the trainable parameters by learning rate (backbone or rest) and weight decay."""
        decay, factor = self.task.config.TRAIN.WEIGHT_DECAY, self.task.config.TRAIN.BACKBONE_LR_FACTOR
        exempt = set(as_model(model).no_weight_decay())
        groups: dict[tuple[bool, bool], list[str]] = {}
        for name, parameter in model.named_parameters():
            if not parameter.stop_gradient:
                kind = name.startswith(_BACKBONE), self.decays(name, parameter, exempt)
                groups.setdefault(kind, []).append(name)
        later = self.task.config.TRAIN.BACKBONE_WARMUP_STEPS
        return [
            {
                "names": names,
                "weight_decay": decay if decays else 0.0,
                "learning_rate": factor if is_slow else 1.0,
                "second_warmup": later if is_slow else None,
            }
            for (is_slow, decays), names in groups.items()
        ]


class BackboneRecomputation(TaskAspect, Recomputable):
    """Recomputes the blocks of a network."""

    task: BackboneTask

    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        """Return the layers whose activations are recomputed; raise UserError if the model has none."""
        layers = as_model(model).recomputed_layers()
        if not layers:
            raise UserError(
                f"TRAIN.RECOMPUTE: {self.task.config.MODEL.NAME} has no layers to recompute; remove TRAIN.RECOMPUTE"
            )
        return layers
