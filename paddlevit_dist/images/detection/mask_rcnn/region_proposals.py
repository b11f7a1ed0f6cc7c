"""Which places of an image are worth a closer look: the region proposal network.

Source: Ren et al., Faster R-CNN, 2015, section 3.1; on a pyramid, Lin et al., 2017, section 4.1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F
from paddle.vision.ops import nms

from ....runtime.transfers import constant, read
from ...models.layers import Conv2D
from ..boxes import inside, move_boxes, offsets, overlaps
from ..detector import DetectionTargets, normal, single_or_double, zeros
from ..variants import MaskRcnnRules

POSITIVE, NEGATIVE, NEITHER = 1, 0, -1
_GOLDEN_RATIO = 0.6180339887498949  # its multiples, without their whole parts, are evenly distributed
_BELOW_1 = 1 - 2.0**-20  # in float32 they may be rounded to 1


class BoxTargets(NamedTuple):
    """Targets that n boxes are to learn.

    Attributes:
        objects: int64 (n,), the object that each overlaps most, the first where several are equal.
        states: int32 (n,), ``POSITIVE``, ``NEGATIVE`` or ``NEITHER``.
    """

    objects: paddle.Tensor
    states: paddle.Tensor


def match(overlap: paddle.Tensor, positive: float, negative: float, lowest: float | None = None) -> BoxTargets:
    """Match boxes to objects by their IoU.

    Args:
        overlap: (M, n) of M objects, at least 1, with n boxes.
        positive: a box with at least this is positive.
        negative: a box with less than this is negative.
        lowest: the boxes that overlap an object most, all of them where several are equal, are positive if they have
            at least this, though another object may be theirs; None: none are. An object that overlaps no box has
            none: in torchvision it makes all boxes positive that overlap nothing.

    Source: Ren et al., Faster R-CNN, 2015, section 3.1.2.
    """
    best, objects = overlap.max(axis=0), overlap.argmax(axis=0)  # (n,)
    states = paddle.full(best.shape, NEITHER, dtype="int32")
    states = paddle.where(best < negative, paddle.full_like(states, NEGATIVE), states)
    is_positive = best >= positive
    if lowest is not None:
        most = overlap.max(axis=1, keepdim=True)  # (M, 1)
        wanted = paddle.logical_and(most > 0, most >= lowest)
        closest = paddle.logical_and(overlap == most, wanted)  # (M, n)
        is_positive = paddle.logical_or(is_positive, closest.any(axis=0))
    return BoxTargets(objects, paddle.where(is_positive, paddle.full_like(states, POSITIVE), states))


class SampledBoxes(NamedTuple):
    """k = min(number, n) of n boxes, the positive ones first.

    Attributes:
        boxes: int64 (k,), distinct.
        is_positive: bool (k,).
        is_used: bool (k,); False for the last ones, where there are fewer positive and negative boxes than wanted.
    """

    boxes: paddle.Tensor
    is_positive: paddle.Tensor
    is_used: paddle.Tensor


def sample(states: paddle.Tensor, number: int, share: float, at_random: bool = True) -> SampledBoxes:
    """Draw positive boxes, up to ``share`` of ``number``, and fill up with negative ones, each equally likely.

    The draw comes from Paddle's generator, which the engine seeds for each micro-batch. Shapes depend on nothing but n:
    the host does not wait.

    Args:
        states: int32 (n,), of ``match``; n is at least 1.
        at_random: False: always the same boxes for the same states, evenly distributed, whichever rank has the image.
    """
    total = states.shape[0]
    number, most = min(number, total), min(int(number * share), total)
    if at_random:
        chances = paddle.rand([total], dtype="float32")  # below 1
    else:
        chances = ((paddle.arange(total, dtype="float64") * _GOLDEN_RATIO) % 1.0).astype("float32") * _BELOW_1
    excluded = paddle.full_like(chances, -1.0)
    order = paddle.where(states == NEGATIVE, chances, excluded)
    if most > 0:
        value, place = paddle.topk(paddle.where(states == POSITIVE, chances, excluded), most)
        order = paddle.scatter(order, place, paddle.where(value >= 0, value + 2.0, order[place]))
    value, place = paddle.topk(order, number)
    return SampledBoxes(place, value >= 2.0, value >= 0)


_SHORTEST_SIDE_PX = 1e-3  # of a proposal


class ProposalHead(nn.Layer):
    """An objectness and four numbers for each anchor of a position, by the same layers on all maps."""

    def __init__(self, channels: int, anchors: int):
        super().__init__()
        first = {"weight_attr": normal(0.01), "bias_attr": zeros()}
        self.conv = nn.Sequential(nn.Sequential(Conv2D(channels, channels, 3, padding=1, **first), nn.ReLU()))
        self.cls_logits = Conv2D(channels, anchors, 1, **{**first, "bias_attr": zeros()})
        self.bbox_pred = Conv2D(channels, 4 * anchors, 1, **{**first, "bias_attr": zeros()})

    def forward(self, x: paddle.Tensor):
        """Logits (N, n) and changes (N, n, 4) of the n anchors of a map (N, channels, height, width)."""
        x, number = self.conv(x), x.shape[0]
        logits = self.cls_logits(x).transpose([0, 2, 3, 1]).reshape([number, -1])
        changes = self.bbox_pred(x).transpose([0, 2, 3, 1]).reshape([number, -1, 4])
        return single_or_double(logits), single_or_double(changes)


class ProposalNetwork(nn.Layer):
    """Proposals of a pyramid.

    Args:
        channels: of the maps.
        strides: of the maps, as many as there are sizes of anchors.
    """

    def __init__(self, channels: int, strides: Sequence[int], rules: MaskRcnnRules):
        super().__init__()
        self.strides, self.rules = tuple(strides), rules
        self.head = ProposalHead(channels, len(rules.anchor_ratios))

    def forward(
        self, maps: Sequence[paddle.Tensor], sizes: paddle.Tensor, targets: DetectionTargets | None = None
    ) -> tuple[list[paddle.Tensor], dict[str, paddle.Tensor]]:
        """Proposals from maps (N, channels, height, width) of each level, and what the criterion reads of the anchors.

        Proposals of each image are (n, 4) in pixels, best first, without gradients; n may be 0. Of the anchors there
        is something with ``targets`` alone, whose ``box_counts`` are known. Of S = min(``anchor_samples``, anchors) of
        each image: ``anchor_logits``, ``anchor_positive`` (1 on an object, else 0) and ``anchor_shares``, one over
        how many of the S are used, 0 for those that are not, all (N, S); ``anchor_changes`` and what these should be,
        ``anchor_offsets``, (N, S, 4), the latter 0 for anchors on no object.
        """
        anchors = [self._anchors(x, level) for level, x in enumerate(maps)]
        logits, changes = zip(*(self.head(x) for x in maps))
        boxes = self._propose(logits, changes, anchors, sizes, is_training=targets is not None)
        if targets is None:
            return boxes, {}
        together = paddle.concat(logits, axis=1), paddle.concat(changes, axis=1), paddle.concat(anchors)
        return boxes, self._sample(*together, targets)

    def _anchors(self, x: paddle.Tensor, level: int) -> paddle.Tensor:
        rules, (height, width) = self.rules, x.shape[2:]
        size, ratios = rules.anchor_sizes[level], tuple(rules.anchor_ratios)
        grid, stride = (height, width), self.strides[level]
        anchors = constant(anchors_of_level, grid, stride, size, ratios, rules.rounds_anchors)
        of_type = self.head.cls_logits.weight.dtype
        return anchors.astype("float64" if of_type == paddle.float64 else "float32")

    @paddle.no_grad()
    def _propose(
        self,
        logits: Sequence[paddle.Tensor],
        changes: Sequence[paddle.Tensor],
        anchors: Sequence[paddle.Tensor],
        sizes: paddle.Tensor,
        is_training: bool,
    ) -> list[paddle.Tensor]:
        rules = self.rules
        before = rules.proposals_before if is_training else rules.evaluated_before
        after = rules.proposals_after if is_training else rules.evaluated_after
        of_levels = [_best_of_level(*parts, before) for parts in zip(logits, changes, anchors)]
        scores = paddle.concat([scores for scores, _ in of_levels], axis=1)  # (N, k)
        boxes = inside(paddle.concat([boxes for _, boxes in of_levels], axis=1), sizes)  # (N, k, 4)
        levels = [paddle.full([part.shape[1]], level, dtype="int64") for level, (part, _) in enumerate(of_levels)]
        levels = paddle.concat(levels)  # (k,)
        sides = boxes[:, :, 2:] - boxes[:, :, :2]
        # What is not finite, in a run that diverges, is no proposal; the difference is NaN.
        numbers = scores + sides.sum(axis=2)
        fits = paddle.logical_and((sides >= _SHORTEST_SIDE_PX).all(axis=2), numbers - numbers == 0)  # (N, k)
        _, order = paddle.topk(paddle.where(fits, scores, paddle.full_like(scores, -1.0)), scores.shape[1], axis=1)
        results = []
        for image, fitting in enumerate(read(fits.astype("int64").sum(axis=1))[0].tolist()):
            if not fitting:
                results.append(paddle.zeros([0, 4], dtype=boxes.dtype))
                continue
            places = order[image, :fitting]  # best first; what does not fit comes last
            of_image = paddle.gather(boxes[image], places)
            kept = suppress(of_image, paddle.gather(levels, places), rules.proposal_overlap, after)
            results.append(paddle.gather(of_image, kept))
        return results

    def _sample(
        self, logits: paddle.Tensor, changes: paddle.Tensor, anchors: paddle.Tensor, targets: DetectionTargets
    ) -> dict[str, paddle.Tensor]:
        rules, counts = self.rules, targets.box_counts
        parts: dict[str, list[paddle.Tensor]] = {}
        for image in range(logits.shape[0]):
            objects = targets.boxes[image, : max(int(counts[image]), 1)].astype(anchors.dtype)
            with paddle.no_grad():
                matches = match(
                    overlaps(objects, anchors), rules.positive_overlap, rules.negative_overlap, rules.lowest_overlap
                )
                chosen, is_positive, is_used = sample(
                    matches.states, rules.anchor_samples, rules.anchor_share, rules.random_samples
                )
                references = paddle.gather(anchors, chosen)
                wanted = offsets(paddle.gather(objects, paddle.gather(matches.objects, chosen)), references)
                used = is_used.astype(anchors.dtype)
                of_image = {
                    "anchor_positive": is_positive.astype(anchors.dtype),
                    "anchor_shares": used / paddle.clip(used.sum(), min=1.0),
                    "anchor_offsets": paddle.where(is_positive.unsqueeze(1), wanted, paddle.zeros_like(wanted)),
                }
            of_image["anchor_logits"] = paddle.gather(logits[image], chosen)
            of_image["anchor_changes"] = paddle.gather(changes[image], chosen)
            for name, value in of_image.items():
                parts.setdefault(name, []).append(value)
        return {name: paddle.stack(values) for name, values in parts.items()}


def _best_of_level(logits: paddle.Tensor, changes: paddle.Tensor, anchors: paddle.Tensor, most: int):
    """Scores (N, k) and boxes (N, k, 4) of the best anchors of one map."""
    number, total = logits.shape
    most = min(most, total)
    scores, places = paddle.topk(logits, most, axis=1)  # (N, k)
    first = paddle.arange(number, dtype=places.dtype).unsqueeze(1) * total
    changes = paddle.gather(changes.reshape([-1, 4]), (places + first).reshape([-1]))
    boxes = move_boxes(changes, paddle.gather(anchors, places.reshape([-1])))
    return F.sigmoid(scores), boxes.reshape([number, most, 4])


def anchors_at_origin(size: float, ratios: Sequence[float], rounds: bool) -> np.ndarray:
    """float64 (ratios, 4), x0, y0, x1, y1 around (0, 0), of area ``size`` squared, with ``ratios`` of height to width.

    Source: Ren et al., Faster R-CNN, 2015, section 3.1.1; torchvision rounds the corners.
    """
    root = np.sqrt(np.asarray(ratios, dtype=np.float64))
    half = 0.5 * size * np.stack([1 / root, root], axis=1)  # (ratios, 2): width, height
    boxes = np.concatenate([-half, half], axis=1)
    return np.round(boxes) if rounds else boxes


def anchors_of_level(
    grid: tuple[int, int], stride: int, size: float, ratios: tuple[float, ...], rounds: bool
) -> np.ndarray:
    """float32 (height * width * ratios, 4), row by row, position by position.

    Args:
        grid: height and width of the map.
        stride: pixels from one position to the next; the first one's anchors are around (0, 0).
    """
    around = anchors_at_origin(size, ratios, rounds)
    rows, columns = np.meshgrid(np.arange(grid[0]) * stride, np.arange(grid[1]) * stride, indexing="ij")
    centers = np.stack([columns, rows, columns, rows], axis=-1)  # (height, width, 4)
    return (centers[:, :, None, :] + around).reshape(-1, 4).astype(np.float32)


def suppress(boxes: paddle.Tensor, groups: paddle.Tensor, overlap: float, most: int) -> paddle.Tensor:
    """Greedy non-maximum suppression in each group: int64 (kept,), at most ``most``, best first over all groups.

    A box goes if its IoU with a better one that stays is larger than ``overlap``. On a GPU the host waits for the
    result: Paddle chooses there, from a table of overlaps.

    Args:
        boxes: (n, 4), finite, best first.
        groups: integers (n,), from 0.
    """
    if boxes.shape[0] == 0:  # Paddle 2.6 cannot
        return paddle.zeros([0], dtype="int64")
    boxes = boxes.detach().astype("float64")
    # Boxes of different groups are moved apart: in float64, by which no overlap changes beyond its 12th digit.
    side = boxes.max() - boxes.min() + 1.0
    return nms(boxes + (groups.astype("float64") * side).unsqueeze(1), overlap)[:most]
