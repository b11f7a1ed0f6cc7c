"""Training of Mask R-CNN: sampled regions with their targets, and the losses."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ....core.runtime.transfers import read, to_device_together
from ....core.tasks.step_types import LossTerm
from ..boxes import box_iou, encode_boxes
from ..detector import DetectionCriterion, DetectionTargets, Outputs
from .region_heads import RegionBatch, assign_levels, build_placeholder_region, roi_align
from .region_proposals import match, sample
from .rules import MaskRcnnRules

NAMES = ("objectness", "anchor_boxes", "classes", "boxes", "masks")


class MaskRcnnCriterion(DetectionCriterion):
    """Objectness and boxes of anchors; classes, boxes and masks of regions; weights are 1 except for classes.

    With the normalizer "global", each term is the mean over an image's samples (256 anchors, 512 regions, for masks all
    regions on objects; fewer if there are fewer), then over all images of the update, so that the loss of the same
    samples does not depend on how images are distributed over devices. "reference" is torchvision's: the mean over the
    samples of each device. Both are equal with one image per device, and with more if all images have their full number
    of samples, except for masks, in which "reference" weights images by their number of regions. For the betas see
    ``MaskRcnnRules``.

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
        # The engine needs at least one count; with "reference" each term contains its own.
        self.normalizer_names = self.terms_by_name if self.is_global else ("images",)

    def loss_normalizers(self, batch: Mapping[str, np.ndarray]) -> dict[str, int | float]:
        """Return the number of images for each term."""
        return dict.fromkeys(self.normalizer_names, len(batch["labels"]))

    def terms(self, outputs: Outputs, targets: DetectionTargets) -> dict[str, LossTerm]:
        """Return the loss terms of the outputs of ``MaskRCNN.forward`` with targets."""
        anchor_losses = F.binary_cross_entropy_with_logits(
            outputs["anchor_logits"], outputs["anchor_positive"], reduction="none"
        )  # (N, S)
        region_losses = F.cross_entropy(outputs["region_logits"], outputs["region_labels"], reduction="none")
        anchor_boxes = smooth_l1(outputs["anchor_changes"], outputs["anchor_offsets"], self.anchor_beta)  # (N, S)
        boxes = smooth_l1(outputs["region_changes"], outputs["region_offsets"], self.box_beta)  # (n,)
        is_object = (outputs["region_labels"] > 0).astype(boxes.dtype)
        losses: dict[str, Any] = {
            "objectness": (anchor_losses, outputs["anchor_shares"]),
            "anchor_boxes": (anchor_boxes * outputs["anchor_positive"], outputs["anchor_shares"]),
            "classes": (region_losses.reshape([-1]), outputs["region_shares"]),
            "boxes": (boxes * is_object, outputs["region_shares"]),
        }
        if "masks" in self.terms_by_name:
            mask_losses = F.binary_cross_entropy_with_logits(
                outputs["mask_logits"], outputs["mask_targets"], reduction="none"
            ).mean(axis=[1, 2])  # (p,)
            losses["masks"] = (mask_losses, outputs["mask_shares"])
        images = outputs["anchor_logits"].shape[0]
        terms = {name: self._term(values, shares, images) for name, (values, shares) in losses.items()}
        return {name: terms[name]._replace(weight=self.weights[name]) for name in self.terms_by_name}

    def _term(self, losses: paddle.Tensor, shares: paddle.Tensor, images: int) -> LossTerm:
        if self.is_global:
            return LossTerm((losses * shares).sum(), images)
        used = (shares > 0).astype(losses.dtype)
        return LossTerm((losses * used).sum(), used.sum(), is_local=True)


def smooth_l1(changes: paddle.Tensor, targets: paddle.Tensor, beta: float) -> paddle.Tensor:
    """Sum over the last axis of x = changes - targets: x^2 / (2 beta) where |x| < beta, else |x| - beta / 2."""
    distance = (changes - targets).abs()
    if beta > 0:
        near = 0.5 * distance * distance / beta
        distance = paddle.where(distance < beta, near, distance - 0.5 * beta)
    return distance.sum(axis=-1)


class RegionTargets(NamedTuple):
    """Sampled regions of a batch, n of them, at least 1, ascending by image, positive ones first in each image."""

    regions: RegionBatch  # n regions
    labels: paddle.Tensor  # int64 (n,), 0 for background, else the object's class plus 1
    offsets: paddle.Tensor  # (n, 4), target of the region's changes; 0 for background
    shares: paddle.Tensor  # (n,), one over the image's regions; 0 for a placeholder if there are none
    positive: np.ndarray  # int64 (p,), positions of the regions on objects, on the host
    objects: np.ndarray  # int64 (p,), index of the object of each of these in its image, on the host


@paddle.no_grad()
def sample_region_targets(
    proposals: Sequence[paddle.Tensor], targets: DetectionTargets, levels: int, rules: MaskRcnnRules
) -> RegionTargets:
    """Sample regions from the proposals (n, 4) of each image and its objects; the host waits once for the samples.

    ``targets`` need ``box_counts``; ``levels`` counts the levels of the pyramid that regions are pooled from.
    """
    samples = [_sample_image(image_boxes, targets, image, rules) for image, image_boxes in enumerate(proposals)]
    images = np.repeat(np.arange(len(samples)), [len(sampled) for sampled, *_ in samples])
    if len(images) == 0:
        return _no_regions(proposals[0])
    boxes, labels, offsets, states = (paddle.concat(list(parts)) for parts in zip(*samples))
    read_states, region_levels = read(states, assign_levels(boxes, levels, rules.reference_size))
    used_rows = np.flatnonzero(read_states[:, 0])
    if len(used_rows) == 0:
        return _no_regions(proposals[0])
    images, region_levels, (_, is_positive, objects) = (
        images[used_rows],
        region_levels[used_rows],
        read_states[used_rows].T,
    )
    counts = np.bincount(images, minlength=len(samples))
    positive = np.flatnonzero(is_positive)
    places, shares = _with_shares(used_rows, counts[images], boxes)
    boxes, labels, offsets = (paddle.gather(part, places) for part in (boxes, labels, offsets))
    return RegionTargets(
        RegionBatch(boxes, images, region_levels), labels, offsets, shares, positive, objects[positive]
    )


def _sample_image(
    proposals: paddle.Tensor, targets: DetectionTargets, image: int, rules: MaskRcnnRules
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Return boxes (k, 4), labels (k,), offsets (k, 4), and int64 (k, 3): used, positive, object; of one image."""
    count = int(targets.require_box_counts()[image])
    objects = targets.boxes[image].astype(proposals.dtype)  # (M, 4)
    boxes = paddle.concat([proposals, objects[:count]]) if count else proposals
    if boxes.shape[0] == 0:
        return boxes, paddle.zeros([0], dtype="int64"), boxes, paddle.zeros([0, 3], dtype="int64")
    overlap = box_iou(objects[: max(count, 1)], boxes)
    matches = match(overlap, rules.region_overlap, rules.region_overlap)
    chosen, is_positive, is_used = sample(
        matches.states, rules.region_samples, rules.region_share, rules.random_samples
    )
    boxes, object_index = paddle.gather(boxes, chosen), paddle.gather(matches.objects, chosen)
    labels = paddle.gather(targets.labels[image].astype("int64"), object_index) + 1
    labels = paddle.where(is_positive, labels, paddle.zeros_like(labels))
    offsets = encode_boxes(paddle.gather(objects, object_index), boxes, rules.box_weights)
    # Otherwise infinite values are possible: an empty list of objects is padded with one without area.
    offsets = paddle.where(is_positive.unsqueeze(1), offsets, paddle.zeros_like(offsets))
    states = paddle.stack([is_used.astype("int64"), is_positive.astype("int64"), object_index.astype("int64")], axis=1)
    return boxes, labels, offsets, states


def _with_shares(places: np.ndarray, counts: np.ndarray, like: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return rows of a table, and one over the counts, on the device after one transfer."""
    rows, shares = to_device_together(places.astype(np.float64), 1.0 / counts)  # a row's number is exact
    return rows.astype("int64"), shares.astype(like.dtype)


def _no_regions(like: paddle.Tensor) -> RegionTargets:
    """Return a placeholder region without objects."""
    no_indices = np.zeros(0, np.int64)
    zeros = paddle.zeros([1], dtype=like.dtype)
    return RegionTargets(
        build_placeholder_region(like),
        paddle.zeros([1], dtype="int64"),
        zeros.reshape([1, 1]).tile([1, 4]),
        zeros,
        no_indices,
        no_indices,
    )


class MaskTargets(NamedTuple):
    """Regions with a mask target, p of them, at least 1."""

    regions: RegionBatch  # p regions
    labels: paddle.Tensor  # int64 (p,), the object's class plus 1
    masks: paddle.Tensor  # (p, side, side), from 0 to 1
    shares: paddle.Tensor  # (p,), one over the image's regions; 0 for a placeholder if there are none


@paddle.no_grad()
def crop_mask_targets(region_samples: RegionTargets, targets: DetectionTargets, side: int) -> MaskTargets:
    """Crop the objects' masks to their regions, at the ``side`` of the predicted masks."""
    dtype = region_samples.shares.dtype
    if len(region_samples.positive) == 0:
        empty = paddle.zeros([1, side, side], dtype=dtype)
        return MaskTargets(
            build_placeholder_region(region_samples.shares), paddle.ones([1], dtype="int64"), empty, empty[:, 0, 0]
        )
    chosen, all_regions = region_samples.positive, region_samples.regions
    images = all_regions.images[chosen]
    places, shares = _with_shares(chosen, np.bincount(images)[images], region_samples.shares)
    regions = RegionBatch(paddle.gather(all_regions.boxes, places), images, all_regions.levels[chosen])
    masks = _crop_masks(targets.masks, regions, region_samples.objects, side)
    return MaskTargets(regions, paddle.gather(region_samples.labels, places), masks, shares)


def _crop_masks(masks: paddle.Tensor, regions: RegionBatch, objects: np.ndarray, side: int) -> paddle.Tensor:
    """Pool the parts (p, side, side) of the masks (N, M, H, W) inside the regions, as torchvision does.

    A value is the mean of about one sample per pixel. Masks are converted to floats for one image at a time.
    ``objects`` is int (p,), index of each region's object in its image.
    """
    most = masks.shape[1]
    batch_objects = regions.images * most + objects
    order = np.argsort(batch_objects)  # object by object
    needed, counts = np.unique(batch_objects, return_counts=True)
    images, starts = np.unique(needed // most, return_index=True)
    needed, counts = np.split(needed % most, starts[1:]), np.split(counts, starts[1:])  # of each image
    arrays = [order, np.argsort(order), *needed]
    by_object, back, *object_indices = to_device_together(*(array.astype(np.int32) for array in arrays))
    boxes = paddle.split(paddle.gather(regions.boxes, by_object), [int(per_image.sum()) for per_image in counts])
    parts: list[paddle.Tensor] = []
    for image, chosen, region_boxes, numbers in zip(images.tolist(), object_indices, boxes, counts):
        object_masks = paddle.gather(masks[image], chosen).unsqueeze(1).astype(regions.boxes.dtype)  # (m, 1, H, W)
        parts.append(roi_align(object_masks, region_boxes, numbers, side, 1.0, -1))
    return paddle.gather(paddle.concat(parts).squeeze(1), back)
