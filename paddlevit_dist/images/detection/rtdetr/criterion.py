"""RT-DETR's losses: varifocal scores of classes, and boxes, of all decoder layers, the encoder's choice and denoising.

Sources: Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, CVPR 2024, section 4.3, with the authors'
RTDETRCriterion; Zhang et al., VarifocalNet, CVPR 2021, equation 2.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ....runtime.transfers import to_device
from ....tasks.task import LossTerm
from ..boxes import corners, generalized_iou, iou, relative
from ..detector import DetectionTargets, Outputs, single_or_double
from ..detr.criterion import QueryMatches, SetCriterion
from .denoising import PREFIX, ContrastiveNoise

AUXILIARY, DENOISING = "_auxiliary", "_denoising"
_GAMMA, _MATCHING_ALPHA, _LEAST = 2.0, 0.25, 1e-8  # of the focal cost

Sums = dict[str, paddle.Tensor]  # over a batch, by name


class HeadOutputs(NamedTuple):
    """What L heads say of N images, in float32 or float64.

    Attributes:
        logits: (L, N, Q, classes).
        boxes: (L, N, Q, 4), center, width and height as shares of the image.
    """

    logits: paddle.Tensor
    boxes: paddle.Tensor


def judged(outputs: Outputs, *others: str, prefix: str = "") -> HeadOutputs:
    """What the decoder's layers say, and behind them ``others``; of the outputs whose names begin with ``prefix``."""
    parts = []
    for name in HeadOutputs._fields:
        more = [outputs[f"{prefix}{other}_{name}"].unsqueeze(0) for other in others]
        parts.append(single_or_double(paddle.concat([outputs[f"{prefix}layer_{name}"], *more])))
    return HeadOutputs(*parts)


class BatchGroundTruth:
    """The objects of N images, M in each, and one more that is none.

    Args:
        dtype: of boxes.
        none: the class of no object.
    """

    def __init__(self, targets: DetectionTargets, dtype: paddle.dtype, none: int) -> None:
        images, self.most = targets.labels.shape
        labels, boxes = targets.labels, relative(targets.boxes.astype(dtype), targets.sizes)
        nothing = paddle.full([images, 1], none, dtype=labels.dtype)
        self._labels, self._none = paddle.concat([labels, nothing], axis=1).flatten(), none
        self._denoising = targets.denoising
        self._boxes = paddle.concat([boxes, paddle.zeros([images, 1, 4], dtype=dtype)], axis=1).reshape([-1, 4])

    def rows(self, objects: np.ndarray) -> np.ndarray:
        """The places among all images' of the objects, int64 (..., N, Q), M for none."""
        return objects + (self.most + 1) * np.arange(objects.shape[-2])[:, None]

    def of(self, rows: paddle.Tensor) -> "MatchedTargets":
        """What is asked of queries whose objects have these places, int64 (..., N, Q); see ``rows``."""
        classes = paddle.gather(self._labels, rows.flatten()).reshape(rows.shape)
        boxes = paddle.gather(self._boxes, rows.flatten()).reshape([*rows.shape, 4])
        return MatchedTargets(classes, boxes, (classes < self._none).astype(boxes.dtype))

    def of_denoising(self) -> tuple["MatchedTargets", paddle.Tensor]:
        """What is asked of denoising queries, and their weights (N, D).

        Raises:
            ValueError: the batch was collated without.
        """
        queries = self._denoising
        if queries is None:
            raise ValueError(
                "a batch for a network that learns from denoising queries has none: see DetectionTargets.denoising"
            )
        images = paddle.arange(queries.objects.shape[0], dtype=queries.objects.dtype).unsqueeze(1)
        return self.of(queries.objects + (self.most + 1) * images), queries.weights.astype(self._boxes.dtype)


class MatchedTargets(NamedTuple):
    """What is asked of queries (..., N, Q).

    Attributes:
        classes: int64, the number of classes where a query is to be none.
        boxes: (..., 4), zeros there.
        matched: 1 where there is an object, else 0.
    """

    classes: paddle.Tensor
    boxes: paddle.Tensor
    matched: paddle.Tensor


class VarifocalCriterion(SetCriterion):
    """Varifocal loss of classes, L1 distance and generalized IoU of boxes.

    The terms ``class``, ``box`` and ``giou`` are those of the last layer; those with ``_auxiliary`` are summed over the
    other layers and the encoder's choice, those with ``_denoising`` over all layers of the denoising queries. Each is
    divided by the objects of all devices and micro-batches; so do the authors, whom "reference" follows where there
    are not fewer objects than devices. ``iou`` is the mean overlap of matched boxes.

    Args:
        num_classes: each has an output of its own, there is none for "no object".
        queries, layers: of the decoder.
        normalizer: "global" or "reference".
        cost_class: of the class in the matching.
        alpha: weight of a negative's score in the varifocal loss.
        noise: how denoising queries are drawn; None: there are none.
        weights: of the terms and of the other costs, as ``SetCriterion`` takes them.
    """

    parts: tuple[str, ...] = ("class", "box", "giou")

    def __init__(
        self,
        num_classes: int,
        queries: int,
        layers: int,
        normalizer: str = "global",
        cost_class: float = 2.0,
        alpha: float = 0.75,
        noise: ContrastiveNoise | None = None,
        **weights: float,
    ):
        super().__init__(num_classes, queries, layers, normalizer, cost_class=cost_class, **weights)
        self.alpha, self.noise = alpha, noise
        self.suffixes = ("", AUXILIARY, *((DENOISING,) if noise else ()))
        self.count_names = tuple(f"{name}{suffix}" for suffix in self.suffixes for name in self.parts)

    def counts(self, batch: Mapping[str, np.ndarray]) -> dict[str, int | float]:
        return dict.fromkeys(self.count_names, int(np.count_nonzero(batch["labels"] >= 0)))

    def fits(self, logits: paddle.Tensor) -> paddle.Tensor:
        """The gain of focal loss if a query is of a class. Source: Lin et al., Focal Loss for Dense Object Detection,
        ICCV 2017, equation 5."""
        score = F.sigmoid(logits)
        as_none = (1 - _MATCHING_ALPHA) * score**_GAMMA * -paddle.log(1 - score + _LEAST)
        as_one = _MATCHING_ALPHA * (1 - score) ** _GAMMA * -paddle.log(score + _LEAST)
        return as_none - as_one

    def terms(self, outputs: Outputs, targets: DetectionTargets) -> dict[str, LossTerm]:
        heads = self.heads(outputs)
        matches = self.matches(heads, targets)
        sums = self.layer_sums(outputs, heads, targets, matches)
        last, objects = outputs["layer_logits"].shape[0] - 1, float(matches.counts.sum())
        return {**self.select_terms(sums, last, objects), "iou": LossTerm(sums["iou"][last], objects, 0.0)}

    def select_terms(self, sums: Sums, last: int, objects: float) -> dict[str, LossTerm]:
        """The terms that count in the loss.

        Args:
            sums: see ``layer_sums``; last: number of the last layer.
            objects: what they are divided by; the ordinary queries' boxes by ``pairs`` of ``sums``, if they are there.
        """
        terms = {}
        for name in self.parts:
            count, of_last = objects if name == "class" else sums.get("pairs", objects), sums[name][last]
            terms[name] = LossTerm(of_last, count, self.weights[name])
            terms[name + AUXILIARY] = LossTerm(sums[name].sum() - of_last, count, self.weights[name])
            if self.noise:
                terms[name + DENOISING] = LossTerm(sums[name + DENOISING].sum(), objects, self.weights[name])
        return terms

    def heads(self, outputs: Outputs) -> HeadOutputs:
        """What is matched with objects: the decoder's layers, then the encoder's choice."""
        return judged(outputs, "encoder")

    def matches(self, heads: HeadOutputs, targets: DetectionTargets) -> QueryMatches:
        """The assignments of all heads; the one time that the host waits for the device."""
        boxes = relative(targets.boxes.astype(heads.boxes.dtype), targets.sizes)
        return self.match(heads.logits, heads.boxes, boxes, targets)

    def layer_sums(
        self, outputs: Outputs, heads: HeadOutputs, targets: DetectionTargets, matches: QueryMatches
    ) -> Sums:
        """Sums over the batch of each part: ``class``, ``box``, ``giou`` and ``iou`` (heads,), and those with
        ``_denoising`` (layers,), which are divided by the groups of their images."""
        truth = BatchGroundTruth(targets, heads.boxes.dtype, self.num_classes)
        wanted = truth.of(to_device(truth.rows(matches.object_of)))
        sums = {**self.class_sums(heads, wanted), **box_sums(heads.boxes, wanted)}
        if self.noise:
            wanted, weights = truth.of_denoising()
            heads = judged(outputs, prefix=PREFIX)
            found = {**self.class_sums(heads, wanted, weights), **box_sums(heads.boxes, wanted, weights)}
            sums.update({name + DENOISING: value for name, value in found.items()})
        return sums

    def class_sums(self, heads: HeadOutputs, wanted: MatchedTargets, weights: paddle.Tensor | None = None) -> Sums:
        """``class``, the varifocal loss: a query is to say how well its own box overlaps its object, and 0 for other
        classes; those count less the surer the query is that they are absent. And ``iou``, the overlaps. Each (L,).

        Args:
            weights: (N, Q) or (L, N, Q), of the queries.
        """
        with paddle.no_grad():
            quality = iou(corners(heads.boxes), corners(wanted.boxes)) * wanted.matched  # (L, N, Q)
            of_class = F.one_hot(wanted.classes, self.num_classes + 1)[..., :-1].astype(heads.logits.dtype)
            score = of_class * quality.unsqueeze(-1)  # (L, N, Q, classes)
            said = F.sigmoid(heads.logits)
            strength = self.alpha * said**_GAMMA * (1 - of_class) + score
        entropy = F.binary_cross_entropy_with_logits(heads.logits, score, reduction="none")
        of_query = (entropy * strength).sum(axis=-1)
        of_query = of_query if weights is None else of_query * weights
        return {"class": of_query.sum(axis=[1, 2]), "iou": quality.sum(axis=[1, 2])}


def box_sums(boxes: paddle.Tensor, wanted: MatchedTargets, weights: paddle.Tensor | None = None) -> Sums:
    """``box``, the L1 distance, and ``giou``, 1 - the generalized IoU, of matched boxes, (L,) each.

    Args:
        boxes: (L, N, Q, 4); weights: (N, Q), of the queries.
    """
    share = wanted.matched if weights is None else wanted.matched * weights
    distance = (boxes - wanted.boxes).abs().sum(axis=-1) * share  # (L, N, Q)
    overlap = (1.0 - generalized_iou(corners(boxes), corners(wanted.boxes))) * share
    return {"box": distance.sum(axis=[1, 2]), "giou": overlap.sum(axis=[1, 2])}
