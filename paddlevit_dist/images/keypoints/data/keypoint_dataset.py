"""Interface of datasets of images whose objects have keypoints."""

import numpy as np

from ...detection.data.detection_dataset import DetectionDataset
from ..keypoint_set import KeypointSet


class KeypointDataset(DetectionDataset):
    """Images whose objects have boxes and keypoints: ``annotations(index).points`` is never None.

    Label k has the points ``keypoint_sets[k]``, which are known before any image is read. ``points`` has room for the
    largest set: a category with fewer points has visibility 0 in the rest.
    """

    holds = "images with keypoints"
    #: the points of each category
    keypoint_sets: tuple[KeypointSet, ...] = ()

    @property
    def num_points(self) -> int:
        """Largest number of points of a category."""
        return max((len(points.names) for points in self.keypoint_sets), default=0)

    @property
    def mirrors(self) -> np.ndarray:
        """Index of the point that each point of each category becomes in a mirror, int64 (labels, ``num_points``)."""
        mirrors = np.tile(np.arange(self.num_points), (len(self.keypoint_sets), 1))
        for row, points in zip(mirrors, self.keypoint_sets):
            row[: len(points.names)] = points.mirror
        return mirrors
