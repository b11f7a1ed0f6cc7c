"""Training of Mask R-CNN: the regions of a training step with their targets, and the losses."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ....runtime.transfers import read, to_device_together
from ....tasks.task import LossTerm
from ..boxes import offsets, overlaps
from ..detector import DetectionCriterion, DetectionTargets, Outputs
from ..variants import MaskRcnnRules
from .region_heads import RegionBatch, assign_levels, roi_align, stand_in
from .region_proposals import match, sample

NAMES = ("objectness", "anchor_boxes", "classes", "boxes", "masks")


class MaskRcnnCriterion(DetectionCriterion):
    """Objectness and boxes of the anchors, classes, boxes and masks of the regions, all of weight 1 but the classes.

    With the normalizer "global" each term is the mean over an image's samples (256 anchors, 512 regions, all regions
    on objects for masks; fewer where there are fewer), then over all images of the update: whoever has which image
    on how many devices, the loss is the same for the same samples. torchvision ("reference") takes the mean over the
    samples of each device instead. Both are equal with one image a device; with more, wherever all images have
    their full number of samples, which leaves the masks, in which "reference" weighs images by their regions.

    Args:
        anchor_beta, box_beta: where the loss of a regression turns from a square to a line; see ``MaskRcnnRules``.
        has_masks: whether the network has masks.
        normalizer: "global" or "reference".
        class_weight: of the regions' classes; 1 in the paper.

    Source: He et al., Mask R-CNN, 2017, section 3; Girshick, Fast R-CNN, 2015, equations 1 to 3.
    """

    def __init__(
        self,
        anchor_beta: float = 1 / 9,
        box_beta: float = 1 / 9,
        has_masks: bool = True,
        normalizer: str = "global",
        class_weight: float = 1.0,
    ):
        super().__init__(normalizer)
        self.anchor_beta, self.box_beta = anchor_beta, box_beta
        self.terms_by_name: tuple[str, ...] = NAMES if has_masks else NAMES[:-1]
        self.weights = {name: class_weight if name == "classes" else 1.0 for name in self.terms_by_name}
        # The engine asks for one count at least; under "reference" each term brings its own.
        self.count_names = self.terms_by_name if self.is_global else ("images",)

    def counts(self, batch: Mapping[str, np.ndarray]) -> dict[str, int | float]:
        """The number of images, for each term."""
        return dict.fromkeys(self.count_names, len(batch["labels"]))

    def terms(self, outputs: Outputs, targets: DetectionTargets) -> dict[str, LossTerm]:
        """The terms of what ``MaskRCNN.forward`` returned with targets."""
        of_anchors = F.binary_cross_entropy_with_logits(
            outputs["anchor_logits"], outputs["anchor_positive"], reduction="none"
        )  # (N, S)
        of_regions = F.cross_entropy(outputs["region_logits"], outputs["region_labels"], reduction="none")
        anchor_boxes = smooth_l1(outputs["anchor_changes"], outputs["anchor_offsets"], self.anchor_beta)  # (N, S)
        boxes = smooth_l1(outputs["region_changes"], outputs["region_offsets"], self.box_beta)  # (n,)
        is_object = (outputs["region_labels"] > 0).astype(boxes.dtype)
        losses: dict[str, Any] = {
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
        images = outputs["anchor_logits"].shape[0]
        return {
            name: self._term(*losses[name], images)._replace(weight=self.weights[name]) for name in self.terms_by_name
        }

    def _term(self, losses: paddle.Tensor, shares: paddle.Tensor, images: int) -> LossTerm:
        if self.is_global:
            return LossTerm((losses * shares).sum(), images)
        used = (shares > 0).astype(losses.dtype)
        return LossTerm((losses * used).sum(), used.sum())


def smooth_l1(changes: paddle.Tensor, wanted: paddle.Tensor, beta: float) -> paddle.Tensor:
    """Sum over the last axis of x^2 / (2 beta) where |x| < beta, else |x| - beta / 2, of x = changes - wanted."""
    distance = (changes - wanted).abs()
    if beta > 0:
        near = 0.5 * distance * distance / beta
        distance = paddle.where(distance < beta, near, distance - 0.5 * beta)
    return distance.sum(axis=-1)


class RegionTargets(NamedTuple):
    """Sampled regions of a batch, n of them, at least 1, ascending by image and positive ones first in each.

    Attributes:
        regions: n.
        labels: int64 (n,), 0 for background, else the object's class plus 1.
        offsets: (n, 4), what the region's changes should be; 0 for background.
        shares: (n,), one over how many of them the image has; 0 for a stand-in where no image has any.
        positive: int64 (p,), the numbers of those on objects, on the host.
        objects: int64 (p,), which of its image's objects each of them is, on the host.
    """

    regions: RegionBatch
    labels: paddle.Tensor
    offsets: paddle.Tensor
    shares: paddle.Tensor
    positive: np.ndarray
    objects: np.ndarray


@paddle.no_grad()
def region_targets(
    proposals: Sequence[paddle.Tensor], targets: DetectionTargets, levels: int, rules: MaskRcnnRules
) -> RegionTargets:
    """Sample regions from the proposals (n, 4) of each image and from its objects themselves. The host waits for the
    device once, to know which were drawn.

    Args:
        targets: with ``box_counts``.
        levels: of the pyramid, that regions are cut out of.
    """
    drawn = [_draw(boxes, targets, image, rules) for image, boxes in enumerate(proposals)]
    images = np.repeat(np.arange(len(drawn)), [len(boxes) for boxes, *_ in drawn])
    if len(images) == 0:
        return _nothing(proposals[0])
    boxes, labels, wanted, states = (paddle.concat(list(parts)) for parts in zip(*drawn))
    known, of_level = read(states, assign_levels(boxes, levels, rules.reference_size))
    used = np.flatnonzero(known[:, 0])
    if len(used) == 0:
        return _nothing(proposals[0])
    images, of_level, (_, is_positive, objects) = images[used], of_level[used], known[used].T
    counts = np.bincount(images, minlength=len(drawn))
    positive = np.flatnonzero(is_positive)
    places, shares = _with_shares(used, counts[images], boxes)
    boxes, labels, wanted = (paddle.gather(part, places) for part in (boxes, labels, wanted))
    return RegionTargets(RegionBatch(boxes, images, of_level), labels, wanted, shares, positive, objects[positive])


def _draw(
    proposals: paddle.Tensor, targets: DetectionTargets, image: int, rules: MaskRcnnRules
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Boxes (k, 4), labels (k,), offsets (k, 4), and int64 (k, 3): used, positive, object; of one image."""
    count = int(targets.box_counts[image])
    objects = targets.boxes[image].astype(proposals.dtype)  # (M, 4)
    boxes = paddle.concat([proposals, objects[:count]]) if count else proposals
    if boxes.shape[0] == 0:
        return boxes, paddle.zeros([0], dtype="int64"), boxes, paddle.zeros([0, 3], dtype="int64")
    overlap = overlaps(objects[: max(count, 1)], boxes)
    matches = match(overlap, rules.region_overlap, rules.region_overlap)
    chosen, is_positive, is_used = sample(
        matches.states, rules.region_samples, rules.region_share, rules.random_samples
    )
    boxes, of_object = paddle.gather(boxes, chosen), paddle.gather(matches.objects, chosen)
    labels = paddle.gather(targets.labels[image].astype("int64"), of_object) + 1
    labels = paddle.where(is_positive, labels, paddle.zeros_like(labels))
    wanted = offsets(paddle.gather(objects, of_object), boxes, rules.box_weights)
    # Elsewhere it may be infinite: an empty list of objects is padded with one that has no area.
    wanted = paddle.where(is_positive.unsqueeze(1), wanted, paddle.zeros_like(wanted))
    states = paddle.stack([is_used.astype("int64"), is_positive.astype("int64"), of_object.astype("int64")], axis=1)
    return boxes, labels, wanted, states


def _with_shares(places: np.ndarray, counts: np.ndarray, like: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Rows of a table, and one over the counts, on the device after one transfer."""
    rows, shares = to_device_together(places.astype(np.float64), 1.0 / counts)  # a row's number is exact
    return rows.astype("int64"), shares.astype(like.dtype)


def _nothing(like: paddle.Tensor) -> RegionTargets:
    none = np.zeros(0, np.int64)
    zeros = paddle.zeros([1], dtype=like.dtype)
    return RegionTargets(
        stand_in(like), paddle.zeros([1], dtype="int64"), zeros.reshape([1, 1]).tile([1, 4]), zeros, none, none
    )


class MaskTargets(NamedTuple):
    """The regions that learn a mask, p of them, at least 1.

    Attributes:
        regions: p.
        labels: int64 (p,), the object's class plus 1.
        masks: (p, side, side), from 0 to 1.
        shares: (p,), one over how many of them the image has; 0 for a stand-in where no image has any.
    """

    regions: RegionBatch
    labels: paddle.Tensor
    masks: paddle.Tensor
    shares: paddle.Tensor


@paddle.no_grad()
def mask_targets(of_boxes: RegionTargets, targets: DetectionTargets, side: int) -> MaskTargets:
    """The masks of the objects, as their regions see them.

    Args:
        side: of the masks that are predicted.
    """
    kind = of_boxes.shares.dtype
    if len(of_boxes.positive) == 0:
        none = paddle.zeros([1, side, side], dtype=kind)
        return MaskTargets(stand_in(of_boxes.shares), paddle.ones([1], dtype="int64"), none, none[:, 0, 0])
    chosen, everything = of_boxes.positive, of_boxes.regions
    images = everything.images[chosen]
    places, shares = _with_shares(chosen, np.bincount(images)[images], of_boxes.shares)
    regions = RegionBatch(paddle.gather(everything.boxes, places), images, everything.levels[chosen])
    masks = _crop_masks(targets.masks, regions, of_boxes.objects, side)
    return MaskTargets(regions, paddle.gather(of_boxes.labels, places), masks, shares)


def _crop_masks(masks: paddle.Tensor, regions: RegionBatch, objects: np.ndarray, side: int) -> paddle.Tensor:
    """The parts (p, side, side) of the masks (N, M, H, W) inside the regions, each of one of its image's objects, int
    (p,), as torchvision cuts them out: the mean of about one sample a pixel. Of one image at a time they are floats.
    """
    most = masks.shape[1]
    of_batch = regions.images * most + objects
    order = np.argsort(of_batch, kind="stable")  # object by object
    needed, counts = np.unique(of_batch, return_counts=True)
    images, starts = np.unique(needed // most, return_index=True)
    needed, counts = np.split(needed % most, starts[1:]), np.split(counts, starts[1:])  # of each image
    arrays = [order, np.argsort(order, kind="stable"), *needed]
    by_object, back, *there = to_device_together(*(array.astype(np.int32) for array in arrays))
    boxes = paddle.split(paddle.gather(regions.boxes, by_object), [int(numbers.sum()) for numbers in counts])
    parts: list[paddle.Tensor] = []
    for image, chosen, own, numbers in zip(images.tolist(), there, boxes, counts):
        of_objects = paddle.gather(masks[image], chosen).unsqueeze(1).astype(regions.boxes.dtype)  # (m, 1, H, W)
        parts.append(roi_align(of_objects, own, numbers, side, 1.0, -1))
    return paddle.gather(paddle.concat(parts).squeeze(1), back)
