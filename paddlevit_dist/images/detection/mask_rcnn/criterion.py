"""Mask R-CNN's losses."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple, Union

import numpy as np
import paddle
from paddle.nn import functional as F

from ....contracts.task import Term
from ..detector import Criterion, Outputs, Targets

NAMES = ("objectness", "anchor_boxes", "classes", "boxes", "masks")


class MaskRcnnCriterion(Criterion):
    """Objectness and boxes of the anchors, classes, boxes and masks of the regions, all of weight 1 but the classes.

    With the normaliser "global" each term is the mean over a picture's samples (256 anchors, 512 regions, all regions
    on objects for masks; fewer where there are fewer), then over all pictures of the update: whoever has which picture
    on how many devices, the loss is the same for the same samples. torchvision ("reference") takes the mean over the
    samples of each device instead. Both are equal with one picture a device; with more, wherever all pictures have
    their full number of samples, which leaves the masks, in which "reference" weighs pictures by their regions.

    Args:
        anchor_beta, box_beta: where the loss of a regression turns from a square to a line; see ``Rules``.
        has_masks: whether the network has masks.
        normaliser: "global" or "reference".
        class_weight: of the regions' classes; 1 in the paper.

    Source: He et al., Mask R-CNN, 2017, section 3; Girshick, Fast R-CNN, 2015, equations 1 to 3.
    """

    def __init__(
        self,
        anchor_beta: float = 1 / 9,
        box_beta: float = 1 / 9,
        has_masks: bool = True,
        normaliser: str = "global",
        class_weight: float = 1.0,
    ):
        super().__init__(normaliser)
        self.anchor_beta, self.box_beta = anchor_beta, box_beta
        self.terms_by_name: Tuple[str, ...] = NAMES if has_masks else NAMES[:-1]
        self.weights = {name: class_weight if name == "classes" else 1.0 for name in self.terms_by_name}
        # The engine asks for one count at least; under "reference" each term brings its own.
        self.count_names = self.terms_by_name if self.is_global else ("pictures",)

    def counts(self, batch: Mapping[str, np.ndarray]) -> Dict[str, Union[int, float]]:
        """The number of pictures, for each term."""
        return dict.fromkeys(self.count_names, len(batch["labels"]))

    def terms(self, outputs: Outputs, targets: Targets) -> Dict[str, Term]:
        """The terms of what ``MaskRCNN.forward`` returned with targets."""
        of_anchors = F.binary_cross_entropy_with_logits(
            outputs["anchor_logits"], outputs["anchor_positive"], reduction="none"
        )  # (N, S)
        of_regions = F.cross_entropy(outputs["region_logits"], outputs["region_labels"], reduction="none")
        anchor_boxes = smooth_l1(outputs["anchor_changes"], outputs["anchor_offsets"], self.anchor_beta)  # (N, S)
        boxes = smooth_l1(outputs["region_changes"], outputs["region_offsets"], self.box_beta)  # (n,)
        is_object = (outputs["region_labels"] > 0).astype(boxes.dtype)
        losses: Dict[str, Any] = {
            "objectness": (of_anchors, outputs["anchor_shares"]),
            "anchor_boxes": (anchor_boxes * outputs["anchor_positive"], outputs["anchor_shares"]),
            "classes": (of_regions.reshape([-1]), outputs["region_shares"]),
            "boxes": (boxes * is_object, outputs["region_shares"]),
        }
        if "masks" in self.terms_by_name:
            of_masks = F.binary_cross_entropy_with_logits(
                outputs["mask_logits"], outputs["mask_targets"], reduction="none"
            ).mean(axis=[1, 2])  # (p,)
            losses["masks"] = (of_masks, outputs["mask_shares"])
        pictures = outputs["anchor_logits"].shape[0]
        return {
            name: self._term(*losses[name], pictures)._replace(weight=self.weights[name]) for name in self.terms_by_name
        }

    def _term(self, losses: paddle.Tensor, shares: paddle.Tensor, pictures: int) -> Term:
        if self.is_global:
            return Term((losses * shares).sum(), pictures)
        used = (shares > 0).astype(losses.dtype)
        return Term((losses * used).sum(), used.sum())


def smooth_l1(changes: paddle.Tensor, wanted: paddle.Tensor, beta: float) -> paddle.Tensor:
    """Sum over the last axis of x^2 / (2 beta) where |x| < beta, else |x| - beta / 2, of x = changes - wanted."""
    distance = (changes - wanted).abs()
    if beta > 0:
        near = 0.5 * distance * distance / beta
        distance = paddle.where(distance < beta, near, distance - 0.5 * beta)
    return distance.sum(axis=-1)
