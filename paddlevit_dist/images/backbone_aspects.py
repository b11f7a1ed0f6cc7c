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
    """Gives the backbone its learning rate."""

    task: BackboneTask

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]]:
        """Group the parameters by learning rate, backbone or rest; all decay with TRAIN.DECAY_ALL_PARAMETERS."""
        train = self.task.config.TRAIN
        groups: dict[bool, list[str]] = {True: [], False: []}
        for name, _ in model.named_parameters():
            groups[name.startswith(_BACKBONE)].append(name)
        slow = {"learning_rate": train.BACKBONE_LR_FACTOR, "second_warmup": train.BACKBONE_WARMUP_STEPS}
        decay = {"weight_decay": train.WEIGHT_DECAY} if train.DECAY_ALL_PARAMETERS else {}
        return [{"names": groups[True], **slow, **decay}, {"names": groups[False], **decay}]


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
