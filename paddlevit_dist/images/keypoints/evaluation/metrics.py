"""Scores of keypoints over the processes of a run: each process measures its images, all are scored once together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....core.tasks.metrics import TableMetrics
from ...detection.metrics import MatchMetrics
from ..detected_keypoints import DetectedKeypoints
from ..keypoint_set import KeypointSet
from . import point_scores
from .matching import MAX_DETECTIONS, KeypointMatches, PointTable, match_image
from .score_kind import KIND, encode_names, name_points

if TYPE_CHECKING:
    from ...detection.data.image_annotations import ImageAnnotations


class KeypointMetrics(MatchMetrics):
    """Collect the matches and errors of points of each image, from which ``KeypointScores`` computes all values.

    Args:
        class_names: names of the categories.
        keypoint_sets: points of each category.
        images: number of images of the split; None: unknown, and not checked.
        least_score: lowest score of the objects counted in each image.
        max_detections: number of objects per image and category that count, COCO's maxDets; None: 20.
    """

    def __init__(
        self,
        class_names: Sequence[str],
        keypoint_sets: Sequence[KeypointSet],
        images: int | None = None,
        least_score: float = 0.0,
        max_detections: int | None = None,
    ) -> None:
        self.table, self.limit = PointTable.from_sets(keypoint_sets), max_detections or MAX_DETECTIONS
        names = encode_names(name_points(class_names, keypoint_sets))
        settings = {"limits": np.array([self.limit]), "least_score": np.array(least_score), "point_names": names}
        super().__init__(KIND, class_names, images, settings)

    def update(
        self, image_id: int, truth: "ImageAnnotations", detected: DetectedKeypoints, size: tuple[int, int] | None = None
    ) -> KeypointMatches:
        """Add an image and return its matches; objects that are not finite are ignored, and ``size`` is not needed."""
        given = len(detected.scores)
        detected = detected.finite()
        matches = match_image(image_id, truth, detected, self.table, self.limit)
        self.add_matches(image_id, [matches.table], given, len(detected.scores), points=matches.sums)
        return matches

    def summary(self, values: dict[str, float]) -> str:
        """Format the ten numbers, and what they leave out."""
        parts = [super().summary(values)]
        if self.limit != MAX_DETECTIONS:
            parts.append(f"({self.limit:,} objects per image and category, COCO uses {MAX_DETECTIONS})")
        if "AR" not in values:  # defined whenever AP is
            parts.append("(no annotations: -1 in COCO's tools)")
        if values.get("not finite"):  # unknown for a part of the images
            parts.append(f"({values['not finite']:,} objects are not finite)")
        return " ".join(parts)


class PointMetrics(TableMetrics):
    """Collect the errors of the points of one object an image, from which ``KeypointErrorScores`` computes all values.

    Args:
        points: the K points of the object.
        share: distance within which a point is correct, as a share of the object's size, see ``find_side``.
    """

    def __init__(self, points: KeypointSet, share: float = point_scores.PCK_SHARE) -> None:
        super().__init__(point_scores.KIND, points.names, {"share": np.array(share)})

    def update(
        self,
        image_id: int,
        truth: "ImageAnnotations",
        detected: DetectedKeypoints,
        size: tuple[int, int] | None = None,
        spacing_mm: Sequence[float] | None = None,
    ) -> np.ndarray:
        """Add an image, and return the errors of its points, see ``point_scores.measure_points``.

        The first annotation is compared with the finite object of the highest score. ``image_id`` and ``size`` are not
        needed. ``spacing_mm`` is the width and the height of a pixel in millimeters; None: not known.
        """
        row = point_scores.compare_object(truth, detected, len(self.class_names), spacing_mm)
        self.add(**row)
        return row["errors"]
