"""Records of an evaluation of keypoints, from which figures are built."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..detection.evaluation.match_tables import IOU_THRESHOLDS
from .evaluation.matching import LABELED, KeypointMatches
from .evaluation.point_scores import find_side, measure_points

if TYPE_CHECKING:
    from ..detection.data.image_annotations import ImageAnnotations
    from .detected_keypoints import DetectedKeypoints

POINT_ERRORS = "points", "distances", "shares", "similarities", "is_exchanged"  # columns of (m,)
_IN_ALL_AREAS = np.uint64((1 << len(IOU_THRESHOLDS)) - 1)


class KeypointRecord(NamedTuple):
    """Record of an image without areas: about 10 bytes a result, 15 a point of an object that is found, and 900 more.

    The first five columns are as in ``DetectionRecord``.
    """

    labels: np.ndarray  # uint16 (d,)
    scores: np.ndarray  # float32 (d,)
    true_positives: np.ndarray  # uint16 (d,), bits of the thresholds of OKS
    ignored: np.ndarray  # uint16 (d,), likewise
    true_labels: np.ndarray  # uint16 (n,), labels of the annotations that count
    labeled: np.ndarray  # uint16 (points,), labeled points of these annotations, see ``PointTable``
    points: np.ndarray  # uint16 (m,), number of each labeled point of the annotations that are found at an OKS of 0.5
    distances: np.ndarray  # float32 (m,), its error in pixels
    shares: np.ndarray  # float32 (m,), its error as a share of the square root of the object's area
    similarities: np.ndarray  # float32 (m,), its part of OKS
    is_exchanged: np.ndarray  # bool (m,), whether it is nearer to its mirrored point

    @classmethod
    def from_matches(cls, matches: KeypointMatches) -> "KeypointRecord":
        """Build the record of one image from its matches."""
        table, errors = matches.table, matches.errors
        true_positives, ignored = (
            (bits & _IN_ALL_AREAS).astype(np.uint16) for bits in (table.true_positives, table.ignored)
        )
        return cls(
            table.labels,
            table.scores.astype(np.float32),
            true_positives,
            ignored,
            np.repeat(*table.annotated[:, 1:3].T).astype(np.uint16),
            matches.sums[0, :, LABELED].astype(np.uint16),
            errors.points.astype(np.uint16),
            errors.distances.astype(np.float32),
            errors.shares.astype(np.float32),
            errors.similarities.astype(np.float32),
            errors.is_exchanged,
        )


class PointRecord(NamedTuple):
    """Record of an image with one object."""

    errors: np.ndarray  # float32 (K,), pixels; NaN for a point that is not labeled, infinite for one not detected
    errors_mm: np.ndarray  # float32 (K,), millimeters, NaN also where the size of a pixel is not known
    side: float  # size of the object in pixels, see ``find_side``

    @classmethod
    def from_errors(
        cls,
        errors: np.ndarray,
        truth: "ImageAnnotations",
        detected: "DetectedKeypoints",
        spacing_mm: Sequence[float] | None,
    ) -> "PointRecord":
        """Build the record of one image from the errors that ``PointMetrics.update`` returned."""
        errors_mm = np.full(len(errors), np.nan)
        if spacing_mm is not None:
            errors_mm = measure_points(truth, detected, len(errors), spacing_mm)[0]
        return cls(errors.astype(np.float32), errors_mm.astype(np.float32), find_side(truth, len(errors)))
