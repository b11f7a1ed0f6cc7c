"""DETRPose's losses: class scores by similarity, distance and similarity of poses, of all layers and of denoising.

Source: Janampa and Pattichis, DETRPose, 2025, arXiv 2506.13027, section 3.3, with the authors' ``criterion.py`` and
``matcher.py`` (SebastianJanampa/DETRPose, a6ca202).
"""

from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ....core.runtime.transfers import constant
from ...detection.denoising import DenoisingQueries
from ...detection.detector import Outputs
from ...detection.rtdetr.criterion import MatchedTargets, Sums, stack_heads
from ...detection.rtdetr.distributions import DistanceBins
from ...detection.rtdetr.fine_criterion import FineCriterion
from .denoising import PoseNoise

_EPSILON = 1e-6  # added to the number of labeled points, and the smallest similarity
_LEAST_SCALE = 1e-12  # of squared distances, so that a point without an object has a finite gradient
_CLASS_WEIGHT, _CLASS_COST = 2.0, 2.0


class PoseTargets(NamedTuple):
    """The objects in a batch of N images, padded to M objects, M at least 1."""

    points: paddle.Tensor  # float32 (N, M, K, 3), x, y in pixels of the transformed image, COCO's visibility; or zeros
    areas: paddle.Tensor  # float32 (N, M), square pixels; padded with zeros
    labels: paddle.Tensor  # int64 (N, M), from 0; padded with -1
    sizes: paddle.Tensor  # int64 (N, 2), height and width of each image
    box_counts: np.ndarray | None = None  # int64 (N,) in host memory; None: only ``labels`` contains it
    denoising: DenoisingQueries | None = None  # objects with noise, for a network with denoising training, else None


class PoseHeadOutputs(NamedTuple):
    """Outputs of L heads for N images, in float32 or float64."""

    logits: paddle.Tensor  # (L, N, Q, classes)
    poses: paddle.Tensor  # (L, N, Q, 2 K), x and y of each point, as fractions of the image


class _TrueValues(NamedTuple):
    """What losses compare with the poses of queries or objects (...), see ``PoseCriterion.object_values``."""

    places: paddle.Tensor  # (..., 2 K), fractions
    is_labeled: paddle.Tensor  # (..., K), 1 for a labeled point, else 0
    scales: paddle.Tensor  # (..., K), of squared distances

    @classmethod
    def split(cls, values: paddle.Tensor) -> "_TrueValues":
        points = values.shape[-1] // 4
        return cls(*values.split([2 * points, points, points], axis=-1))


class PoseCriterion(FineCriterion):
    """Varifocal loss of classes (VFL, or MAL with ``matchability``), L1 distance and similarity of poses.

    A class's score learns the similarity of the query's pose with its object's, COCO's OKS with the sigmas of the data.
    ``keypoints`` is the sum of the distances of labeled points, ``oks`` is 1 - the similarity. They are divided as
    boxes in ``FineCriterion``, with one matching for the poses of all layers. ``distill`` teaches each layer the last
    one's distributions; the authors' recipes do not use it. The mean similarity of matched poses is ``similarity``.

    Args:
        sigmas: COCO's sigma of each point of each class.
        class_weight: factor of the class's weight, 2.
        distill_weight: 0: without ``distill``.
    """

    parts = ("class", "keypoints", "oks")
    overlap_name = "similarity"

    def __init__(
        self,
        sigmas: tuple[tuple[float, ...], ...],
        queries: int,
        layers: int,
        normalizer: str = "global",
        class_weight: float = 1.0,
        keypoints_weight: float = 10.0,
        oks_weight: float = 4.0,
        distill_weight: float = 0.0,
        cost_keypoints: float = 10.0,
        cost_oks: float = 4.0,
        alpha: float = 0.25,
        noise: PoseNoise | None = None,
        matchability: float | None = None,
        *,
        bins: DistanceBins,
    ):
        super().__init__(
            len(sigmas), queries, layers, normalizer, alpha=alpha, noise=noise, matchability=matchability, bins=bins
        )
        self.weights = {
            "class": _CLASS_WEIGHT * class_weight,
            "keypoints": keypoints_weight,
            "oks": oks_weight,
            "distill": distill_weight,
        }
        self.cost = (_CLASS_COST, cost_keypoints, cost_oks)
        self.variances = tuple(tuple((2 * sigma) ** 2 for sigma in row) for row in sigmas)

    def heads(self, outputs: Outputs) -> PoseHeadOutputs:
        """Return the heads matched with objects: decoder's layers, first layer's plain head, encoder's selection."""
        return stack_heads(outputs, "first", "encoder", kind=PoseHeadOutputs)

    def object_values(self, targets: PoseTargets, dtype: paddle.dtype) -> paddle.Tensor:
        """Return the numbers of each object, (N, M, 4 K): places, whether they are labeled, scales of distances.

        Places are fractions of the image. A squared distance of such places, divided by the scale, is the exponent of
        the similarity.
        """
        sizes = targets.sizes.astype(dtype)  # height, width
        points = targets.points.astype(dtype)
        places = points[..., :2] / sizes.flip([1]).unsqueeze([1, 2])
        is_labeled = (points[..., 2] > 0).astype(dtype)
        variances = constant(_stack_rows, self.variances).astype(dtype)
        of_class = F.embedding(paddle.clip(targets.labels, min=0), variances)  # (N, M, K)
        areas = targets.areas.astype(dtype) / (sizes[:, :1] * sizes[:, 1:])
        scales = 2 * areas.unsqueeze(-1) * of_class
        return paddle.concat([places.flatten(2), is_labeled, scales], axis=-1)

    def overlaps(self, heads: PoseHeadOutputs, matched: MatchedTargets) -> paddle.Tensor:
        """Return the similarity of each query's pose with its object's, 0 without one, (L, N, Q)."""
        return similarity(heads.poses, _TrueValues.split(matched.values)) * matched.matched

    def place_sums(self, heads: PoseHeadOutputs, matched: MatchedTargets, weights: paddle.Tensor | None = None) -> Sums:
        """Return ``keypoints`` and ``oks`` of matched poses, (L,)."""
        true = _TrueValues.split(matched.values)
        share = matched.matched if weights is None else matched.matched * weights
        distance = _pose_distance(heads.poses, true) * share  # (L, N, Q)
        difference = (1.0 - similarity(heads.poses, true)) * share
        return {"keypoints": distance.sum(axis=[1, 2]), "oks": difference.sum(axis=[1, 2])}

    def _side_sums(self, *arguments: Any) -> Sums:
        return super()._side_sums(*arguments) if self.weights["distill"] else {}

    def _costs(
        self, logits: paddle.Tensor, boxes: paddle.Tensor, target_boxes: paddle.Tensor, labels: paddle.Tensor
    ) -> paddle.Tensor:
        """Return the cost of each pair of a query and an object, (L, N, Q, M), of poses and ``object_values``."""
        true = _TrueValues.split(target_boxes.unsqueeze(1))  # (N, 1, M, ...)
        poses = boxes.unsqueeze(3)  # (L, N, Q, 1, 2 K)
        distance, overlap = _pose_distance(poses, true), similarity(poses, true)
        class_weight, distance_weight, overlap_weight = self.cost
        costs = distance_weight * distance - overlap_weight * overlap
        return costs - class_weight * self.score_pairs(logits, labels)


def _stack_rows(rows: tuple[tuple[float, ...], ...]) -> np.ndarray:
    return np.array(rows, np.float64)


def similarity(poses: paddle.Tensor, true: _TrueValues) -> paddle.Tensor:
    """Return the object keypoint similarity (OKS) of poses (..., 2 K), from 1e-6 to 1, (...).

    It is the mean of exp(-d^2 / (2 area (2 sigma)^2)) over the labeled points. Source:
    https://cocodataset.org/#keypoints-eval, section 1.2; DETRPose's ``oks_overlaps`` for the epsilons.
    """
    squares = (poses - true.places) ** 2
    squares = squares.reshape([*squares.shape[:-1], -1, 2]).sum(-1)  # (..., K)
    similarities = paddle.exp(-squares / paddle.clip(true.scales, min=_LEAST_SCALE)) * true.is_labeled
    return paddle.clip(similarities.sum(-1) / (true.is_labeled.sum(-1) + _EPSILON), min=_EPSILON)


def _pose_distance(poses: paddle.Tensor, true: _TrueValues) -> paddle.Tensor:
    """Return the sum of the distances along both axes of the labeled points, (...)."""
    distances = (poses - true.places).abs()
    return (distances.reshape([*distances.shape[:-1], -1, 2]).sum(-1) * true.is_labeled).sum(-1)
