"""DETR's losses: of matched pairs of queries and objects, over all decoder layers.

Source: Carion et al., End-to-End Object Detection with Transformers, 2020, equation 2 and section 4, "Technical
details"; the authors' SetCriterion.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ....runtime import autocast
from ....runtime.errors import UserError
from ....runtime.transfers import read, to_device_together
from ....tasks.task import LossTerm, StepPosition
from ..boxes import corners, generalized_iou, relative
from ..detector import DetectionCriterion, DetectionTargets, Outputs

_AUXILIARY = "_auxiliary"
_INSTALL = "pip install '.[detection]' in the folder of paddlevit_dist's setup.py"


class LayerLosses(NamedTuple):
    """Sums over a batch, for each of L layers.

    Attributes:
        label: (L,), the weighted cross-entropy over all queries.
        box: (L,), the L1 distance of matched boxes, as shares of the image.
        giou: (L,), 1 - the generalized IoU of matched boxes.
        classes: int64 (L, N, Q), the class that each query was to have.
        matches: of queries with objects.
    """

    label: paddle.Tensor
    box: paddle.Tensor
    giou: paddle.Tensor
    classes: paddle.Tensor
    matches: "QueryMatches"


class SetCriterion(DetectionCriterion):
    """Cross-entropy of classes, L1 distance and generalized IoU of boxes.

    The terms ``class``, ``box`` and ``giou`` are those of the last layer; those with ``_auxiliary`` are summed over the
    other layers. ``accuracy`` is the share of objects whose query prefers their class.

    With the normalizer "global" each is divided by its count over all devices and micro-batches: objects, and the
    weights of all queries, 1 for one with an object and ``no_object_weight`` for any other. "reference" is as the
    authors have it: the class terms are divided by the weights on each device and micro-batch, so a device whose
    images have few objects counts them more. (Where there are fewer objects than devices, the authors divide by one
    for each device; here it is by the objects.)

    Args:
        num_classes: without "no object", which is the class after the last.
        queries, layers: of the decoder.
        normalizer: "global" or "reference".
        class_weight, box_weight, giou_weight: of the terms in the loss.
        no_object_weight: of a query without an object in the cross-entropy.
        cost_class, cost_box, cost_giou: weights of the matching cost; ``cost_class`` None: ``class_weight``.
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
        super().__init__(normalizer)
        self.num_classes, self.queries = num_classes, queries
        self.weights = {"class": class_weight, "box": box_weight, "giou": giou_weight}
        self.no_object_weight = no_object_weight
        self.cost = (class_weight if cost_class is None else cost_class, cost_box, cost_giou)
        self._seen = self._left_out = self._most = 0  # objects since the last report: all, without a query, of an image
        self._noted: tuple[int, set[int]] = -1, set()  # update and its micro-batches whose objects are counted
        self.suffixes: tuple[str, ...] = ("", _AUXILIARY) if layers > 1 else ("",)
        known = ("class", "box", "giou") if self.is_global else ("box", "giou")
        self.count_names = tuple(f"{name}{suffix}" for suffix in self.suffixes for name in known)

    def counts(self, batch: Mapping[str, np.ndarray]) -> dict[str, int | float]:
        objects = np.count_nonzero(batch["labels"] >= 0, axis=1)  # (N,)
        known = {"class": self.class_count(objects), "box": int(objects.sum()), "giou": int(objects.sum())}
        return {name: known[name.replace(_AUXILIARY, "")] for name in self.count_names}

    def class_count(self, objects: np.ndarray) -> float:
        """The weights of all queries of images with so many ``objects``, int (N,)."""
        matched = int(np.minimum(objects, self.queries).sum())
        return matched + self.no_object_weight * (len(objects) * self.queries - matched)

    def terms(self, outputs: Outputs, targets: DetectionTargets) -> dict[str, LossTerm]:
        logits = outputs["layer_logits"]
        losses = self.layer_losses(logits, outputs["layer_boxes"], targets)
        sums = {"class": losses.label, "box": losses.box, "giou": losses.giou}
        objects = losses.matches.counts
        label_count, box_count = self.class_count(objects), float(objects.sum())
        terms = {}
        for suffix in self.suffixes:
            for name, by_layer in sums.items():
                count = label_count if name == "class" else box_count
                part = by_layer[:-1].sum() if suffix else by_layer[-1]
                terms[name + suffix] = LossTerm(part, count, self.weights[name])
        with paddle.no_grad():
            truth = losses.classes[-1]
            right = paddle.logical_and(logits[-1].argmax(axis=-1) == truth, truth < self.num_classes)
            terms["accuracy"] = LossTerm(right.astype("float32").sum(), box_count, 0.0)
        return terms

    def note_objects(self, objects: np.ndarray, step: StepPosition) -> None:
        update, micros = self._noted
        if update != step.update:
            micros = set()
        if step.micro in micros:
            return
        self._noted = step.update, {*micros, step.micro}
        self._seen += int(objects.sum())
        self._left_out += int(np.maximum(objects - self.queries, 0).sum())
        self._most = max(self._most, int(objects.max()))

    def epoch_lines(self) -> list[str]:
        said = []
        if self._left_out:
            said = [
                f"{self._left_out:,} of {self._seen:,} objects on the first device had no query to find them: an "
                f"image holds up to {self._most:,}, and MODEL.NUM_QUERIES is {self.queries:,}; raise it"
            ]
        self._seen = self._left_out = self._most = 0
        return said

    def layer_losses(self, logits: paddle.Tensor, boxes: paddle.Tensor, targets: DetectionTargets) -> LayerLosses:
        """The losses of each layer.

        Args:
            logits: (L, N, Q, classes + 1).
            boxes: (L, N, Q, 4), center, width and height as shares of the image.
        """
        labels, wanted = targets.labels, relative(targets.boxes.astype(boxes.dtype), targets.sizes)
        matches = self.match(logits, boxes, wanted, targets)
        objects, queries, share = self._on_device(matches, boxes.shape[2])
        nothing = paddle.full([labels.shape[0], 1], self.num_classes, dtype=labels.dtype)
        table = paddle.concat([labels, nothing], axis=1)  # (N, M + 1)
        classes = paddle.gather(table.flatten(), objects).reshape(list(matches.object_of.shape))
        weights = paddle.where(
            classes == self.num_classes,
            paddle.full_like(classes, self.no_object_weight, dtype=logits.dtype),
            paddle.ones_like(classes, dtype=logits.dtype),
        )
        entropy = F.cross_entropy(logits, classes.unsqueeze(-1), reduction="none").squeeze(-1)  # (L, N, Q)
        found = paddle.gather(boxes.reshape([-1, 4]), queries).reshape([*matches.query_of.shape, 4])  # (L, N, M, 4)
        # An object without a query counts 0, but stays in the graph: every parameter gets a gradient on every rank.
        share = share.astype(boxes.dtype).reshape(list(matches.weight_of.shape))  # (L, N, M)
        distance = (found - wanted).abs().sum(axis=-1)
        overlap = generalized_iou(corners(found), corners(wanted))
        return LayerLosses(
            label=(entropy * weights).sum(axis=[1, 2]),
            box=(distance * share).sum(axis=[1, 2]),
            giou=((1.0 - overlap) * share).sum(axis=[1, 2]),
            classes=classes,
            matches=matches,
        )

    @paddle.no_grad()
    def match(
        self, logits: paddle.Tensor, boxes: paddle.Tensor, wanted: paddle.Tensor, targets: DetectionTargets
    ) -> "QueryMatches":
        """Match queries with objects, each image and each layer by itself. The host waits for the device once, for the
        costs of all layers.

        Source: DETR, section 3.1, equation 1.

        Args:
            logits: (L, N, Q, classes or more); boxes: (L, N, Q, 4), center, width and height as shares of the image.
            wanted: (N, M, 4), the boxes of ``targets`` as such shares.

        Raises:
            UserError: SciPy is not installed.
        """
        assign, counts = solver(), targets.box_counts
        of_pairs = self._costs(logits, boxes, wanted, targets.labels)  # (L, N, Q, M)
        if counts is None:
            costs, counts = read(of_pairs, (targets.labels >= 0).astype("int64").sum(axis=1))
        else:
            (costs,) = read(of_pairs)
        layers, images, queries, most = costs.shape
        query_of = np.zeros((layers, images, most), dtype=np.int64)
        weight_of = np.zeros((layers, images, most), dtype=np.float32)
        object_of = np.full((layers, images, queries), most, dtype=np.int64)
        for layer, (image, number) in itertools.product(range(layers), enumerate(counts)):
            own = costs[layer, image, :, :number]
            is_finite = np.isfinite(own).all()
            rows, columns = assign(own if is_finite else np.zeros_like(own))
            query_of[layer, image, columns] = rows
            object_of[layer, image, rows] = columns
            weight_of[layer, image, columns] = 1.0 if is_finite else np.nan
        return QueryMatches(query_of, weight_of, object_of, counts)

    def _costs(
        self, logits: paddle.Tensor, boxes: paddle.Tensor, wanted: paddle.Tensor, labels: paddle.Tensor
    ) -> paddle.Tensor:
        """What each pair of a query and an object costs, (L, N, Q, M); arguments as of ``match``."""
        chosen = F.one_hot(paddle.clip(labels, min=0), logits.shape[-1])  # (N, M, classes)
        with autocast.off():
            scores = self.fits(logits)
            # A product with ones and zeros, as a gather that broadcasts.
            found = paddle.matmul(scores, chosen.astype(scores.dtype), transpose_y=True)
        ours, theirs = boxes.unsqueeze(3), wanted.unsqueeze(1)  # (L, N, Q, 1, 4), (N, 1, M, 4)
        distance = (ours - theirs).abs().sum(axis=-1)
        overlap = generalized_iou(corners(ours), corners(theirs))
        of_class, of_box, of_giou = self.cost
        return of_box * distance - of_class * found - of_giou * overlap

    def fits(self, logits: paddle.Tensor) -> paddle.Tensor:
        """How well each class fits a query, for the matching, in the shape of ``logits``: its probability."""
        return F.softmax(logits, axis=-1)

    @staticmethod
    def _on_device(matches: "QueryMatches", queries: int) -> list[paddle.Tensor]:
        """What was matched, in one transfer: the objects' places among the labels of all images, one more than M of
        each, int64 (L * N * Q,); the queries' among the boxes of all layers, int64, and the weights, (L * N * M,)."""
        layers, images, most = matches.query_of.shape
        objects = matches.object_of + np.arange(images)[:, None] * (most + 1)
        rows = matches.query_of + np.arange(layers * images).reshape(layers, images, 1) * queries
        arrays = (array.ravel().astype(np.float64) for array in (objects, rows, matches.weight_of))  # exact
        *places, weights = to_device_together(*arrays)
        return [*(place.astype("int64") for place in places), weights]


class QueryMatches(NamedTuple):
    """Matched pairs of L layers and N images, with Q queries and at most M objects, in the host's memory.

    Attributes:
        query_of: int64 (L, N, M), the query of each object; 0 where there is none.
        weight_of: float32 (L, N, M), 1 for an object that has a query, else 0; NaN for all objects of an image for
            which a prediction was not finite, so that the loss is not either.
        object_of: int64 (L, N, Q), the object of each query; M where it has none.
        counts: int64 (N,), objects of each image; where they are more than queries, only Q have one.
    """

    query_of: np.ndarray
    weight_of: np.ndarray
    object_of: np.ndarray
    counts: np.ndarray


def solver() -> Callable[[np.ndarray], Any]:
    """SciPy's ``linear_sum_assignment``.

    Raises:
        UserError: SciPy is not installed.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise UserError(f"DETR matches its queries with SciPy, which is not installed: {_INSTALL}") from error
    return linear_sum_assignment
