"""Region proposal network.

Source: Ren et al., Faster R-CNN, 2015, section 3.1; on a pyramid, Lin et al., 2017, section 4.1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F
from paddle.vision.ops import nms

from ....core.runtime.transfers import constant, read
from ...models.layers import Conv2D
from ..boxes import box_iou, clip_boxes, decode_boxes, encode_boxes
from ..detector import DetectionTargets, normal, single_or_double, zeros
from .rules import MaskRcnnRules

POSITIVE, NEGATIVE, NEITHER = 1, 0, -1
_GOLDEN_RATIO = 0.6180339887498949  # fractional parts of its multiples are evenly distributed
_BELOW_1 = 1 - 2.0**-20  # float32 may round them to 1


class BoxTargets(NamedTuple):
    """Matches of n boxes with objects."""

    objects: paddle.Tensor  # int64 (n,), the object with the largest IoU for each box, the first of equal ones
    states: paddle.Tensor  # int32 (n,), ``POSITIVE``, ``NEGATIVE`` or ``NEITHER``


def match(overlap: paddle.Tensor, positive: float, negative: float, lowest: float | None = None) -> BoxTargets:
    """Match boxes to objects by their IoU. Source: Ren et al., Faster R-CNN, 2015, section 3.1.2.

    Args:
        overlap: (M, n), IoU of M objects, at least 1, with n boxes.
        positive: boxes with at least this IoU are positive.
        negative: boxes with a smaller IoU are negative.
        lowest: the boxes with an object's largest IoU, all of them if several are equal, are positive if it is at least
            this, even if they match another object; None: they are not. An object without an overlapping box has none;
            torchvision makes all boxes without overlap positive for it.
    """
    best, objects = overlap.max(axis=0), overlap.argmax(axis=0)  # (n,)
    states = paddle.full(best.shape, NEITHER, dtype="int32")
    states = paddle.where(best < negative, paddle.full_like(states, NEGATIVE), states)
    is_positive = best >= positive
    if lowest is not None:
        largest = overlap.max(axis=1, keepdim=True)  # (M, 1)
        is_eligible = paddle.logical_and(largest > 0, largest >= lowest)
        closest = paddle.logical_and(overlap == largest, is_eligible)  # (M, n)
        is_positive = paddle.logical_or(is_positive, closest.any(axis=0))
    return BoxTargets(objects, paddle.where(is_positive, paddle.full_like(states, POSITIVE), states))


class SampledBoxes(NamedTuple):
    """Sample of k = min(number, n) of n boxes, positive ones first."""

    boxes: paddle.Tensor  # int64 (k,), distinct
    is_positive: paddle.Tensor  # bool (k,)
    is_used: paddle.Tensor  # bool (k,); False for the last ones if too few boxes are positive or negative


def sample(states: paddle.Tensor, number: int, share: float, at_random: bool = True) -> SampledBoxes:
    """Sample positive boxes, at most ``share`` of ``number``, and fill up with negative ones, each equally likely.

    Samples come from Paddle's generator, which the engine seeds for each micro-batch; unless ``at_random``, the same
    states, int32 (n,) of ``match``, give the same, evenly distributed boxes on any rank. Shapes depend only on n, at
    least 1, so the host does not wait.
    """
    total = states.shape[0]
    number, most = min(number, total), min(int(number * share), total)
    if at_random:
        priorities = paddle.rand([total], dtype="float32")  # below 1
    else:
        priorities = ((paddle.arange(total, dtype="float64") * _GOLDEN_RATIO) % 1.0).astype("float32") * _BELOW_1
    excluded = paddle.full_like(priorities, -1.0)
    order = paddle.where(states == NEGATIVE, priorities, excluded)
    if most > 0:
        value, place = paddle.topk(paddle.where(states == POSITIVE, priorities, excluded), most)
        order = paddle.scatter(order, place, paddle.where(value >= 0, value + 2.0, order[place]))
    value, place = paddle.topk(order, number)
    return SampledBoxes(place, value >= 2.0, value >= 0)


_SHORTEST_SIDE_PX = 1e-3  # of a proposal


class ProposalHead(nn.Layer):
    """Predicts objectness and four numbers for each anchor of a position, with shared layers for all maps."""

    def __init__(self, channels: int, anchors: int):
        super().__init__()
        initial = {"weight_attr": normal(0.01), "bias_attr": zeros()}
        self.conv = nn.Sequential(nn.Sequential(Conv2D(channels, channels, 3, padding=1, **initial), nn.ReLU()))
        self.cls_logits = Conv2D(channels, anchors, 1, **{**initial, "bias_attr": zeros()})
        self.bbox_pred = Conv2D(channels, 4 * anchors, 1, **{**initial, "bias_attr": zeros()})

    def forward(self, x: paddle.Tensor):
        """Return logits (N, n) and changes (N, n, 4) of the n anchors of a map (N, channels, height, width)."""
        x, number = self.conv(x), x.shape[0]
        logits = self.cls_logits(x).transpose([0, 2, 3, 1]).reshape([number, -1])
        changes = self.bbox_pred(x).transpose([0, 2, 3, 1]).reshape([number, -1, 4])
        return single_or_double(logits), single_or_double(changes)


class ProposalNetwork(nn.Layer):
    """Proposes boxes from the maps of a pyramid; ``strides`` has one for each size of anchors."""

    def __init__(self, channels: int, strides: Sequence[int], rules: MaskRcnnRules):
        super().__init__()
        self.strides, self.rules = tuple(strides), rules
        self.head = ProposalHead(channels, len(rules.anchor_ratios))

    def forward(
        self, maps: Sequence[paddle.Tensor], sizes: paddle.Tensor, targets: DetectionTargets | None = None
    ) -> tuple[list[paddle.Tensor], dict[str, paddle.Tensor]]:
        """Return proposals from maps (N, channels, height, width) of each level, and anchors for the criterion.

        Proposals of each image are (n, 4) in pixels, best first, without gradients; n may be 0. Anchors are returned
        only with ``targets``, whose ``box_counts`` must be set. For S = min(``anchor_samples``, anchors) of each image
        they are ``anchor_logits``, ``anchor_positive`` (1 on an object, else 0) and ``anchor_shares``, one over the
        number of used anchors among the S, 0 for unused ones, all (N, S); ``anchor_changes`` and their targets
        ``anchor_offsets``, (N, S, 4), the latter 0 for anchors on no object.
        """
        anchors = [self._anchors(x, level) for level, x in enumerate(maps)]
        logits, changes = zip(*(self.head(x) for x in maps))
        boxes = self.propose(logits, changes, anchors, sizes, is_training=targets is not None)
        if targets is None:
            return boxes, {}
        together = paddle.concat(logits, axis=1), paddle.concat(changes, axis=1), paddle.concat(anchors)
        return boxes, self._sample(*together, targets)

    def _anchors(self, x: paddle.Tensor, level: int) -> paddle.Tensor:
        rules, (height, width) = self.rules, x.shape[2:]
        size, ratios = rules.anchor_sizes[level], tuple(rules.anchor_ratios)
        grid, stride = (height, width), self.strides[level]
        anchors = constant(build_level_anchors, grid, stride, size, ratios, rules.rounds_anchors)
        dtype = self.head.cls_logits.weight.dtype
        return anchors.astype("float64" if dtype == paddle.float64 else "float32")

    @paddle.no_grad()
    def propose(
        self,
        logits: Sequence[paddle.Tensor],
        changes: Sequence[paddle.Tensor],
        anchors: Sequence[paddle.Tensor],
        sizes: paddle.Tensor,
        is_training: bool,
    ) -> list[paddle.Tensor]:
        """Return the proposals of each image."""
        rules = self.rules
        before = rules.proposals_before if is_training else rules.evaluated_before
        after = rules.proposals_after if is_training else rules.evaluated_after
        level_proposals = [_select_top_anchors(*parts, before) for parts in zip(logits, changes, anchors)]
        scores = paddle.concat([level_scores for level_scores, _ in level_proposals], axis=1)  # (N, k)
        boxes = clip_boxes(paddle.concat([rows for _, rows in level_proposals], axis=1), sizes)  # (N, k, 4)
        levels = [paddle.full([part.shape[1]], level, dtype="int64") for level, (part, _) in enumerate(level_proposals)]
        levels = paddle.concat(levels)  # (k,)
        sides = boxes[:, :, 2:] - boxes[:, :, :2]
        # Values that are not finite, in a diverging run, are not proposals; the difference is NaN.
        numbers = scores + sides.sum(axis=2)
        is_valid = paddle.logical_and((sides >= _SHORTEST_SIDE_PX).all(axis=2), numbers - numbers == 0)  # (N, k)
        _, order = paddle.topk(paddle.where(is_valid, scores, paddle.full_like(scores, -1.0)), scores.shape[1], axis=1)
        results = []
        for image, num_valid in enumerate(read(is_valid.astype("int64").sum(axis=1))[0].tolist()):
            if not num_valid:
                results.append(paddle.zeros([0, 4], dtype=boxes.dtype))
                continue
            places = order[image, :num_valid]  # best first; invalid ones come last
            image_boxes = paddle.gather(boxes[image], places)
            selected = suppress(image_boxes, paddle.gather(levels, places), rules.proposal_overlap, after)
            results.append(paddle.gather(image_boxes, selected))
        return results

    def _sample(
        self, logits: paddle.Tensor, changes: paddle.Tensor, anchors: paddle.Tensor, targets: DetectionTargets
    ) -> dict[str, paddle.Tensor]:
        """Sample anchors of each image with their targets."""
        rules, counts = self.rules, targets.require_box_counts()
        parts: dict[str, list[paddle.Tensor]] = {}
        for image in range(logits.shape[0]):
            objects = targets.boxes[image, : max(int(counts[image]), 1)].astype(anchors.dtype)
            with paddle.no_grad():
                matches = match(
                    box_iou(objects, anchors), rules.positive_overlap, rules.negative_overlap, rules.lowest_overlap
                )
                chosen, is_positive, is_used = sample(
                    matches.states, rules.anchor_samples, rules.anchor_share, rules.random_samples
                )
                references = paddle.gather(anchors, chosen)
                offsets = encode_boxes(paddle.gather(objects, paddle.gather(matches.objects, chosen)), references)
                is_used_float = is_used.astype(anchors.dtype)
                image_values = {
                    "anchor_positive": is_positive.astype(anchors.dtype),
                    "anchor_shares": is_used_float / paddle.clip(is_used_float.sum(), min=1.0),
                    "anchor_offsets": paddle.where(is_positive.unsqueeze(1), offsets, paddle.zeros_like(offsets)),
                }
            image_values["anchor_logits"] = paddle.gather(logits[image], chosen)
            image_values["anchor_changes"] = paddle.gather(changes[image], chosen)
            for name, value in image_values.items():
                parts.setdefault(name, []).append(value)
        return {part_name: paddle.stack(values) for part_name, values in parts.items()}


def _select_top_anchors(logits: paddle.Tensor, changes: paddle.Tensor, anchors: paddle.Tensor, most: int):
    """Return scores (N, k) and boxes (N, k, 4) of the best anchors of one map."""
    number, total = logits.shape
    most = min(most, total)
    scores, places = paddle.topk(logits, most, axis=1)  # (N, k)
    first = paddle.arange(number, dtype=places.dtype).unsqueeze(1) * total
    changes = paddle.gather(changes.reshape([-1, 4]), (places + first).reshape([-1]))
    boxes = decode_boxes(changes, paddle.gather(anchors, places.reshape([-1])))
    return F.sigmoid(scores), boxes.reshape([number, most, 4])


def build_base_anchors(size: float, ratios: Sequence[float], rounds: bool) -> np.ndarray:
    """Return boxes around (0, 0) of area ``size`` squared with ``ratios`` of height to width, float64 (ratios, 4).

    Boxes are x0, y0, x1, y1. Source: Ren et al., Faster R-CNN, 2015, section 3.1.1; torchvision rounds the corners.
    """
    root = np.sqrt(np.asarray(ratios, dtype=np.float64))
    half = 0.5 * size * np.stack([1 / root, root], axis=1)  # (ratios, 2): width, height
    boxes = np.concatenate([-half, half], axis=1)
    return np.round(boxes) if rounds else boxes


def build_level_anchors(
    grid: tuple[int, int], stride: int, size: float, ratios: tuple[float, ...], rounds: bool
) -> np.ndarray:
    """Return the anchors of a map, float32 (height * width * ratios, 4), row by row, position by position.

    Args:
        grid: height and width of the map.
        stride: pixels from one position to the next; the first one's anchors are around (0, 0).
        size: side of the square anchor.
        ratios: ratios of height to width.
        rounds: whether corners are rounded.
    """
    base_anchors = build_base_anchors(size, ratios, rounds)
    rows, columns = np.meshgrid(np.arange(grid[0]) * stride, np.arange(grid[1]) * stride, indexing="ij")
    centers = np.stack([columns, rows, columns, rows], axis=-1)  # (height, width, 4)
    return (centers[:, :, None, :] + base_anchors).reshape(-1, 4).astype(np.float32)


def suppress(boxes: paddle.Tensor, groups: paddle.Tensor, overlap: float, most: int) -> paddle.Tensor:
    """Apply greedy non-maximum suppression in each group, and return at most ``most`` positions, int64, best first.

    A box is removed if its IoU with a better remaining one exceeds ``overlap``. On a GPU the host waits for the result:
    Paddle selects there, from a table of overlaps. ``boxes`` are (n, 4), finite, best first, ``groups`` integers (n,),
    from 0.
    """
    if boxes.shape[0] == 0:  # Paddle 2.6 fails
        return paddle.zeros([0], dtype="int64")
    boxes = boxes.detach().astype("float64")
    # Boxes of different groups are moved apart, in float64, so that overlaps keep 12 digits.
    side = boxes.max() - boxes.min() + 1.0
    return nms(boxes + (groups.astype("float64") * side).unsqueeze(1), overlap)[:most]
