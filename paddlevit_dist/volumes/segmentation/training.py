"""How a network that segments volumes learns: cross-entropy and Dice loss, also of lower resolutions."""

import math
from typing import Any

import numpy as np
import paddle

from ...contracts.task import Step, TaskTraining, Term
from ...labelling.losses import dice_losses, summed_cross_entropy
from ...runtime import autocast
from .dataset import IGNORED


class VolumeSegmentationTraining(TaskTraining):
    """The losses: cross-entropy over the labelled voxels of all ranks and micro-batches, and the Dice loss of each
    class but the background in each crop where it occurs.

    With deep supervision level k, of half the resolution of level k - 1, has both losses with the weight 1 / 2^k, and
    weights sum up to 1; its labels are those of every 2^k-th voxel.

    Source: F. Isensee et al., 2021, "nnU-Net: a self-configuring method for deep learning-based biomedical image
    segmentation", Nature Methods 18, supplementary note 2. There Dice is of all crops of a batch, or of each crop and
    class whether it occurs or not.
    """

    config: Any
    class_names: list[str]

    @property
    def supervised(self) -> int:
        """Levels below the first that have a loss: all of the way up but the coarsest."""
        volumes = self.config.VOLUMES
        return max(0, volumes.UNET_DEPTH - 2) if volumes.DEEP_SUPERVISION else 0

    @property
    def count_names(self) -> tuple[str, ...]:  # type: ignore[override] # they depend on the configuration
        sorts = ("cross_entropy", "dice") if self.config.VOLUMES.DICE_WEIGHT else ("cross_entropy",)
        return tuple(named(sort, level) for level in range(self.supervised + 1) for sort in sorts)

    def counts(self, batch: dict[str, Any]) -> dict[str, int]:
        numbers = {}
        for level in range(self.supervised + 1):
            labels = at_level(batch["labels"], level)
            of_crops = np.stack([np.bincount(row.ravel(), minlength=IGNORED + 1)[:IGNORED] for row in labels])
            numbers[named("cross_entropy", level)] = int(of_crops.sum())
            numbers[named("dice", level)] = int(np.count_nonzero(of_crops[:, 1:]))
        return {name: numbers[name] for name in self.count_names}

    def expected_losses(self) -> dict[str, float]:
        return {"cross_entropy": math.log(len(self.class_names))}

    def train_step(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: Step) -> dict[str, Term]:
        outputs = model(batch["volume"])
        outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        total = sum(0.5**level for level in range(len(outputs)))
        terms = {}
        with autocast.off():
            for level, maps in enumerate(outputs):
                labels = at_level(batch["labels"], level).astype("int64").flatten(1)  # (N, voxels)
                logits = maps.astype("float32").flatten(2)  # (N, classes, voxels)
                weight, labelled = 0.5**level / total, (labels != IGNORED).astype("float32").sum()
                loss = summed_cross_entropy(logits, labels, IGNORED, 1)
                terms[named("cross_entropy", level)] = Term(loss, labelled, weight)
                if self.config.VOLUMES.DICE_WEIGHT:
                    dice = dice_losses(logits, labels, IGNORED, 1)
                    terms[named("dice", level)] = Term(*dice, weight * self.config.VOLUMES.DICE_WEIGHT)
        return terms


def named(sort: str, level: int) -> str:
    """The name of a term of the loss."""
    return sort if not level else f"{sort} 1/{2**level}"


def at_level(labels: Any, level: int) -> Any:
    """Every 2**level-th voxel of labels (N, depth, height, width)."""
    step = 2**level
    return labels[:, ::step, ::step, ::step]
