"""How a network that segments pictures learns: cross-entropy, and what else is configured, over the labelled pixels."""

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ...contracts.task import Step, TaskTraining, Term
from ...runtime import autocast
from ..transforms.on_device import Normaliser
from .data.segmentation_dataset import IGNORED


class SegmentationTraining(TaskTraining):
    """The losses of a segmenter."""

    count_names = ("loss", "auxiliary")

    normaliser: Normaliser

    def counts(self, batch: dict[str, Any]) -> dict[str, int]:
        labelled = int(np.count_nonzero(batch["labels"] != IGNORED))
        return {"loss": labelled, "auxiliary": labelled}

    def train_step(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: Step) -> dict[str, Term]:
        outputs = model(self.normaliser(batch["images"]))
        main, *auxiliary = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        labels = batch["labels"].astype("int64")  # (N, H, W)
        count = (labels != IGNORED).astype("float32").sum()
        terms = {"loss": Term(_cross_entropy(upsampled(main, labels.shape[-2:]), labels), count)}
        for logits in auxiliary:
            weight = getattr(model, "_layers", model).auxiliary_weight
            terms["auxiliary"] = Term(_cross_entropy(upsampled(logits, labels.shape[-2:]), labels), count, weight)
        return terms

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]] | None:
        """The backbone's parameters, which learn at a rate of their own, and all others; no decay on norms, biases and
        what the model exempts."""
        decay, factor = self.config.TRAIN.WEIGHT_DECAY, self.config.TRAIN.BACKBONE_LR_FACTOR
        exempt = set(model.no_weight_decay())
        backbone = {id(parameter) for parameter in model.pretrained_part.parameters()}
        groups: dict[tuple[bool, bool], list[str]] = {}
        for name, parameter in model.named_parameters():
            if not parameter.stop_gradient:
                is_still = len(parameter.shape) <= 1 or name in exempt
                groups.setdefault((id(parameter) in backbone, is_still), []).append(name)
        return [
            {"names": names, "weight_decay": 0.0 if is_still else decay, "learning_rate": factor if is_slow else 1.0}
            for (is_slow, is_still), names in groups.items()
        ]


def upsampled(logits: paddle.Tensor, size: Any) -> paddle.Tensor:
    """float32 (N, classes, *size): bilinear between the centres of pixels. It is made float32 before it becomes large:
    one large tensor, and not two."""
    with autocast.off():
        return F.interpolate(logits.astype("float32"), size=list(size), mode="bilinear", align_corners=False)


def _cross_entropy(logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    with autocast.off():
        return F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum", axis=1)
