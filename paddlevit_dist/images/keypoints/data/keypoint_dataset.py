"""Interface of datasets of images whose objects have keypoints."""

from pathlib import Path
from typing import Any

import numpy as np

from ...detection.data.detection_dataset import DetectionDataset
from ...detection.data.image_annotations import ImageAnnotations, ObjectRules
from ...detection.data.images_part import ImagesPart
from ..keypoint_set import KeypointSet, can_mirror


class KeypointDataset(DetectionDataset):
    """Images whose objects have boxes and keypoints: ``annotations(index).points`` is never None.

    Label k has the points ``keypoint_sets[k]``, which are known before any image is read. ``points`` has room for the
    largest set: a category with fewer points has visibility 0 in the rest.
    """

    holds = "images with keypoints"
    #: the points of each category
    keypoint_sets: tuple[KeypointSet, ...] = ()

    #: whether each image has one object, the whole image
    has_whole_objects: bool = False

    @property
    def num_points(self) -> int:
        """Largest number of points of a category."""
        return max((len(points.names) for points in self.keypoint_sets), default=0)

    def find_rules(self) -> ObjectRules:
        """Return what is expected of the objects of every image."""
        return super().find_rules()._replace(num_points=self.num_points)

    @property
    def can_mirror(self) -> bool:
        """Whether images may be mirrored."""
        return can_mirror(self.keypoint_sets)

    @property
    def mirrors(self) -> np.ndarray:
        """Index of the point that each point of each category becomes in a mirror, int64 (labels, ``num_points``)."""
        mirrors = np.tile(np.arange(self.num_points), (len(self.keypoint_sets), 1))
        for row, points in zip(mirrors, self.keypoint_sets):
            row[: len(points.names)] = points.mirror
        return mirrors

    def spacing_mm(self, index: int) -> tuple[float, float] | None:
        """Return width and height of a pixel of image ``index`` in millimeters; None: not known."""
        return None

    def find_learnable(self, annotations: ImageAnnotations) -> np.ndarray:
        """Return which objects of an image have points to learn, bool (n,), see ``is_posed``."""
        return is_posed(annotations)

    def posed_objects(self) -> np.ndarray:
        """Return image and position in it of each object to learn the points of, int64 (objects, 2), see ``is_posed``.

        No image is opened if possible.
        """
        found = [np.flatnonzero(is_posed(self.annotations(index))) for index in range(len(self))]
        owners = np.repeat(np.arange(len(found)), [len(rows) for rows in found])
        return np.stack([owners, np.concatenate([np.zeros(0, np.int64), *found])], axis=1).astype(np.int64)

    def count_points(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count points of each visibility in the images ``chosen`` (None: all), int64 (labels, points, 3).

        Crowds and objects without a box are not counted. Points that a category lacks count as visibility 0.
        """
        counts = np.zeros((len(self.keypoint_sets), self.num_points, 3), np.int64)
        for index in range(len(self)) if chosen is None else chosen.tolist():
            image = self.annotations(index)
            if image.points is not None:
                chosen_rows = image.is_learnable
                add_visibilities(counts, image.labels[chosen_rows], image.points[chosen_rows])
        return counts


def is_posed(annotations: ImageAnnotations) -> np.ndarray:
    """Return which objects of an image have points to learn, bool (n,): no crowds, with a box and a labeled point."""
    labeled = np.zeros(len(annotations.labels), bool)
    if annotations.points is not None:
        labeled = (annotations.points[:, :, 2] > 0).any(axis=1)
    return annotations.is_learnable & labeled


def add_visibilities(counts: np.ndarray, labels: np.ndarray, points: np.ndarray) -> None:
    """Add to the counts of each label, point and visibility, int64 (labels, K, 3), n objects; points are (n, K, 3)."""
    rows, places = labels.astype(np.int64)[:, None], np.arange(points.shape[1])
    np.add.at(counts, (rows, places, points[:, :, 2].astype(np.int64)), 1)


class KeypointsPart(ImagesPart, KeypointDataset):
    """Part of a dataset of images with keypoints, or all in another order."""

    dataset: KeypointDataset

    def __init__(self, dataset: KeypointDataset, rows_file: Path, is_share: bool = False) -> None:
        super().__init__(dataset, rows_file, is_share)
        self.keypoint_sets, self.has_whole_objects = dataset.keypoint_sets, dataset.has_whole_objects

    def spacing_mm(self, index: int) -> tuple[float, float] | None:
        """Return width and height of a pixel of image ``index`` in millimeters; None: not known."""
        return self.dataset.spacing_mm(int(self.rows[index]))

    def posed_objects(self) -> np.ndarray:
        """Return image and position in it of each object to learn the points of, int64 (objects, 2)."""
        whole, rows = self.dataset.posed_objects(), self.rows
        starts, ends = (np.searchsorted(whole[:, 0], rows, side=side) for side in ("left", "right"))
        places: list[Any] = [whole[start:end, 1] for start, end in zip(starts.tolist(), ends.tolist())]
        owners = np.repeat(np.arange(len(rows)), ends - starts)
        return np.stack([owners, np.concatenate([np.zeros(0, np.int64), *places])], axis=1)

    def count_points(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count points of each visibility, int64 (labels, points, 3)."""
        return self.dataset.count_points(self.rows if chosen is None else self.rows[chosen])
