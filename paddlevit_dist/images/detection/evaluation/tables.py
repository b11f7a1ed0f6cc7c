"""What is kept of evaluated pictures: small enough to gather from all ranks, complete enough for all of COCO's numbers.

A detection is kept as its class, its score and 40 answers of two bits (10 IoU thresholds in each of 4 ranges of area).
"""

from __future__ import annotations

import io
from typing import NamedTuple, Sequence

import numpy as np

from ....errors import UserError

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
AREA_NAMES = ("all", "small", "medium", "large")
AREA_RANGES = np.array([[0, 1e5**2], [0, 32**2], [32**2, 96**2], [96**2, 1e5**2]], np.float64)  # pixels, ends included
MAX_DETECTIONS = (1, 10, 100)  # of one picture and class
_JOINED_AFTER = 256  # pictures


class MatchTable(NamedTuple):
    """One or more pictures after matching. Bit ``10 * area + threshold`` of an answer belongs to
    ``AREA_RANGES[area]`` and ``IOU_THRESHOLDS[threshold]``.

    Attributes:
        image_ids: int64 (pictures,), ascending and different.
        counts: int32 (pictures,), rows of each picture.
        num_true: int32 (pictures,), annotations of each picture, without crowds.
        labels: uint16 (rows,), class of each detection; the rows of a picture are ordered by class, and within a class
            by falling score.
        scores: float32 or float64 (rows,).
        found: uint64 (rows,), bits of true positives.
        ignored: uint64 (rows,), bits of detections that count as neither true nor false.
        totals: int64 (classes, areas), annotations that can be found in all these pictures.
    """

    image_ids: np.ndarray
    counts: np.ndarray
    num_true: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    found: np.ndarray
    ignored: np.ndarray
    totals: np.ndarray

    @classmethod
    def empty(cls, num_classes: int) -> MatchTable:
        """A table without pictures."""
        pictures = (np.zeros(0, dtype) for dtype in (np.int64, np.int32, np.int32))
        rows = (np.zeros(0, dtype) for dtype in (np.uint16, np.float32, np.uint64, np.uint64))
        return cls(*pictures, *rows, np.zeros((num_classes, len(AREA_RANGES)), np.int64))

    @classmethod
    def joined(cls, tables: Sequence[MatchTable]) -> MatchTable:
        """One table of the pictures of several, ordered by picture; at least one table.

        Raises:
            UserError: a picture is in two of them, so that its detections would count twice.
        """
        image_ids = np.concatenate([table.image_ids for table in tables])
        counts = np.concatenate([table.counts for table in tables])
        rows = [np.concatenate([table[column] for table in tables]) for column in range(3, 7)]
        num_true = np.concatenate([table.num_true for table in tables])
        totals = np.sum([table.totals for table in tables], axis=0)
        order = np.argsort(image_ids, kind="stable")
        if (np.diff(image_ids[order]) == 0).any():
            twice = image_ids[order][1:][np.diff(image_ids[order]) == 0]
            raise UserError(f"picture {int(twice[0])} was evaluated twice: pictures must have different ids")
        if (np.diff(order) != 1).any():
            rows = [column[_rows_of(order, counts)] for column in rows]
        return cls(image_ids[order], counts[order], num_true[order], *rows, totals)

    def image_of_rows(self) -> np.ndarray:
        """Position in ``image_ids`` of each row's picture: int64 (rows,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def packed(self) -> bytes:
        """The table in few bytes, for other processes: few combinations of answers occur."""
        content = io.BytesIO()
        np.savez_compressed(content, *self)
        return content.getvalue()

    @classmethod
    def unpacked(cls, packed: bytes) -> MatchTable:
        """What ``packed`` was made of."""
        with np.load(io.BytesIO(packed), allow_pickle=False) as columns:
            return cls(*columns.values())


class GrowingTable:
    """Pictures as they are matched: one table of many takes less memory than many tables."""

    def __init__(self, num_classes: int) -> None:
        self._tables = [MatchTable.empty(num_classes)]

    def add(self, table: MatchTable) -> None:
        self._tables.append(table)
        if len(self._tables) > _JOINED_AFTER:
            self._tables = [self.joined()]

    def joined(self) -> MatchTable:
        """All pictures so far."""
        return MatchTable.joined(self._tables)


def _rows_of(order: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Positions of the rows of pictures taken in this order."""
    first = np.cumsum(counts) - counts
    shift = first[order] - (np.cumsum(counts[order]) - counts[order])  # by how much each picture's rows move
    return np.arange(int(counts.sum())) + np.repeat(shift, counts[order])
