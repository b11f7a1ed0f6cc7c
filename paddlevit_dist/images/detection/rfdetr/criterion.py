"""RF-DETR's losses: classes weighted by scores and overlaps, and boxes, of all layers and groups of queries.

Sources: Cai et al., Align-DETR, arXiv 2304.07527, section 3.2 (classes); Chen et al., Group DETR, ICCV 2023, arXiv
2207.13085 (groups); the ``SetCriterion`` of roboflow/rf-detr.
"""

from typing import Any

import paddle
from paddle.nn import functional as F

from ...mask_queries.matching import QueryMatches
from ...mask_queries.points import softplus
from ..detector import DetectionTargets, Outputs
from ..rtdetr.criterion import HeadOutputs, MatchedTargets, Sums, VarifocalCriterion, stack_heads

_ALPHA, _GAMMA = 0.25, 2.0  # exponents of a matched query's score, and of others; also in the focal cost
_LEAST = 0.01  # smallest target of a matched query


class GroupCriterion(VarifocalCriterion):
    """RT-DETR's terms with another loss of classes, matched for each group of ``queries``, divided by all pairs."""

    def __init__(self, num_classes: int, queries: int, layers: int, groups: int, **options: Any):
        super().__init__(num_classes, queries, layers, **options)
        self.groups = groups

    def heads(self, outputs: Outputs) -> HeadOutputs:
        """Return the heads matched with objects: the layers' and the encoder's selection, groups of each in order."""
        parts = []
        for part in stack_heads(outputs, "encoder"):
            layers, images, queries, width = part.shape
            part = part.reshape([layers, images, self.groups, queries // self.groups, width])
            parts.append(part.transpose([0, 2, 1, 3, 4]).flatten(0, 1))
        return HeadOutputs(*parts)

    def match_scores(self, logits: paddle.Tensor) -> paddle.Tensor:
        """Return the decrease of focal loss if a query is of a class (Lin et al., ICCV 2017, equation 5)."""
        score = F.sigmoid(logits)
        decrease = (1 - _ALPHA) * score**_GAMMA * softplus(logits)
        return decrease - _ALPHA * (1 - score) ** _GAMMA * softplus(-logits)

    def layer_sums(
        self, outputs: Outputs, heads: HeadOutputs, targets: DetectionTargets, matches: QueryMatches
    ) -> Sums:
        """Return sums over the batch and the groups of each part, (layers + 1,)."""
        sums = super().layer_sums(outputs, heads, targets, matches)
        return {name: value.reshape([-1, self.groups]).sum(axis=1) for name, value in sums.items()}

    def class_sums(self, heads: HeadOutputs, matched: MatchedTargets, weights: paddle.Tensor | None = None) -> Sums:
        """Return ``class``, the loss of classes, and ``iou``, the IoU of matched boxes, (heads,) each.

        The target of an object's class is its query's score to the power 1 / 4 times the IoU to the power 3 / 4. The
        negative term, log(1 - score), has the square of the score as weight, and for an object's class 1 - target.
        """
        with paddle.no_grad():
            overlap = self.overlaps(heads, matched)
            one_hot = F.one_hot(matched.classes, self.num_classes + 1)[..., :-1].astype(heads.logits.dtype)
            target = F.sigmoid(heads.logits) ** _ALPHA * (overlap ** (1 - _ALPHA)).unsqueeze(-1)
            target = paddle.clip(target, min=_LEAST) * one_hot
        negative_weights = F.sigmoid(heads.logits) ** _GAMMA * (1 - one_hot) + (one_hot - target)
        losses = negative_weights * softplus(heads.logits) + target * softplus(-heads.logits)
        # in two steps: a CPU adds the values of one step one after the other
        return {"class": losses.sum(axis=3).sum(axis=[1, 2]), "iou": overlap.sum(axis=[1, 2])}
