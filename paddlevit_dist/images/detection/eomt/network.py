"""EoMT as a detector: a mask for each of the best pairs of a query and a class, whose box is the mask's.

Source: Kerssies et al., Your ViT is Secretly an Image Segmentation Model, CVPR 2025, arXiv 2503.19108, with the code of
tue-mps/eomt.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as F

from ....core.runtime.errors import UserError
from ....core.runtime.transfers import constant
from ....core.tasks.step_types import LossTerm
from ...mask_queries.criterion import TERMS, MaskQueryCriterion, QueryTargets
from ...mask_queries.matching import load_solver
from ...mask_queries.network import Eomt
from ...mask_queries.points import MaskStack
from ...mask_queries.segments import MaskView, rank_instances
from ...mask_queries.variants import list_variants
from ..detections import DetectedObjects
from ..detector import (
    COCO_CATEGORIES,
    DetectionCriterion,
    DetectionTargets,
    Outputs,
    QueryDetector,
    TopDetections,
    single_or_double,
)

_MOST = 100  # pairs of a query and a class
_LEAST_AREA = 1e-6  # cells, added to a mask's area


class InstanceCriterion(MaskQueryCriterion, DetectionCriterion):
    """The losses of ``MaskQueryCriterion``; normalized as "reference", each device divides classes by its weights."""

    queries_key = "MODEL.NUM_QUERIES"
    communicates = False
    noise = None

    def __init__(self, num_classes: int, normalizer: str = "global", **options: Any):
        MaskQueryCriterion.__init__(self, num_classes, **options)
        DetectionCriterion.__init__(self, normalizer)
        if not self.is_global:
            self.normalizer_names = tuple(name for name in self.normalizer_names if not name.startswith(TERMS[0]))

    def loss_normalizers(self, batch: Mapping[str, np.ndarray]) -> dict[str, int | float]:
        """Return the normalizers of a batch."""
        return self.count(np.count_nonzero(batch["labels"] >= 0, axis=1))

    def terms(self, outputs: Mapping[str, paddle.Tensor], targets: Any) -> dict[str, LossTerm]:
        """Return the loss terms of a batch of ``DetectionTargets``."""
        if targets.masks is None:
            raise UserError(
                "EoMT learns masks, but these data have only boxes: use a model without masks, such as rfdetr_nano"
            )
        objects = QueryTargets(MaskStack(targets.masks), targets.labels, targets.require_box_counts())
        return super().terms(outputs, objects)


class InstanceEomt(Eomt, QueryDetector):
    """EoMT whose masks are of objects that boxes are around."""

    coco_outputs = len(COCO_CATEGORIES) + 1
    learns_masks = True
    masks_are_fractions = True
    pads_with_black = True
    variants = list_variants("instance")
    published_input = ("DATA.EVAL_SHORTEST_SIDE", "640", "DATA.EVAL_LONGEST_SIDE", "640")
    reference_normalizer = "as by EoMT's authors: masks by the count of all devices, classes by each device's"

    @classmethod
    def criterion(
        cls, name: str, num_classes: int, losses: Mapping[str, Any] | None = None, **options: Any
    ) -> InstanceCriterion:
        """Build the losses of a model without building the model."""
        load_solver()  # so that its error is raised before training starts
        return InstanceCriterion.build(name, losses, num_classes, **cls.criterion_options(name, **options))

    def forward(
        self, images: paddle.Tensor, sizes: paddle.Tensor | None = None, targets: DetectionTargets | None = None
    ) -> Outputs:
        """Compute the logits of all queries: ``classes`` (N, Q, classes + 1) and ``masks`` (N, Q, height, width).

        ``input_sizes``, int64 (N, 2), are height and width of the images with their padding, which masks cover. With
        targets, which have the number of the update, compute what the criterion reads.
        """
        if targets is not None:
            return self.training_outputs(images, *(targets.updates or (0, 1)))
        prediction = self.predict(images)
        masks = self.crop_masks(prediction.masks, images)
        rows = paddle.zeros_like(prediction.classes[:, :1, 0], dtype="int64")  # (N, 1)
        sizes = rows + constant(np.array, tuple(images.shape[2:])).astype("int64")
        return {"classes": single_or_double(prediction.classes), "masks": masks, "input_sizes": sizes}

    def best(self, outputs: Outputs) -> TopDetections:
        """Return the best pairs of a query and a class, measured at the masks' cells, for exported models."""
        scores = F.softmax(outputs["classes"], axis=-1)[..., :-1]
        classes = scores.shape[2]
        scores, places = paddle.topk(scores.flatten(1), min(_MOST, self.num_queries * classes), axis=1)
        queries = places // classes
        masks = _take_masks(outputs["masks"], queries)
        inside = (masks > 0).astype(masks.dtype)
        area = inside.sum(axis=[2, 3])
        scores = scores * (F.sigmoid(masks) * inside).sum(axis=[2, 3]) / (area + _LEAST_AREA)
        scores, order = paddle.topk(scores, scores.shape[1], axis=1)
        labels = paddle.take_along_axis(places % classes, order, axis=1)
        masks = _take_masks(masks, order)
        return TopDetections(labels, find_boxes(masks), scores, masks)

    def decode(self, outputs: Outputs, sizes: np.ndarray, original_sizes: np.ndarray) -> list[DetectedObjects]:
        """Return the detections in each image, measured at its stored pixels; see ``Detector.decode``."""
        classes, masks = outputs["classes"].numpy(), outputs["masks"].numpy()
        views = zip(outputs["input_sizes"].tolist(), sizes.tolist(), original_sizes.tolist())
        results = []
        for row, view in enumerate(views):
            found = rank_instances(classes[row], masks[row], MaskView(*map(tuple, view)), _MOST)
            kept = [number for number, mask in enumerate(found.masks) if mask.area]
            boxes = np.array([found.masks[number].box() for number in kept], np.float32).reshape(-1, 4)
            boxes[:, 2:] += boxes[:, :2]
            runs = [found.masks[number].compress() for number in kept]
            results.append(DetectedObjects(boxes, found.scores[kept], found.labels[kept].astype(np.int64), runs))
        return results


def find_boxes(masks: paddle.Tensor) -> paddle.Tensor:
    """Return the smallest boxes around masks' logits above 0, (N, n, 4), as fractions; 0 for an empty mask."""
    inside = (masks > 0).astype(masks.dtype)
    ends = []
    for axis in (3, 2):  # columns, then rows
        side = masks.shape[axis]
        line = inside.max(axis=5 - axis)  # (N, n, side)
        places = paddle.arange(side, dtype=masks.dtype)
        last = (line * (places + 1)).max(axis=2)
        first = side - (line * (side - places)).max(axis=2)
        ends.append((paddle.where(last > 0, first, last) / side, last / side))
    (x0, x1), (y0, y1) = ends
    return paddle.stack([x0, y0, x1, y1], axis=2)


def _take_masks(masks: paddle.Tensor, rows: paddle.Tensor) -> paddle.Tensor:
    """Take ``masks`` (N, Q, height, width) of the queries ``rows`` (N, k), which Paddle 2.6 does not broadcast."""
    return paddle.take_along_axis(masks, rows.unsqueeze([2, 3]).expand([-1, -1, *masks.shape[2:]]), axis=1)
