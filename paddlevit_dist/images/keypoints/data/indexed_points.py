"""What datasets of image files with indexed keypoints share."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....core.runtime.printing import count
from ...detection.data.indexed_images import AnnotationSource, IndexedDetectionImages
from ..described_points import DescribedPoints, complete_sets
from .keypoint_dataset import KeypointDataset, add_visibilities

_DESCRIBED = "described_points"  # key of what the index keeps for a dataset


def with_points(source: AnnotationSource, points: np.ndarray, described: Sequence[DescribedPoints]) -> AnnotationSource:
    """Return a source with points, float64 (objects, K, 3), and what it says about the points of each category."""
    about = source.about._replace(more={_DESCRIBED: [each._asdict() for each in described]})
    return source._replace(about=about, points=points)


class IndexedKeypointImages(IndexedDetectionImages, KeypointDataset):
    """Images in a folder, with their annotations and points in an index."""

    split: str

    def describe_points(self, described: Sequence[DescribedPoints] | None = None, keys: Any = None) -> None:
        """Set ``keypoint_sets``, and add notices that say where they are from.

        ``described`` are the points of each category; None: as in the index. The ``keys`` of KEYPOINTS win.

        Raises:
            UserError: a key does not fit the points of the annotations.
        """
        if described is None:
            described = [DescribedPoints(**each) for each in self._index.about.more[_DESCRIBED]]
        self.keypoint_sets, notices = complete_sets(self.class_names, described, keys)
        self.notices = [*self.notices, *(f"{self.split}: {line}" for line in notices if self.split == "train")]

    def posed_objects(self) -> np.ndarray:
        """Return image and position in it of each object to learn the points of, int64 (objects, 2)."""
        first, is_labeled = self._index.images["first"], (self._all_points()[:, :, 2] > 0).any(axis=1)
        rows = np.flatnonzero(self._are_learnable() & is_labeled)
        owners = np.searchsorted(first, rows, side="right") - 1
        return np.stack([owners, rows - first[owners]], axis=1).astype(np.int64)

    def object_counts(self) -> np.ndarray:
        """Count the objects of each image with points to learn, int64 (samples, 2): all, its most frequent category."""
        posed, first = self.posed_objects(), self._index.images["first"]
        labels = self._index.objects["label"][first[posed[:, 0]] + posed[:, 1]].astype(np.int64)
        per_class = np.zeros((len(self), self.num_classes), np.int64)
        np.add.at(per_class, (posed[:, 0], labels), 1)
        return np.stack([per_class.sum(axis=1), per_class.max(axis=1, initial=0)], axis=1)

    def count_points(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count points of each visibility, int64 (labels, points, 3)."""
        counts = np.zeros((len(self.keypoint_sets), self.num_points, 3), np.int64)
        is_chosen = np.ones(len(self), bool) if chosen is None else np.isin(np.arange(len(self)), chosen)
        is_chosen = np.repeat(is_chosen, np.diff(self._index.images["first"])) & self._are_learnable()
        add_visibilities(counts, self._index.objects["label"][is_chosen], self._all_points()[is_chosen])
        return counts

    def summary(self, chosen: np.ndarray | None = None) -> str:
        """Describe images, boxes, categories and points."""
        counts = self.count_points(chosen).sum(axis=(0, 1))
        hidden = f", {counts[1]:,} of them hidden" if counts[1] else ""
        return f"{super().summary(chosen)}; {count(int(counts[1:].sum()), 'labeled point')}{hidden}"

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what identifies the dataset's content: also the points."""
        return {**super().listed(), "points": [np.ascontiguousarray(self._all_points())]}

    def _are_learnable(self) -> np.ndarray:
        """Return which objects have a box with an area and are not crowds, bool (objects,)."""
        objects = self._index.objects
        return (objects["is_crowd"] == 0) & (objects["box"][:, 2] > 0) & (objects["box"][:, 3] > 0)

    def _all_points(self) -> np.ndarray:
        points = self._index.points
        assert points is not None, "an index of these datasets has points"
        return points
