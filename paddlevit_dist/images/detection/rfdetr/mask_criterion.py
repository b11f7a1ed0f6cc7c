"""RF-DETR Seg's losses of masks, at a few points of each, of all layers and groups of queries.

Sources: Kirillov et al., PointRend, CVPR 2020, arXiv 1912.08193, section 3.1 (points); Cheng et al., Mask2Former, CVPR
2022, arXiv 2112.01527, section 3.3 (matching and losses at points); the ``SetCriterion`` and ``HungarianMatcher`` of
roboflow/rf-detr.
"""

from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ....core.runtime import autocast
from ....core.runtime.errors import UserError
from ....core.runtime.transfers import constant, to_device
from ..detector import DetectionTargets, Outputs, single_or_double
from ..detr.criterion import QueryMatches
from ..rtdetr.criterion import Sums
from .criterion import GroupCriterion, softplus
from .masks import MaskVectors

_CELLS_PER_POINT = 16
_CANDIDATES = 3  # for each point of a loss
_UNCERTAIN = 0.75  # share of the points that are the least certain candidates


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
        places = np.arange(images * most)[:, None]
        truth = sample_nearest(masks, to_device(places), points.expand([images * most, number, 2])).astype(logits.dtype)
        truth = truth.reshape([images, most, number])
        scores = F.sigmoid(logits)
        entropy = softplus(logits).sum(axis=2, keepdim=True) - paddle.matmul(logits, truth, transpose_y=True)
        shared = paddle.matmul(scores, truth, transpose_y=True)
        total = scores.sum(axis=2, keepdim=True) + truth.sum(axis=2).unsqueeze(1)
        cost_mask, cost_dice = self.mask_costs
        costs = cost_mask * entropy / number + cost_dice * (1 - (2 * shared + 1) / (total + 1))
        return costs.reshape([images, self.groups, -1, most]).transpose([1, 0, 2, 3])

    def layer_sums(self, outputs: Outputs, heads: Any, targets: DetectionTargets, matches: QueryMatches) -> Sums:
        """Return sums over the batch and the groups of each part, (layers + 1,)."""
        sums = super().layer_sums(outputs, heads, targets, matches)
        pairs = list_pairs(matches, self.groups, heads.boxes.shape[2])
        with autocast.off():
            parts = [self.mask_sums(*head, targets.masks) for head in zip(heads.masks, pairs)]
        mask, dice = (paddle.stack(part) for part in zip(*parts))
        return {**sums, "mask": mask, "dice": dice}

    def mask_sums(
        self, head: MaskVectors, pairs: "MaskPairs", masks: paddle.Tensor
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
        points = self._choose_points(maps.detach(), max(height, height * width // _CELLS_PER_POINT))
        logits = sample_between(maps, points).squeeze(1)  # (n, points)
        truth = sample_nearest(masks, places, points).astype(logits.dtype)
        entropy = (softplus(logits) - logits * truth).mean(axis=1)
        scores = F.sigmoid(logits)
        shared, total = (scores * truth).sum(axis=1), scores.sum(axis=1) + truth.sum(axis=1)
        return entropy.sum(), (1 - (2 * shared + 1) / (total + 1)).sum()

    @paddle.no_grad()
    def _choose_points(self, maps: paddle.Tensor, number: int) -> paddle.Tensor:
        """Choose points of masks whose logits are (pairs, 1, height, width), as fractions, (pairs, number, 2)."""
        candidates = self.draw(len(maps), _CANDIDATES * number).astype(maps.dtype)
        certainty = sample_between(maps, candidates).squeeze(1).abs()
        uncertain = int(_UNCERTAIN * number)
        chosen = paddle.topk(certainty, uncertain, axis=1, largest=False)[1].unsqueeze(2).expand([-1, -1, 2])
        others = self.draw(len(maps), number - uncertain).astype(maps.dtype)
        return paddle.concat([paddle.take_along_axis(candidates, chosen, axis=1), others], axis=1)

    def draw(self, masks: int, number: int) -> paddle.Tensor:
        """Draw points x, y of masks as fractions, float32 (masks, number, 2); spread evenly, the same of all masks."""
        if self.random_samples:
            return paddle.rand([masks, number, 2])
        return constant(_spread_points, number).expand([masks, number, 2])


class MaskPairs(NamedTuple):
    """Pairs of a query and an object of one head, image by image, group by group, queries ascending."""

    images: np.ndarray  # int64 (pairs,)
    queries: np.ndarray  # int64 (pairs,), among the queries of all images and groups
    objects: np.ndarray  # int64 (pairs,), among the objects of all images, M of each


def list_pairs(matches: QueryMatches, groups: int, queries: int) -> list[MaskPairs]:
    """Return the pairs of each head of ``matches``, whose layers are groups of ``queries`` of heads."""
    heads = []
    for query_of, weight_of in zip(*(np.split(part, len(part) // groups) for part in matches[:2])):
        group, image, number = np.nonzero(weight_of)  # NaN too
        query = query_of[group, image, number]
        order = np.lexsort((query, group, image))
        group, image, number, query = (part[order] for part in (group, image, number, query))
        most = weight_of.shape[2]
        heads.append(MaskPairs(image, (image * groups + group) * queries + query, image * most + number))
    return heads


def sample_between(maps: paddle.Tensor, points: paddle.Tensor) -> paddle.Tensor:
    """Interpolate maps (N, dim, height, width) at points (N, n, 2), x, y as fractions: (N, dim, n).

    Cells at the border are repeated outside.
    """
    grid = (2 * points - 1).unsqueeze(2)
    return F.grid_sample(maps, grid, padding_mode="border", align_corners=False).squeeze(3)


def sample_nearest(masks: paddle.Tensor, places: paddle.Tensor, points: paddle.Tensor) -> paddle.Tensor:
    """Return the values (n, points) of masks (N, M, height, width) at points (n, points, 2), x, y as fractions.

    ``places``, int64 (n, 1), are positions among the masks of all images.
    """
    height, width = masks.shape[2:]
    column, row = (
        (points[..., axis] * side).astype("int64").clip(0, side - 1) for axis, side in ((0, width), (1, height))
    )
    indices = (places * height + row) * width + column
    return paddle.gather(masks.flatten(), indices.flatten()).reshape(indices.shape)


def _spread_points(number: int) -> np.ndarray:
    """Return points of Roberts' sequence, float32 (number, 2)."""
    steps = np.array([1, 1]) / 1.32471795724474602596 ** np.array([1, 2])
    return ((0.5 + np.arange(1, number + 1)[:, None] * steps) % 1).astype(np.float32)
