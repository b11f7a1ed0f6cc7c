"""Scores of keypoints over the processes of a run: each process measures its images, all are scored once together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....tasks.metrics import TableMetrics
from ...detection.metrics import MatchMetrics
from ..detected_keypoints import DetectedKeypoints
from ..keypoint_set import KeypointSet
from . import point_scores
from .matching import MAX_DETECTIONS, KeypointMatches, PointTable, match_image
from .score_kind import KIND, encode_names, name_points

if TYPE_CHECKING:
    from ...detection.data.detection_dataset import ImageAnnotations


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
            parts.append("(no annotations: AP is undefined, -1 in COCO's tools)")
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
        """Add an image, and return the errors of its points, see ``measure_points``.

        The first annotation is compared with the finite object of the highest score. ``image_id`` and ``size`` are not
        needed. ``spacing_mm`` is the width and the height of a pixel in millimeters; None: not known.
        """
        number = len(self.class_names)
        errors, places = measure_points(truth, detected, number)
        errors_mm = np.full(number, np.nan)
        if spacing_mm is not None:
            errors_mm = measure_points(truth, detected, number, spacing_mm)[0]
        side = find_side(truth, number)
        self.add(errors=errors, errors_mm=errors_mm, sides=side, places=places)
        return errors


def measure_points(
    truth: "ImageAnnotations", detected: DetectedKeypoints, number: int, spacing_mm: Sequence[float] = (1.0, 1.0)
) -> tuple[np.ndarray, np.ndarray]:
    """Measure the distances of the best object's points from the first annotation's.

    Args:
        truth: annotations with points in pixels; without one, no point is labeled.
        detected: objects; those that are not finite are ignored.
        number: number of points, K.
        spacing_mm: width and height of a pixel; by default, distances are in pixels.

    Returns:
        Errors, float64 (K,), NaN for a point that is not labeled and infinite where nothing is detected; and x, y,
        score, true x and true y of each point in pixels, float64 (K, 5), NaN where not known.
    """
    places = np.full((number, 5), np.nan)
    if truth.points is not None and len(truth.points):
        own = np.asarray(truth.points[0, :number], np.float64)
        is_labeled = own[:, 2] > 0
        places[np.flatnonzero(is_labeled), 3:] = own[is_labeled, :2]
    detected = detected.finite()
    if len(detected.scores):
        best = np.asarray(detected.points[int(np.argmax(detected.scores))], np.float64)[:number]
        places[: len(best), :3] = best
    errors = np.linalg.norm((places[:, :2] - places[:, 3:]) * np.asarray(spacing_mm, np.float64), axis=1)
    is_missing = ~np.isnan(places[:, 3]) & np.isnan(places[:, 0])
    return np.where(is_missing, np.inf, errors), places


def find_side(truth: "ImageAnnotations", number: int) -> float:
    """Return the size of the first annotation in pixels: the longer side of the extent of its ``number`` points.

    With less than two labeled points it is the longer side of the box; NaN without an annotation. A box says little
    where it is the whole image, as in a table of one object an image.
    """
    if not len(truth.labels):
        return np.nan
    points = np.zeros((0, 3)) if truth.points is None else np.asarray(truth.points[0, :number], np.float64)
    labeled = points[points[:, 2] > 0, :2]
    if len(labeled) < 2:
        return float(truth.boxes[0, 2:].max())
    return float((labeled.max(axis=0) - labeled.min(axis=0)).max())
