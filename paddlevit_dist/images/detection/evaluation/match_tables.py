"""Tables of matched images, which are small enough to gather from all ranks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....core.runtime.errors import UserError
from ....core.tasks.score_kind import Arrays
from ..detections import LARGEST_AREA

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
# Of all, small, medium and large objects.
AREA_RANGES = np.array([[0, LARGEST_AREA], [0, 32**2], [32**2, 96**2], [96**2, LARGEST_AREA]])  # pixels, ends included
MAX_DETECTIONS = (1, 10, 100)  # of one image and class; the last can be set


class MatchTable(NamedTuple):
    """One or more images after matching.

    Bit ``10 * area + threshold`` of the columns of bits belongs to ``AREA_RANGES[area]`` and
    ``IOU_THRESHOLDS[threshold]``. ``annotated`` has one row for each image and class in it, with the image's position
    in ``image_ids``, and the annotations that count in each area range.
    """

    image_ids: np.ndarray  # int64 (images,), ascending and unique
    counts: np.ndarray  # int32 (images,), rows of each image
    num_true: np.ndarray  # int32 (images,), annotations of each image that count in all areas
    labels: np.ndarray  # uint16 (rows,), class of each detection; an image's rows go by class, then falling score
    scores: np.ndarray  # float32 or float64 (rows,)
    true_positives: np.ndarray  # uint64 (rows,), bits of true positives
    ignored: np.ndarray  # uint64 (rows,), bits of detections that count as neither true nor false
    annotated: np.ndarray  # int32 (n, 2 + areas): image, class, annotations by area
    num_classes: int

    @classmethod
    def empty(cls, num_classes: int) -> "MatchTable":
        """Return a table without images."""
        dtypes = (np.int64, np.int32, np.int32, np.uint16, np.float32, np.uint64, np.uint64)  # of the first columns
        annotated = np.zeros((0, 2 + len(AREA_RANGES)), np.int32)
        return cls._make([*(np.zeros(0, dtype) for dtype in dtypes), annotated, num_classes])

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str = "") -> "MatchTable":
        """Restore a table from the arrays that ``to_arrays`` returned."""
        return cls._make([*(arrays[f"{prefix}{name}"] for name in cls._fields[:-1]), len(arrays[f"{prefix}totals"])])

    def to_arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """Return the columns for a file by name, and "totals", int64 (classes, areas), the sums of ``annotated``."""
        totals = np.zeros((self.num_classes, len(AREA_RANGES)), np.int64)
        np.add.at(totals, self.annotated[:, 1], self.annotated[:, 2:])
        return {f"{prefix}{name}": column for name, column in zip((*self._fields[:-1], "totals"), (*self[:-1], totals))}

    @classmethod
    def joined(cls, tables: "Sequence[MatchTable]") -> "MatchTable":
        """Concatenate tables, at least one, ordered by image; raise UserError if an image is in two."""
        if len(tables) == 1:
            return tables[0]
        image_ids, counts, num_true, *rows, annotated = map(np.concatenate, list(zip(*tables))[:-1])
        sizes = [len(table.image_ids) for table in tables]
        before = np.cumsum(sizes) - sizes  # images of the tables before each
        annotated[:, 0] += np.repeat(before, [len(table.annotated) for table in tables]).astype(np.int32)
        order = np.argsort(image_ids)
        if (np.diff(image_ids[order]) == 0).any():
            duplicates = image_ids[order][1:][np.diff(image_ids[order]) == 0]
            raise UserError(f"image {int(duplicates[0])} was evaluated twice: give each image a unique id")
        if (np.diff(order) != 1).any():
            first, first_after = np.cumsum(counts) - counts, np.cumsum(counts[order]) - counts[order]  # rows of images
            places = np.arange(int(counts.sum())) + np.repeat(first[order] - first_after, counts[order])
            rows = [column[places] for column in rows]
            annotated[:, 0] = np.argsort(order)[annotated[:, 0]]
            annotated = annotated[np.argsort(annotated[:, 0], kind="stable")]
        images = image_ids[order], counts[order], num_true[order]
        return cls._make([*images, *rows, annotated, tables[0].num_classes])

    def image_positions(self) -> np.ndarray:
        """Return the position in ``image_ids`` of each row's image, int64 (rows,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


def resolve_detection_limits(most: int | None) -> tuple[int, ...]:
    """Return the numbers of detections per image and class, up to ``most`` or 100, for COCO's recalls."""
    return MAX_DETECTIONS if most is None else (*MAX_DETECTIONS[:-1], most)
