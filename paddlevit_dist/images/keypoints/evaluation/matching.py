"""Matches objects with keypoints by the rules of COCO's tools (pycocotools), all images at once.

The similarity of a result and an annotation is OKS, the mean over the labeled points of exp(-d^2 / (2 A (2 sigma)^2)),
with the distance d of the points and the area A of the annotation. An annotation without a labeled point counts as
neither found nor missed; a result may match it by the distances of all its points from the annotation's box, doubled to
all sides. A result without a box has the area of the extent of all its points, also of points with low scores.

Source: https://cocodataset.org/#keypoints-eval, and the behavior of pycocotools 2.0.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.runtime.compiled import compiled
from ...detection.evaluation.match_tables import AREA_RANGES, IOU_THRESHOLDS, MatchTable
from ...detection.evaluation.matching import decide_matches
from ..detected_keypoints import DetectedKeypoints
from ..keypoint_set import KeypointSet

if TYPE_CHECKING:
    from ...detection.data.image_annotations import ImageAnnotations

MAX_DETECTIONS = 20  # of one image and category, as in COCO
LABELED, FOUND, SIMILARITY, DISTANCE = range(4)  # columns of ``KeypointMatches.sums``
_FIRST_BIT = np.uint64(1)  # of an OKS of 0.5 over all areas


class PointTable(NamedTuple):
    """The points of all categories, numbered one category after the other."""

    numbers: np.ndarray  # int64 (categories,), points of each
    first: np.ndarray  # int64 (categories,), number of the first point of each
    variances: np.ndarray  # float64 (categories, K), (2 sigma)^2; 1 after the last point of a category
    mirrors: np.ndarray  # int64 (categories, K), partner of each point in a mirrored pair, or itself

    @classmethod
    def from_sets(cls, keypoint_sets: Sequence[KeypointSet]) -> "PointTable":
        """Build the table of the categories' points."""
        numbers = np.array([len(points.sigmas) for points in keypoint_sets], np.int64)
        variances = np.ones((len(numbers), int(numbers.max(initial=0))))
        mirrors = np.tile(np.arange(variances.shape[1]), (len(numbers), 1))
        for row, mirror, points in zip(variances, mirrors, keypoint_sets):
            row[: len(points.sigmas)] = (2 * np.array(points.sigmas, np.float64)) ** 2
            mirror[: len(points.sigmas)] = points.mirror
        return cls(numbers, np.cumsum(numbers) - numbers, variances, mirrors)

    @property
    def total(self) -> int:
        """Number of points of all categories."""
        return int(self.numbers.sum())


class KeypointTruth(NamedTuple):
    """Annotations of several images."""

    images: np.ndarray  # int64 (n,), position of each annotation's image, ascending
    points: np.ndarray  # float64 (n, K, 3), x, y, visibility: 0 not labeled
    boxes: np.ndarray  # float64 (n, 4), x, y, width, height
    areas: np.ndarray  # float64 (n,)
    labels: np.ndarray  # int64 (n,), categories from 0
    is_crowd: np.ndarray  # bool (n,)
    is_excluded: np.ndarray  # bool (n,), crowds and annotations without a labeled point

    @classmethod
    def from_image(cls, truth: "ImageAnnotations") -> "KeypointTruth":
        """Return the annotations of one image; without points, none is labeled."""
        number = len(truth.labels)
        points = np.zeros((number, 0, 3)) if truth.points is None else np.asarray(truth.points, np.float64)
        is_excluded = ~find_counted(truth)
        images, labels = np.zeros(number, np.int64), np.asarray(truth.labels, np.int64)
        boxes = np.asarray(truth.boxes, np.float64).reshape(-1, 4)
        return cls(images, points, boxes, np.asarray(truth.areas, np.float64), labels, truth.is_crowd, is_excluded)


class KeypointCandidates(NamedTuple):
    """Results of several images; all numbers are finite."""

    images: np.ndarray  # int64 (d,), position of each result's image
    points: np.ndarray  # float64 (d, K, 3), x, y, score
    scores: np.ndarray  # (d,)
    labels: np.ndarray  # int64 (d,), categories from 0; others are ignored
    areas: np.ndarray | None = None  # float64 (d,); None: the extents of the points

    @classmethod
    def from_image(cls, detected: DetectedKeypoints) -> "KeypointCandidates":
        """Return the finite objects detected in one image."""
        labels = np.asarray(detected.labels, np.int64)
        points = np.asarray(detected.points, np.float64)
        return cls(np.zeros(len(labels), np.int64), points, np.asarray(detected.scores), labels)


class PointErrors(NamedTuple):
    """Errors of the labeled points of the annotations that a result matches at an OKS of 0.5."""

    images: np.ndarray  # int64 (m,), position of the image
    points: np.ndarray  # int64 (m,), number of the point in the ``PointTable``
    distances: np.ndarray  # float64 (m,), pixels
    shares: np.ndarray  # float64 (m,), distance as a share of the square root of the annotation's area
    similarities: np.ndarray  # float64 (m,), the point's part of OKS, 0 to 1
    is_exchanged: np.ndarray  # bool (m,), nearer to the true place of its mirrored point than to its own


class KeypointMatches(NamedTuple):
    """Matched images."""

    table: MatchTable  # matches by OKS in place of IoU
    #: float64 (images, points, 4): labeled points of the annotations that count; points in ``errors``, and the sums of
    #: their similarities and distances
    sums: np.ndarray
    errors: PointErrors


def match_keypoints(
    image_ids: np.ndarray,
    truth: KeypointTruth,
    found: KeypointCandidates,
    table: PointTable,
    max_detections: int = MAX_DETECTIONS,
) -> KeypointMatches:
    """Match the results of images with their annotations.

    Args:
        image_ids: int64 (images,), ascending; results of equal score are ranked by it.
        table: points of the categories.
        max_detections: number of results, by falling score, that count in each image and category.
    """
    num_classes = len(table.numbers)
    true_keys = truth.images * num_classes + truth.labels
    true_rows = np.argsort(true_keys, kind="stable")
    true_rows = true_rows[is_known(truth.labels[true_rows], num_classes)]
    keys, rows = found.images * num_classes + found.labels, np.flatnonzero(is_known(found.labels, num_classes))
    rows = rows[np.lexsort((-found.scores[rows].astype(np.float64), keys[rows]))]  # stable
    rows = rows[np.arange(len(rows)) - np.searchsorted(keys[rows], keys[rows]) < max_detections]
    keys, true_keys = keys[rows], true_keys[true_rows]
    present = np.union1d(keys, true_keys)
    ends = [np.searchsorted(part, present, side) for part in (keys, true_keys) for side in ("left", "right")]
    groups = np.stack([np.arange(len(present)), *ends], axis=1)
    labels = present % num_classes  # of each group
    ordered = KeypointTruth(*(column[true_rows] for column in truth))
    points = _places(found.points[rows], table)
    areas = extent_areas(points, found.labels[rows], table) if found.areas is None else found.areas[rows]
    overlaps = compute_similarities(groups, labels, points, ordered, table)
    totals = np.zeros((len(present), len(AREA_RANGES)), np.int64)
    right, ignored, matches = decide_matches(
        groups, overlaps, areas, ordered.areas, ordered.is_crowd, ordered.is_excluded, AREA_RANGES, IOU_THRESHOLDS,
        totals,
    )  # fmt: skip
    counted = np.flatnonzero(totals.any(axis=1))
    annotated = np.column_stack([present[counted] // num_classes, labels[counted], totals[counted]]).astype(np.int32)
    number = len(image_ids)
    matched = MatchTable(
        np.asarray(image_ids, np.int64),
        np.bincount(found.images[rows], minlength=number).astype(np.int32),
        np.bincount(annotated[:, 0], annotated[:, 2], number).astype(np.int32),
        found.labels[rows].astype(np.uint16),
        found.scores[rows],
        right,
        ignored,
        annotated,
        num_classes,
    )
    chosen = np.flatnonzero((right & _FIRST_BIT) != 0)
    errors = _measure_errors(points[chosen], ordered, matches[chosen], table)
    return KeypointMatches(matched, _sum_errors(errors, ordered, number, table), errors)


def match_image(
    image_id: int,
    truth: "ImageAnnotations",
    detected: DetectedKeypoints,
    table: PointTable,
    max_detections: int = MAX_DETECTIONS,
) -> KeypointMatches:
    """Match the finite objects that are detected in one image, see ``match_keypoints``."""
    found = KeypointCandidates.from_image(detected)
    return match_keypoints(np.array([image_id]), KeypointTruth.from_image(truth), found, table, max_detections)


def find_counted(truth: "ImageAnnotations") -> np.ndarray:
    """Return which annotations of an image count, bool (n,): no crowds, with a labeled point."""
    if truth.points is None:
        return np.zeros(len(truth.labels), bool)
    return ~np.asarray(truth.is_crowd, bool) & (np.asarray(truth.points)[:, :, 2] > 0).any(axis=1)


def is_known(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return which labels, int (n,), are categories, bool (n,)."""
    return (labels >= 0) & (labels < num_classes)


def extent_areas(points: np.ndarray, labels: np.ndarray, table: PointTable) -> np.ndarray:
    """Return the areas of the extents of each object's points, float64 (d,), from points (d, K, 2 or more)."""
    places = points[:, :, :2]
    if points.shape[1] and (table.numbers == points.shape[1]).all():
        # Point by point over all objects: NumPy's reduction is slow where only two numbers are side by side.
        low, high = places[:, 0].copy(), places[:, 0].copy()
        for point in range(1, places.shape[1]):
            np.minimum(low, places[:, point], out=low)
            np.maximum(high, places[:, point], out=high)
        return (high - low).prod(axis=1)
    is_point = np.arange(points.shape[1]) < table.numbers[labels][:, None]  # (d, K)
    low = np.where(is_point[..., None], places, np.inf).min(axis=1, initial=np.inf)
    high = np.where(is_point[..., None], places, -np.inf).max(axis=1, initial=-np.inf)
    return (high - low).prod(axis=1)


def compute_similarities(
    groups: np.ndarray, labels: np.ndarray, points: np.ndarray, truth: KeypointTruth, table: PointTable
) -> np.ndarray:
    """Compute the OKS of the results and the annotations of each group, float64, one group after the other.

    Args:
        groups: int64 (groups, 5), see ``decide_matches``.
        labels: int64 (groups,), category of each group.
        points: float64 (d, K, 2), x, y of the results.
        truth: the annotations, ordered by group.
        table: points of the categories.
    """
    overlaps = np.zeros(((groups[:, 2] - groups[:, 1]) * (groups[:, 4] - groups[:, 3])).sum())
    true_points = _fit(truth.points, table)
    _fill_similarities(
        groups, table.numbers[labels], table.variances[labels], points, true_points, truth.boxes, truth.areas, overlaps
    )
    return overlaps


def _fit(points: np.ndarray, table: PointTable) -> np.ndarray:
    """Return points (n, K, 3) with as many columns as the table has, float64; points that are missing are zeros."""
    most = table.variances.shape[1]
    points = np.asarray(points, np.float64)[:, :most]
    return points if points.shape[1] == most else np.pad(points, [(0, 0), (0, most - points.shape[1]), (0, 0)])


def _places(points: np.ndarray, table: PointTable) -> np.ndarray:
    """Return x and y of points as ``_fit`` does, float64 (d, K, 2)."""
    return np.ascontiguousarray(_fit(points, table)[:, :, :2])


@compiled(needs_numba=False, error_model="numpy")
def _fill_similarities(groups, numbers, variances, points, true_points, true_boxes, true_areas, overlaps):
    """Fill in OKS of each pair; ``numbers`` and ``variances`` are of each group's category."""
    tiny = np.spacing(1.0)
    position = 0
    for group in range(len(groups)):
        number = numbers[group]
        for row in range(groups[group, 1], groups[group, 2]):
            for true_row in range(groups[group, 3], groups[group, 4]):
                labeled = 0
                for point in range(number):
                    labeled += true_points[true_row, point, 2] > 0
                left, top, width, height = true_boxes[true_row]
                is_box = np.isfinite(left + top + width + height)
                total = 0.0
                for point in range(number):
                    x, y = points[row, point, 0], points[row, point, 1]
                    if labeled > 0:
                        if not true_points[true_row, point, 2] > 0:
                            continue
                        across, down = x - true_points[true_row, point, 0], y - true_points[true_row, point, 1]
                    elif not is_box or not np.isfinite(x + y):  # max would return 0
                        across = down = np.inf
                    else:
                        across = max(0.0, left - width - x) + max(0.0, x - (left + width * 2))
                        down = max(0.0, top - height - y) + max(0.0, y - (top + height * 2))
                    squared = across * across + down * down
                    total += np.exp(-squared / variances[group, point] / (true_areas[true_row] + tiny) / 2)
                if number > 0:  # a category without points is never found
                    overlaps[position] = total / (labeled if labeled > 0 else number)
                position += 1


def _measure_errors(places: np.ndarray, truth: KeypointTruth, matches: np.ndarray, table: PointTable) -> PointErrors:
    """Measure the errors of results, points (m, K, 2), from the annotations ``matches``, int64 (m,)."""
    true_points, labels = _fit(truth.points[matches], table), truth.labels[matches]
    rows, points = np.nonzero(true_points[:, :, 2] > 0)
    is_own = points < table.numbers[labels[rows]]
    rows, points = rows[is_own], points[is_own]
    distances = np.linalg.norm(places[rows, points] - true_points[rows, points, :2], axis=1)
    partners = table.mirrors[labels[rows], points]
    others = np.linalg.norm(places[rows, points] - true_points[rows, partners, :2], axis=1)
    is_exchanged = (true_points[rows, partners, 2] > 0) & (others < distances)
    areas = truth.areas[matches][rows] + np.spacing(1.0)
    similarities = np.exp(-(distances**2) / (2 * areas * table.variances[labels[rows], points]))
    numbered = table.first[labels[rows]] + points
    shares = distances / np.sqrt(areas)
    return PointErrors(truth.images[matches][rows], numbered, distances, shares, similarities, is_exchanged)


def _sum_errors(errors: PointErrors, truth: KeypointTruth, images: int, table: PointTable) -> np.ndarray:
    """Sum the errors of each image and point, see ``KeypointMatches.sums``."""
    sums = np.zeros((images, table.total, 4))
    true_points = _fit(truth.points, table)
    is_labeled = (true_points[:, :, 2] > 0) & ~truth.is_excluded[:, None]
    is_labeled &= np.arange(true_points.shape[1]) < table.numbers[truth.labels][:, None]
    rows, points = np.nonzero(is_labeled)
    np.add.at(sums, (truth.images[rows], table.first[truth.labels[rows]] + points, LABELED), 1.0)
    for column, values in ((FOUND, 1.0), (SIMILARITY, errors.similarities), (DISTANCE, errors.distances)):
        np.add.at(sums, (errors.images, errors.points, column), values)
    return sums
