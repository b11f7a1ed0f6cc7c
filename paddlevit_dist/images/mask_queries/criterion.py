"""The losses of queries with classes and masks, of all predictions of a network.

Source: Cheng et al., Mask2Former, CVPR 2022, arXiv 2112.01527, section 3.3, as in the code of tue-mps/eomt.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ...core.runtime import autocast
from ...core.runtime.transfers import read, to_device
from ...core.tasks.step_types import LossTerm
from ..models.layers import single_or_double
from .matching import ObjectCounter, QueryMatches, class_losses, list_query_pairs, match_queries
from .points import (
    DrawnMasks,
    PointRules,
    compare_at_points,
    draw_points,
    sample_between,
    sample_truth,
    sum_at_points,
)

_AUXILIARY = "_auxiliary"
_RULES = PointRules(repeats_border=False, is_soft=True)
TERMS = ("class", "mask", "dice")


class QueryTargets(NamedTuple):
    """The objects of a batch of N images, padded to M objects, M at least 1."""

    masks: DrawnMasks
    labels: paddle.Tensor  # int64 (N, M), from 0; padded with -1
    counts: np.ndarray  # int64 (N,), objects of each image, in host memory


class MaskQueryCriterion(ObjectCounter):
    """Cross-entropy of classes, and of masks cross-entropy and Dice at points, after a matching of each prediction.

    The terms ``class``, ``mask`` and ``dice`` are of the last prediction; terms with ``_auxiliary`` are summed over the
    others. Each image has other points in the matching, the same for all its queries and objects. Masks are divided by
    the matched objects of all devices and micro-batches, classes by the weights of all their queries. Without
    ``random_samples``, points are evenly spread, so that the losses of an image do not depend on other images.

    Args:
        num_classes: number of classes without "no object", which is the class after the last.
        queries: of an image.
        predictions: how many the network has.
        points: of a mask in the matching and in the losses.
    """

    queries_key = "num_queries of MODEL.OPTIONS"
    communicates = False  # between ranks
    noise = None  # no query starts at an object

    def __init__(
        self,
        num_classes: int,
        queries: int,
        predictions: int,
        class_weight: float = 2.0,
        mask_weight: float = 5.0,
        dice_weight: float = 5.0,
        no_object_weight: float = 0.1,
        points: int = 12544,
        random_samples: bool = True,
    ):
        super().__init__(queries, no_object_weight)
        self.num_classes, self.predictions = num_classes, predictions
        self.weights = dict(zip(TERMS, (class_weight, mask_weight, dice_weight)))
        self.points, self.random_samples = points, random_samples
        self.suffixes: tuple[str, ...] = ("", _AUXILIARY) if predictions > 1 else ("",)
        self.normalizer_names = tuple(f"{name}{suffix}" for suffix in self.suffixes for name in TERMS)

    def count(self, objects: np.ndarray) -> dict[str, int | float]:
        """Return the normalizers of images with ``objects``, int (N,)."""
        counts = self._count_terms(objects)
        return {name: counts[name.replace(_AUXILIARY, "")] for name in self.normalizer_names}

    def _count_terms(self, objects: np.ndarray) -> dict[str, int | float]:
        matched = int(np.minimum(objects, self.queries).sum())
        return dict(zip(TERMS, (self.class_count(objects), matched, matched)))

    def terms(self, outputs: Mapping[str, paddle.Tensor], targets: QueryTargets) -> dict[str, LossTerm]:
        """Return the loss terms of a batch, whose ``outputs`` are the network's in training."""
        classes = single_or_double(paddle.stack([outputs[f"classes_{i}"] for i in range(self.predictions)]))
        masks = [single_or_double(outputs[f"masks_{i}"]) for i in range(self.predictions)]
        with autocast.off():
            matches = self.match(classes, masks, targets)
            objects = matches.object_of + np.arange(len(targets.counts))[:, None] * (matches.query_of.shape[2] + 1)
            sums, truth = class_losses(classes, targets.labels, to_device(objects.ravel()), self.no_object_weight)
            pairs = list_query_pairs(matches, 1, self.queries)
            parts = [self.mask_sums(*head, targets.masks) for head in zip(masks, pairs)]
            by_name = dict(zip(TERMS, (sums, *(paddle.stack(part) for part in zip(*parts)))))
            counts, terms = self._count_terms(targets.counts), {}
            for suffix in self.suffixes:
                for name, values in by_name.items():
                    total = values[:-1].sum() if suffix else values[-1]
                    is_local = name + suffix not in self.normalizer_names
                    terms[name + suffix] = LossTerm(total, counts[name], self.weights[name], is_local)
            is_right = paddle.logical_and(classes[-1].argmax(axis=-1) == truth[-1], truth[-1] < self.num_classes)
            terms["accuracy"] = LossTerm(is_right.astype("float32").sum(), counts["mask"], 0.0)
        return terms

    @paddle.no_grad()
    def match(self, classes: paddle.Tensor, masks: list[paddle.Tensor], targets: QueryTargets) -> QueryMatches:
        """Match the queries of all predictions with objects; the host waits for the device only here."""
        labels = F.one_hot(paddle.clip(targets.labels, min=0), classes.shape[-1])
        costs = []
        for logits, maps in zip(classes, masks):
            shares = F.softmax(logits, axis=-1)  # a product with ones and zeros is a gather that broadcasts
            scores = paddle.matmul(shares, labels.astype(shares.dtype), transpose_y=True)
            costs.append(self.compare_masks(maps, targets) - self.weights["class"] * scores)
        (values,) = read(paddle.stack(costs))
        return match_queries(values, targets.counts)

    def compare_masks(self, maps: paddle.Tensor, targets: QueryTargets) -> paddle.Tensor:
        """Return the costs (N, Q, M) of masks' logits (N, Q, height, width)."""
        images, most = targets.labels.shape
        points = self.draw(images, self.points).astype(maps.dtype)
        logits = sample_between(maps, points, _RULES.repeats_border)  # (N, Q, points)
        objects = paddle.arange(images * most).unsqueeze(1)
        shared = points.unsqueeze(1).expand([-1, most, -1, -1]).flatten(0, 1)
        truth = sample_truth(targets.masks, objects, shared, _RULES.is_soft).reshape([images, most, -1])
        return compare_at_points(logits, truth, self.weights["mask"], self.weights["dice"])

    def mask_sums(self, maps: paddle.Tensor, pairs: Any, masks: DrawnMasks) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the sums over a prediction's pairs of the cross-entropy and of 1 - Dice."""
        if not len(pairs.images):  # every parameter gets a gradient on every rank
            nothing = 0.0 * maps.sum()
            return nothing, nothing
        chosen = paddle.gather(maps.flatten(0, 1), to_device(pairs.queries)).unsqueeze(1)
        return sum_at_points(chosen, to_device(pairs.objects[:, None]), masks, self.points, _RULES, self.draw)

    def draw(self, masks: int, number: int) -> paddle.Tensor:
        """Draw points of masks as fractions, see ``draw_points``."""
        return draw_points(masks, number, self.random_samples)
