"""RF-DETR Seg's losses of masks, at a few points of each, of all layers and groups of queries.

Sources: Kirillov et al., PointRend, CVPR 2020, arXiv 1912.08193, section 3.1 (points); Cheng et al., Mask2Former, CVPR
2022, arXiv 2112.01527, section 3.3 (matching and losses at points); the ``SetCriterion`` and ``HungarianMatcher`` of
roboflow/rf-detr.
"""

from typing import Any, NamedTuple

import numpy as np
import paddle

from ....core.runtime import autocast
from ....core.runtime.errors import UserError
from ....core.runtime.transfers import to_device
from ...mask_queries.matching import QueryMatches, QueryPairs, list_query_pairs
from ...mask_queries.points import (
    MaskStack,
    PointRules,
    compare_at_points,
    draw_points,
    sample_between,
    sample_truth,
    sum_at_points,
)
from ..detector import DetectionTargets, Outputs, single_or_double
from ..rtdetr.criterion import Sums
from .criterion import GroupCriterion
from .masks import MaskVectors

_CELLS_PER_POINT = 16
_RULES = PointRules(repeats_border=True, is_soft=False)


class MaskedHeads(NamedTuple):
    """Outputs of L heads, each with G groups of Q queries, for N images, in float32 or float64."""

    logits: paddle.Tensor  # (L * G, N, Q, classes)
    boxes: paddle.Tensor  # (L * G, N, Q, 4)
    masks: list[MaskVectors]  # of each head, with G * Q queries


class MaskGroupCriterion(GroupCriterion):
    """The terms of ``GroupCriterion``, and of masks ``mask``, cross-entropy, and ``dice``, 1 - Dice.

    Both are of points instead of all cells: three quarters are where a mask is least certain, the others anywhere. The
    matching compares masks at other points, the same for all queries and objects of a head. Without
    ``random_samples``, points are evenly spread, so that the losses of an image do not depend on other images.
    """

    parts = ("class", "box", "giou", "mask", "dice")

    def __init__(
        self,
        *sizes: int,
        mask_weight: float = 5.0,
        dice_weight: float = 5.0,
        cost_mask: float = 5.0,
        cost_dice: float = 5.0,
        random_samples: bool = True,
        **options: Any,
    ):
        super().__init__(*sizes, **options)
        self.weights.update(mask=mask_weight, dice=dice_weight)
        self.mask_costs, self.random_samples = (cost_mask, cost_dice), random_samples

    def heads(self, outputs: Outputs) -> Any:
        """Return the heads matched with objects: the layers' and the encoder's selection, groups of each in order."""
        plain, number = super().heads(outputs), len(outputs["layer_logits"]) + 1
        masks = [MaskVectors(*(outputs[f"mask_{name}_{i}"] for name in MaskVectors._fields)) for i in range(number)]
        return MaskedHeads(*plain, [MaskVectors(*map(single_or_double, head)) for head in masks])

    def matches(self, heads: Any, targets: DetectionTargets) -> QueryMatches:
        """Match all heads with objects; the host waits for the device only here."""
        if targets.masks is None:
            raise UserError(
                "RF-DETR Seg learns masks, but these data have only boxes: use a model without masks, such as "
                "rfdetr_nano"
            )
        objects = self.object_values(targets, heads.logits.dtype)
        with autocast.off():
            costs = paddle.concat([self.compare_masks(head, targets.masks) for head in heads.masks])
            return self.match(heads.logits, heads.boxes, objects, targets, costs)

    @paddle.no_grad()
    def compare_masks(self, head: MaskVectors, masks: paddle.Tensor) -> paddle.Tensor:
        """Return the costs of masks, (groups, N, queries, M), of a head and objects' masks, uint8 (N, M, H, W)."""
        images, most = masks.shape[:2]
        height, width = head.cells.shape[1:3]
        points = self.draw(1, max(height * width // _CELLS_PER_POINT, 1)).astype(head.cells.dtype)
        number = points.shape[1]
        cells = sample_between(
            head.cells.transpose([0, 3, 1, 2]), points.expand([images, number, 2])
        )  # (N, dim, points)
        logits = paddle.matmul(head.queries, cells) + head.bias  # (N, groups * queries, points)
        places = to_device(np.arange(images * most)[:, None])
        everywhere = points.expand([images * most, number, 2])
        truth = sample_truth(MaskStack(masks), places, everywhere, _RULES.is_soft).astype(logits.dtype)
        costs = compare_at_points(logits, truth.reshape([images, most, number]), *self.mask_costs)
        return costs.reshape([images, self.groups, -1, most]).transpose([1, 0, 2, 3])

    def layer_sums(self, outputs: Outputs, heads: Any, targets: DetectionTargets, matches: QueryMatches) -> Sums:
        """Return sums over the batch and the groups of each part, (layers + 1,)."""
        sums = super().layer_sums(outputs, heads, targets, matches)
        pairs = list_query_pairs(matches, self.groups, heads.boxes.shape[2])
        with autocast.off():
            parts = [self.mask_sums(*head, targets.masks) for head in zip(heads.masks, pairs)]
        mask, dice = (paddle.stack(part) for part in zip(*parts))
        return {**sums, "mask": mask, "dice": dice}

    def mask_sums(
        self, head: MaskVectors, pairs: QueryPairs, masks: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the sums over a head's pairs of the cross-entropy and of 1 - Dice, see ``point_sums``."""
        if not len(pairs.images):  # every parameter gets a gradient on every rank
            nothing = 0.0 * (head.queries.sum() + head.cells.sum() + head.bias.sum())
            return nothing, nothing
        rows = to_device(pairs.queries)
        queries, bias = (paddle.gather(part.flatten(0, 1), rows) for part in (head.queries, head.bias))  # (pairs, ...)
        images, counts = np.unique(pairs.images, return_counts=True)
        parts, cells = paddle.split(queries, counts.tolist()), paddle.unbind(head.cells.flatten(1, 2))  # (cells, dim)
        products = [paddle.matmul(part, cells[image], transpose_y=True) for part, image in zip(parts, images.tolist())]
        maps = (paddle.concat(products) + bias).reshape([-1, 1, *head.cells.shape[1:3]])
        return self.point_sums(maps, to_device(pairs.objects[:, None]), masks)

    def point_sums(
        self, maps: paddle.Tensor, places: paddle.Tensor, masks: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the sums over masks of the cross-entropy and of 1 - Dice at points, scalars.

        Args:
            maps: logits, (n, 1, height, width).
            places: int64 (n, 1), position of each mask's object among the objects of all images.
            masks: of the objects, uint8 (N, M, H, W).
        """
        height, width = maps.shape[2:]
        number = max(height, height * width // _CELLS_PER_POINT)
        return sum_at_points(maps, places, MaskStack(masks), number, _RULES, self.draw)

    def draw(self, masks: int, number: int) -> paddle.Tensor:
        """Draw points of masks as fractions, see ``draw_points``."""
        return draw_points(masks, number, self.random_samples)
