"""Precision and recall of matched images, and the twelve numbers that COCO reports.

Tables of matched images are small enough to gather from all ranks. Each number is computed with the operations of
pycocotools in the same order, so that results agree to the last digit.
"""

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....runtime.compiled import compiled
from ....runtime.errors import UserError

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
AREA_NAMES = ("all", "small", "medium", "large")
AREA_RANGES = np.array([[0, 1e5**2], [0, 32**2], [32**2, 96**2], [96**2, 1e5**2]], np.float64)  # pixels, ends included
MAX_DETECTIONS = (1, 10, 100)  # of one image and class; the last can be set
_JOINED_AFTER = 256  # images


class MatchTable(NamedTuple):
    """One or more images after matching.

    Bit ``10 * area + threshold`` of the columns of bits belongs to ``AREA_RANGES[area]`` and
    ``IOU_THRESHOLDS[threshold]``. ``annotated`` has one row for each image and class in it, with the image's position
    in ``image_ids``, and the annotations that count in each area range.
    """

    image_ids: np.ndarray  # int64 (images,), ascending and unique
    counts: np.ndarray  # int32 (images,), rows of each image
    num_true: np.ndarray  # int32 (images,), annotations of each image, without crowds
    labels: np.ndarray  # uint16 (rows,), class of each detection; an image's rows go by class, then falling score
    scores: np.ndarray  # float32 or float64 (rows,)
    true_positives: np.ndarray  # uint64 (rows,), bits of true positives
    ignored: np.ndarray  # uint64 (rows,), bits of detections that count as neither true nor false
    totals: np.ndarray  # int64 (classes, areas), annotations that count, over all these images
    annotated: np.ndarray  # int32 (n, 2 + areas): image, class, annotations by area

    @classmethod
    def empty(cls, num_classes: int) -> "MatchTable":
        """Return a table without images."""
        return cls(
            image_ids=np.zeros(0, np.int64),
            counts=np.zeros(0, np.int32),
            num_true=np.zeros(0, np.int32),
            labels=np.zeros(0, np.uint16),
            scores=np.zeros(0, np.float32),
            true_positives=np.zeros(0, np.uint64),
            ignored=np.zeros(0, np.uint64),
            totals=np.zeros((num_classes, len(AREA_RANGES)), np.int64),
            annotated=np.zeros((0, 2 + len(AREA_RANGES)), np.int32),
        )

    @classmethod
    def joined(cls, tables: "Sequence[MatchTable]") -> "MatchTable":
        """Concatenate tables, at least one, ordered by image; raise UserError if an image is in two."""
        columns = [np.concatenate(column) for name, column in zip(cls._fields, zip(*tables)) if name != "totals"]
        image_ids, counts, num_true, *rows, annotated = columns
        totals = np.sum([table.totals for table in tables], axis=0)
        sizes = [len(table.image_ids) for table in tables]
        before = np.cumsum(sizes) - sizes  # images of the tables before each
        annotated[:, 0] += np.repeat(before, [len(table.annotated) for table in tables]).astype(np.int32)
        order = np.argsort(image_ids, kind="stable")
        if (np.diff(image_ids[order]) == 0).any():
            duplicates = image_ids[order][1:][np.diff(image_ids[order]) == 0]
            raise UserError(f"image {int(duplicates[0])} was evaluated twice: give each image a unique id")
        if (np.diff(order) != 1).any():
            rows = [column[_find_rows(order, counts)] for column in rows]
            annotated[:, 0] = np.argsort(order)[annotated[:, 0]]
            annotated = annotated[np.argsort(annotated[:, 0], kind="stable")]
        labels, scores, true_positives, ignored = rows
        images = image_ids[order], counts[order], num_true[order]
        return cls(*images, labels, scores, true_positives, ignored, totals, annotated)

    def image_positions(self) -> np.ndarray:
        """Return the position in ``image_ids`` of each row's image, int64 (rows,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def pack(self) -> bytes:
        """Serialize the table for other processes; it compresses well because few combinations of bits occur."""
        content = io.BytesIO()
        np.savez_compressed(content, *self)
        return content.getvalue()

    @classmethod
    def unpack(cls, packed: bytes) -> "MatchTable":
        """Restore a table from the bytes that ``pack`` returned."""
        with np.load(io.BytesIO(packed), allow_pickle=False) as columns:
            return cls(*columns.values())


class GrowingTable:
    """Collects the tables of images; joining them from time to time takes less memory than many tables."""

    def __init__(self, num_classes: int) -> None:
        self._tables = [MatchTable.empty(num_classes)]

    def add(self, table: MatchTable) -> None:
        """Add the table of one or more images."""
        self._tables.append(table)
        if len(self._tables) > _JOINED_AFTER:
            self._tables = [self.joined()]

    def joined(self) -> MatchTable:
        """Return the table of all images so far."""
        return MatchTable.joined(self._tables)


def _find_rows(order: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the positions of the rows of images taken in this order."""
    first = np.cumsum(counts) - counts
    shift = first[order] - (np.cumsum(counts[order]) - counts[order])  # by how much each image's rows move
    return np.arange(int(counts.sum())) + np.repeat(shift, counts[order])


RECALLS = np.linspace(0.0, 1.0, 101)
UNDEFINED = -1.0  # where there is nothing to find
_AT_50, _AT_75 = 0, 5


def resolve_detection_limits(most: int | None) -> tuple[int, ...]:
    """Return the numbers of detections per image and class, up to ``most`` or 100, for COCO's recalls."""
    return MAX_DETECTIONS if most is None else (*MAX_DETECTIONS[:-1], most)


def stat_names(max_detections: Sequence[int] = MAX_DETECTIONS) -> list[str]:
    """Return the names of the numbers that ``AccumulatedResults.stats`` returns, in their order."""
    recalls = [f"AR_{most}" for most in max_detections]
    return ["AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", *recalls, "AR_small", "AR_medium", "AR_large"]


class AccumulatedResults(NamedTuple):
    """Precision and recall; -1 where there are no annotations."""

    precision: np.ndarray  # float64 (IoU thresholds 10, recalls 101, classes, areas 4, numbers of detections 3)
    recall: np.ndarray  # float64 (10, classes, 4, 3), the largest that is reached
    max_detections: Sequence[int]  # the numbers of detections

    def stats(self) -> np.ndarray:
        """Return the twelve numbers in pycocotools' order, float64 (12,); -1 where undefined.

        They are AP, AP at IoU 0.5 and 0.75, AP of small, medium and large areas, the recalls at each number of
        detections, and the recalls of small, medium and large areas.
        """
        areas = range(1, len(AREA_NAMES))
        last = len(self.max_detections) - 1
        precisions = [self.precision[..., 0, last]]
        precisions += [self.precision[[at], ..., 0, last] for at in (_AT_50, _AT_75)]
        precisions += [self.precision[..., area, last] for area in areas]
        recalls = [self.recall[..., 0, number] for number in range(len(self.max_detections))]
        recalls += [self.recall[..., area, last] for area in areas]
        return np.array([_mean(values) for values in precisions + recalls])

    def class_ap(self) -> np.ndarray:
        """Return AP, AP50 and AP75 of each class over all areas, float64 (classes, 3); -1 without annotations."""
        per_class = np.moveaxis(self.precision[..., 0, -1], 2, 0)  # (classes, thresholds, recalls)
        columns = [per_class, per_class[:, [_AT_50]], per_class[:, [_AT_75]]]
        return np.array([[_mean(column[k]) for column in columns] for k in range(len(per_class))]).reshape(-1, 3)

    def curve(self, labels: Sequence[int]) -> np.ndarray:
        """Return the precision at each of ``RECALLS``, float64 (101,), averaged over these classes.

        It is taken over all areas at an IoU of 0.5, and is 0 where a recall is not reached. Each class needs
        annotations.
        """
        return self.precision[_AT_50, :, labels, 0, -1].mean(axis=0)

    def named(self) -> dict[str, float]:
        """Return the twelve numbers by name."""
        return dict(zip(stat_names(self.max_detections), self.stats().tolist()))


def _mean(values: np.ndarray) -> float:
    """Return the mean of the defined values; -1 if all are undefined."""
    defined = values[values > UNDEFINED]
    return float(np.mean(defined)) if len(defined) else UNDEFINED


def accumulate(table: MatchTable, max_detections: Sequence[int] = MAX_DETECTIONS) -> AccumulatedResults:
    """Compute precision and recall of a table; detections of equal score are ranked by image id."""
    num_classes = len(table.totals)
    num_limits = len(max_detections)
    shape = (len(IOU_THRESHOLDS), num_classes, len(AREA_RANGES), num_limits)
    recall = np.full(shape, UNDEFINED)
    precision = np.full(shape[:1] + RECALLS.shape + shape[1:], UNDEFINED)
    order = np.argsort(table.labels, kind="stable")  # images stay in ascending order within a class
    bounds = np.searchsorted(table.labels[order], np.arange(num_classes + 1))
    ranks = compute_ranks(table)
    limits = np.asarray(max_detections, np.int64)
    for label in range(num_classes):
        rows = order[bounds[label] : bounds[label + 1]]
        rows = rows[np.argsort(-table.scores[rows].astype(np.float64), kind="stable")]
        _sample(
            table.true_positives[rows], table.ignored[rows], ranks[rows], limits, table.totals[label], RECALLS,
            precision[:, :, label], recall[:, label],
        )  # fmt: skip
    return AccumulatedResults(precision, recall, tuple(max_detections))


def compute_ranks(table: MatchTable) -> np.ndarray:
    """Return the rank of each row among the rows of its image and class, from 0: int64 (rows,)."""
    images, labels = table.image_positions(), table.labels
    is_first = np.ones(len(labels), bool)
    is_first[1:] = (images[1:] != images[:-1]) | (labels[1:] != labels[:-1])
    first = np.flatnonzero(is_first)
    return np.arange(len(labels)) - np.repeat(first, np.diff(np.append(first, len(labels))))


@compiled(needs_numba=False, error_model="numpy")
def _sample(true_positives, ignored, ranks, limits, totals, recalls, precision, recall):
    """Sample the precision of one class at each recall, into (thresholds, recalls, areas, limits)."""
    steps, _, areas, _ = precision.shape
    tiny = np.spacing(1.0)
    reached, precise = np.empty(len(true_positives)), np.empty(len(true_positives))
    for area in range(areas):
        if totals[area] == 0:
            continue
        for step in range(steps):
            bit = np.uint64(1) << np.uint64(area * steps + step)
            for limit in range(len(limits)):
                right, wrong, number = 0.0, 0.0, 0
                for row in range(len(true_positives)):
                    if ranks[row] >= limits[limit]:
                        continue
                    if true_positives[row] & bit:
                        right += 1.0
                    elif not ignored[row] & bit:
                        wrong += 1.0
                    reached[number] = right / totals[area]
                    precise[number] = right / (wrong + right + tiny)
                    number += 1
                recall[step, area, limit] = reached[number - 1] if number else 0.0
                for place in range(number - 1, 0, -1):  # precision does not rise with recall
                    precise[place - 1] = max(precise[place - 1], precise[place])
                place = 0
                for point in range(len(recalls)):
                    while place < number and reached[place] < recalls[point]:
                        place += 1
                    precision[step, point, area, limit] = precise[place] if place < number else 0.0
