"""DETR's losses of matched pairs of queries and objects, over all decoder layers.

Source: Carion et al., End-to-End Object Detection with Transformers, 2020, equation 2 and section 4, "Technical
details"; the authors' SetCriterion.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ....core.runtime import autocast
from ....core.runtime.transfers import read, to_device_together
from ....core.tasks.step_types import LossTerm
from ...mask_queries.matching import ObjectCounter, QueryMatches, class_losses, match_queries
from ..boxes import center_to_corners, generalized_paired_iou, to_relative
from ..detector import DetectionCriterion, DetectionTargets, Outputs

_AUXILIARY = "_auxiliary"


class LayerLosses(NamedTuple):
    """Sums over a batch, for each of L layers."""

    label: paddle.Tensor  # (L,), weighted cross-entropy over all queries
    box: paddle.Tensor  # (L,), L1 distance of matched boxes, as fractions of the image
    giou: paddle.Tensor  # (L,), 1 - the generalized IoU of matched boxes
    classes: paddle.Tensor  # int64 (L, N, Q), target class of each query
    matches: QueryMatches  # matches of queries with objects


class SetCriterion(ObjectCounter, DetectionCriterion):
    """Cross-entropy of classes, L1 distance and generalized IoU of boxes.

    The terms ``class``, ``box`` and ``giou`` are of the last layer; terms with ``_auxiliary`` are summed over the other
    layers. ``accuracy`` is the fraction of objects whose query prefers their class.

    With the normalizer "global", each term is divided by its count over all devices and micro-batches: objects, or the
    weights of all queries, 1 for a query with an object and ``no_object_weight`` for others. "reference" follows the
    authors: class terms are divided by the weights on each device and micro-batch, so that a device with few objects
    weights them more. (With fewer objects than devices, the authors divide by one per device, this class by the
    objects.)

    Args:
        num_classes: number of classes without "no object", which is the class after the last.
        cost_class: weight of the class in the matching cost; None: ``class_weight``.
        cost_box: weight of the L1 distance in the matching cost.
        cost_giou: weight of the generalized IoU in the matching cost.
    """

    def __init__(
        self,
        num_classes: int,
        queries: int,
        layers: int,
        normalizer: str = "global",
        class_weight: float = 1.0,
        box_weight: float = 5.0,
        giou_weight: float = 2.0,
        no_object_weight: float = 0.1,
        cost_class: float | None = None,
        cost_box: float = 5.0,
        cost_giou: float = 2.0,
    ):
        ObjectCounter.__init__(self, queries, no_object_weight)
        DetectionCriterion.__init__(self, normalizer)
        self.num_classes = num_classes
        self.weights = {"class": class_weight, "box": box_weight, "giou": giou_weight}
        self.cost = (class_weight if cost_class is None else cost_class, cost_box, cost_giou)
        self.suffixes: tuple[str, ...] = ("", _AUXILIARY) if layers > 1 else ("",)
        terms = ("class", "box", "giou") if self.is_global else ("box", "giou")
        self.normalizer_names = tuple(f"{name}{suffix}" for suffix in self.suffixes for name in terms)

    def loss_normalizers(self, batch: Mapping[str, np.ndarray]) -> dict[str, int | float]:
        """Return the normalizers of a batch."""
        objects = np.count_nonzero(batch["labels"] >= 0, axis=1)  # (N,)
        term_counts = {"class": self.class_count(objects), "box": int(objects.sum()), "giou": int(objects.sum())}
        return {name: term_counts[name.replace(_AUXILIARY, "")] for name in self.normalizer_names}

    def terms(self, outputs: Outputs, targets: DetectionTargets) -> dict[str, LossTerm]:
        """Return the loss terms of a batch."""
        logits = outputs["layer_logits"]
        losses = self.layer_losses(logits, outputs["layer_boxes"], targets)
        sums = {"class": losses.label, "box": losses.box, "giou": losses.giou}
        objects = losses.matches.counts
        label_count, box_count = self.class_count(objects), float(objects.sum())
        terms = {}
        for suffix in self.suffixes:
            for name, by_layer in sums.items():
                count = label_count if name == "class" else box_count
                layer_sum = by_layer[:-1].sum() if suffix else by_layer[-1]
                is_local = name + suffix not in self.normalizer_names
                terms[name + suffix] = LossTerm(layer_sum, count, self.weights[name], is_local)
        truth = losses.classes[-1]
        is_correct = paddle.logical_and(logits[-1].argmax(axis=-1) == truth, truth < self.num_classes)
        terms["accuracy"] = LossTerm(is_correct.astype("float32").sum(), box_count, 0.0)
        return terms

    def layer_losses(self, logits: paddle.Tensor, boxes: paddle.Tensor, targets: DetectionTargets) -> LayerLosses:
        """Compute each layer's losses of ``logits`` (L, N, Q, classes + 1) and ``boxes`` (L, N, Q, 4), as ``match``."""
        labels, target_boxes = targets.labels, to_relative(targets.boxes.astype(boxes.dtype), targets.sizes)
        matches = self.match(logits, boxes, target_boxes, targets)
        objects, queries, share = self._on_device(matches, boxes.shape[2])
        label, classes = class_losses(logits, labels, objects, self.no_object_weight)
        matched_boxes = paddle.gather(boxes.reshape([-1, 4]), queries).reshape(
            [*matches.query_of.shape, 4]
        )  # (L, N, M, 4)
        # An object without a query counts 0, but stays in the graph: every parameter gets a gradient on every rank.
        share = share.astype(boxes.dtype).reshape(list(matches.weight_of.shape))  # (L, N, M)
        distance = (matched_boxes - target_boxes).abs().sum(axis=-1)
        overlap = generalized_paired_iou(center_to_corners(matched_boxes), center_to_corners(target_boxes))
        return LayerLosses(
            label=label,
            box=(distance * share).sum(axis=[1, 2]),
            giou=((1.0 - overlap) * share).sum(axis=[1, 2]),
            classes=classes,
            matches=matches,
        )

    @paddle.no_grad()
    def match(
        self,
        logits: paddle.Tensor,
        boxes: paddle.Tensor,
        target_boxes: paddle.Tensor,
        targets: Any,
        more_costs: paddle.Tensor | None = None,
    ) -> QueryMatches:
        """Match queries with objects, separately for each image and layer; the host waits once, for all costs.

        Source: DETR, section 3.1, equation 1.

        Args:
            logits: (L, N, Q, classes or more).
            boxes: (L, N, Q, 4), center, width and height as fractions of the image.
            target_boxes: (N, M, 4), the boxes of ``targets`` in this form.
            more_costs: (L, N, Q, M), added to the costs of classes and boxes; None: nothing.

        Raises:
            UserError: SciPy is not installed.
        """
        counts = targets.box_counts
        pair_costs = self._costs(logits, boxes, target_boxes, targets.labels)  # (L, N, Q, M)
        pair_costs = pair_costs if more_costs is None else pair_costs + more_costs
        if counts is None:
            costs, counts = read(pair_costs, (targets.labels >= 0).astype("int64").sum(axis=1))
        else:
            (costs,) = read(pair_costs)
        return match_queries(costs, counts)

    def _costs(
        self, logits: paddle.Tensor, boxes: paddle.Tensor, target_boxes: paddle.Tensor, labels: paddle.Tensor
    ) -> paddle.Tensor:
        """Return the cost of each pair of a query and an object, (L, N, Q, M); see ``match`` for arguments."""
        class_scores = self.score_pairs(logits, labels)
        query_boxes, object_boxes = boxes.unsqueeze(3), target_boxes.unsqueeze(1)  # (L, N, Q, 1, 4), (N, 1, M, 4)
        distance = (query_boxes - object_boxes).abs().sum(axis=-1)
        overlap = generalized_paired_iou(center_to_corners(query_boxes), center_to_corners(object_boxes))
        class_weight, box_weight, giou_weight = self.cost
        return box_weight * distance - class_weight * class_scores - giou_weight * overlap

    def score_pairs(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the score of each query for the class of each object, (L, N, Q, M); ``labels`` are (N, M)."""
        one_hot = F.one_hot(paddle.clip(labels, min=0), logits.shape[-1])  # (N, M, classes)
        with autocast.off():
            scores = self.match_scores(logits)
            # A product with ones and zeros is a gather that broadcasts.
            return paddle.matmul(scores, one_hot.astype(scores.dtype), transpose_y=True)

    def match_scores(self, logits: paddle.Tensor) -> paddle.Tensor:
        """Return the class scores for the matching, in the shape of ``logits``: probabilities."""
        return F.softmax(logits, axis=-1)

    @staticmethod
    def _on_device(matches: QueryMatches, queries: int) -> list[paddle.Tensor]:
        """Copy the matches to the device in one transfer.

        Returns positions of the objects among the labels of all images, M + 1 of each, int64 (L * N * Q,); positions of
        the queries among the boxes of all layers, int64, and weights, (L * N * M,).
        """
        layers, images, most = matches.query_of.shape
        objects = matches.object_of + np.arange(images)[:, None] * (most + 1)
        rows = matches.query_of + np.arange(layers * images).reshape(layers, images, 1) * queries
        arrays = (array.ravel().astype(np.float64) for array in (objects, rows, matches.weight_of))  # exact
        *places, weights = to_device_together(*arrays)
        return [*(place.astype("int64") for place in places), weights]
