"""Tables of matched images, which are small enough to gather from all ranks."""

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....runtime.errors import UserError

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
# Of all, small, medium and large objects.
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
        columns = [image_ids[order], counts[order], num_true[order], *rows, totals, annotated]
        return cls(*columns)

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


def resolve_detection_limits(most: int | None) -> tuple[int, ...]:
    """Return the numbers of detections per image and class, up to ``most`` or 100, for COCO's recalls."""
    return MAX_DETECTIONS if most is None else (*MAX_DETECTIONS[:-1], most)


def stat_names(max_detections: Sequence[int] = MAX_DETECTIONS) -> list[str]:
    """Return the names of COCO's twelve numbers, in pycocotools' order."""
    recalls = [f"AR_{most}" for most in max_detections]
    return ["AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", *recalls, "AR_small", "AR_medium", "AR_large"]


def compute_ranks(table: MatchTable) -> np.ndarray:
    """Return the rank of each row among the rows of its image and class, from 0: int64 (rows,)."""
    images, labels = table.image_positions(), table.labels
    is_first = np.ones(len(labels), bool)
    is_first[1:] = (images[1:] != images[:-1]) | (labels[1:] != labels[:-1])
    first = np.flatnonzero(is_first)
    return np.arange(len(labels)) - np.repeat(first, np.diff(np.append(first, len(labels))))
