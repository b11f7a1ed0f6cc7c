"""RT-DETR's losses: varifocal class scores and boxes, of all decoder layers, the encoder's selection and denoising.

Sources: Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, CVPR 2024, section 4.3, with the authors'
RTDETRCriterion; Zhang et al., VarifocalNet, CVPR 2021, equation 2; Huang et al., DEIM, CVPR 2025, arXiv 2412.04234,
equation 3, with the authors' DEIMCriterion.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ....core.runtime.transfers import to_device
from ....core.tasks.step_types import LossTerm
from ...mask_queries.matching import QueryMatches
from ..boxes import center_to_corners, generalized_paired_iou, paired_iou, to_relative
from ..denoising import PREFIX, ContrastiveNoise
from ..detector import Outputs, single_or_double
from ..detr.criterion import SetCriterion

AUXILIARY, DENOISING = "_auxiliary", "_denoising"
_GAMMA, _MATCHING_ALPHA, _EPSILON = 2.0, 0.25, 1e-8  # of the focal cost

Sums = dict[str, paddle.Tensor]  # over a batch, by name


class HeadOutputs(NamedTuple):
    """Outputs of L heads for N images, in float32 or float64."""

    logits: paddle.Tensor  # (L, N, Q, classes)
    boxes: paddle.Tensor  # (L, N, Q, 4), center, width and height as fractions of the image


def stack_heads(outputs: Outputs, *others: str, prefix: str = "", kind: Any = HeadOutputs) -> Any:
    """Stack the outputs of the decoder's layers and of the heads ``others``, whose names start with ``prefix``.

    The result is of the type ``kind``, a ``NamedTuple`` of the outputs' names.
    """
    parts = []
    for name in kind._fields:
        more = [outputs[f"{prefix}{other}_{name}"].unsqueeze(0) for other in others]
        parts.append(single_or_double(paddle.concat([outputs[f"{prefix}layer_{name}"], *more])))
    return kind(*parts)


class BatchGroundTruth:
    """The objects of N images, M in each, and one more for "no object", which is class ``none``.

    ``values`` are n numbers of each object, (N, M, n), such as its box, and zeros for "no object".
    """

    def __init__(self, targets: Any, values: paddle.Tensor, none: int) -> None:
        images, self.most = targets.labels.shape
        no_object = paddle.full([images, 1], none, dtype=targets.labels.dtype)
        self._labels, self._none = paddle.concat([targets.labels, no_object], axis=1).flatten(), none
        self._denoising = targets.denoising
        self._values = paddle.concat([values, paddle.zeros_like(values[:, :1])], axis=1).flatten(0, 1)

    def rows(self, objects: np.ndarray) -> np.ndarray:
        """Return positions among the objects of all images, of objects int64 (..., N, Q), M for none."""
        return objects + (self.most + 1) * np.arange(objects.shape[-2])[:, None]

    def gather(self, rows: paddle.Tensor) -> "MatchedTargets":
        """Return the targets of queries whose objects have these positions, int64 (..., N, Q); see ``rows``."""
        classes = paddle.gather(self._labels, rows.flatten()).reshape(rows.shape)
        values = paddle.gather(self._values, rows.flatten()).reshape([*rows.shape, self._values.shape[-1]])
        return MatchedTargets(classes, values, (classes < self._none).astype(values.dtype))

    def gather_denoising(self) -> tuple["MatchedTargets", paddle.Tensor]:
        """Return the denoising queries' targets, and weights (N, D); raise ValueError if the batch has none."""
        queries = self._denoising
        if queries is None:
            raise ValueError(
                "a batch for a network with denoising has no denoising queries: see DetectionTargets.denoising"
            )
        images = paddle.arange(queries.objects.shape[0], dtype=queries.objects.dtype).unsqueeze(1)
        return self.gather(queries.objects + (self.most + 1) * images), queries.weights.astype(self._values.dtype)


class MatchedTargets(NamedTuple):
    """Targets of queries (..., N, Q)."""

    classes: paddle.Tensor  # int64, the number of classes for a query without an object
    values: paddle.Tensor  # (..., n), such as its box; zeros for a query without an object
    matched: paddle.Tensor  # 1 for a query with an object, else 0


class VarifocalCriterion(SetCriterion):
    """Varifocal loss of classes, L1 distance and generalized IoU of boxes.

    The terms ``class``, ``box`` and ``giou`` are of the last layer; terms with ``_auxiliary`` are summed over the other
    layers and the encoder's selection, terms with ``_denoising`` over all layers of the denoising queries. Each is
    divided by the objects of all devices and micro-batches, as by the authors, whom "reference" follows unless there
    are fewer objects than devices. ``iou`` is the mean IoU of matched boxes. For other arguments see ``SetCriterion``.

    Args:
        num_classes: number of classes, each with an output; there is no output for "no object".
        alpha: weight of a negative's score in the varifocal loss.
        matchability: exponent of DEIM's matchability-aware loss, which replaces the varifocal loss; None: varifocal.
        noise: generator of denoising queries; None: no denoising.
    """

    parts: tuple[str, ...] = ("class", "box", "giou")
    overlap_name = "iou"
    groups = 1  # of queries, each matched with all objects

    def __init__(
        self,
        num_classes: int,
        queries: int,
        layers: int,
        normalizer: str = "global",
        cost_class: float = 2.0,
        alpha: float = 0.75,
        noise: ContrastiveNoise | None = None,
        matchability: float | None = None,
        **weights: float,
    ):
        super().__init__(num_classes, queries, layers, normalizer, cost_class=cost_class, **weights)
        self.alpha, self.noise, self.matchability = alpha, noise, matchability
        self.suffixes = ("", AUXILIARY, *((DENOISING,) if noise else ()))
        self.normalizer_names = tuple(f"{name}{suffix}" for suffix in self.suffixes for name in self.parts)

    def loss_normalizers(self, batch: Mapping[str, np.ndarray]) -> dict[str, int | float]:
        """Return the normalizers of a batch."""
        return dict.fromkeys(self.normalizer_names, self.groups * int(np.count_nonzero(batch["labels"] >= 0)))

    def match_scores(self, logits: paddle.Tensor) -> paddle.Tensor:
        """Return the decrease of focal loss if a query is of a class (Lin et al., ICCV 2017, equation 5)."""
        score = F.sigmoid(logits)
        negative_loss = (1 - _MATCHING_ALPHA) * score**_GAMMA * -paddle.log(1 - score + _EPSILON)
        positive_loss = _MATCHING_ALPHA * (1 - score) ** _GAMMA * -paddle.log(score + _EPSILON)
        return negative_loss - positive_loss

    def terms(self, outputs: Outputs, targets: Any) -> dict[str, LossTerm]:
        """Return the loss terms of a batch."""
        heads = self.heads(outputs)
        matches = self.matches(heads, targets)
        sums = self.layer_sums(outputs, heads, targets, matches)
        last, objects = outputs["layer_logits"].shape[0] - 1, float(self.groups * matches.counts.sum())
        overlap = LossTerm(sums[self.overlap_name][last], objects, 0.0)
        return {**self.select_terms(sums, last, objects), self.overlap_name: overlap}

    def select_terms(self, sums: Sums, last: int, objects: float) -> dict[str, LossTerm]:
        """Return the loss's terms, divided by ``objects``; boxes of ordinary queries by pairs, if sums have these."""
        terms = {}
        for name in self.parts:
            last_sum, others = sums[name][last], sums[name].sum() - sums[name][last]
            if name != "class" and "objects_per_pair" in sums:
                last_sum, others = last_sum * sums["objects_per_pair"], others * sums["objects_per_pair"]
            terms[name] = LossTerm(last_sum, objects, self.weights[name])
            terms[name + AUXILIARY] = LossTerm(others, objects, self.weights[name])
            if self.noise:
                terms[name + DENOISING] = LossTerm(sums[name + DENOISING].sum(), objects, self.weights[name])
        return terms

    def heads(self, outputs: Outputs) -> Any:
        """Return the heads matched with objects: the decoder's layers, then the encoder's selection."""
        return stack_heads(outputs, "encoder")

    def matches(self, heads: Any, targets: Any) -> QueryMatches:
        """Match all heads with objects; the host waits for the device only here."""
        return self.match(heads.logits, heads[1], self.object_values(targets, heads.logits.dtype), targets)

    def object_values(self, targets: Any, dtype: paddle.dtype) -> paddle.Tensor:
        """Return the numbers of each object that losses compare, (N, M, n): its box, as fractions of the image."""
        return to_relative(targets.boxes.astype(dtype), targets.sizes)

    def ground_truth(self, targets: Any, dtype: paddle.dtype) -> BatchGroundTruth:
        """Return the objects of a batch."""
        return BatchGroundTruth(targets, self.object_values(targets, dtype), self.num_classes)

    def layer_sums(self, outputs: Outputs, heads: Any, targets: Any, matches: QueryMatches) -> Sums:
        """Return sums over the batch of each part: ``class``, ``box``, ``giou`` and ``iou`` (heads,).

        Sums with ``_denoising`` (layers,) are divided by the number of their images' groups.
        """
        truth = self.ground_truth(targets, heads.logits.dtype)
        matched = truth.gather(to_device(truth.rows(matches.object_of)))
        sums = {**self.class_sums(heads, matched), **self.place_sums(heads, matched)}
        if self.noise:
            matched, weights = truth.gather_denoising()
            heads = stack_heads(outputs, prefix=PREFIX)
            denoising_sums = {**self.class_sums(heads, matched, weights), **self.place_sums(heads, matched, weights)}
            sums.update({name + DENOISING: value for name, value in denoising_sums.items()})
        return sums

    def overlaps(self, heads: Any, matched: MatchedTargets) -> paddle.Tensor:
        """Return how well each query finds its object, from 0 to 1, 0 without one, (L, N, Q): the IoU of boxes."""
        overlap = paired_iou(center_to_corners(heads.boxes), center_to_corners(matched.values))
        return overlap * matched.matched

    def place_sums(self, heads: Any, matched: MatchedTargets, weights: paddle.Tensor | None = None) -> Sums:
        """Return the losses of places: ``box`` and ``giou``, see ``box_sums``."""
        return box_sums(heads.boxes, matched, weights)

    def class_sums(self, heads: Any, matched: MatchedTargets, weights: paddle.Tensor | None = None) -> Sums:
        """Return ``class``, the loss of classes, and the sum of ``overlaps`` by its name, (L,) each.

        The target of a query's score is its overlap with its object, such as its box's IoU, and 0 for other classes,
        which have a smaller weight the lower their score is. The varifocal loss weights the object's class by the
        overlap. DEIM's loss weights it by 1, and raises the overlap to a power, so that a box that overlaps little
        still learns a low score. ``weights`` of queries are (N, Q) or (L, N, Q).
        """
        with paddle.no_grad():
            overlap = self.overlaps(heads, matched)  # (L, N, Q)
            one_hot = F.one_hot(matched.classes, self.num_classes + 1)[..., :-1].astype(heads.logits.dtype)
            score = one_hot * overlap.unsqueeze(-1)  # (L, N, Q, classes)
            probability = F.sigmoid(heads.logits)
            if self.matchability is None:
                factors = self.alpha * probability**_GAMMA * (1 - one_hot) + score
            else:
                score = score**self.matchability
                factors = probability**self.matchability * (1 - one_hot) + one_hot
        entropy = F.binary_cross_entropy_with_logits(heads.logits, score, reduction="none")
        query_losses = (entropy * factors).sum(axis=-1)
        query_losses = query_losses if weights is None else query_losses * weights
        return {"class": query_losses.sum(axis=[1, 2]), self.overlap_name: overlap.sum(axis=[1, 2])}


def box_sums(boxes: paddle.Tensor, matched: MatchedTargets, weights: paddle.Tensor | None = None) -> Sums:
    """Return ``box``, L1 distance, and ``giou``, 1 - generalized IoU, (L,), of matched ``boxes`` (L, N, Q, 4)."""
    share = matched.matched if weights is None else matched.matched * weights
    distance = (boxes - matched.values).abs().sum(axis=-1) * share  # (L, N, Q)
    giou_loss = (1.0 - generalized_paired_iou(center_to_corners(boxes), center_to_corners(matched.values))) * share
    return {"box": distance.sum(axis=[1, 2]), "giou": giou_loss.sum(axis=[1, 2])}
