"""A network's objects with keypoints in one image."""

from typing import NamedTuple

import numpy as np

from ..detection.detections import choose_best


class DetectedKeypoints(NamedTuple):
    """Objects with keypoints in one image, in any order; equal scores keep this order when they are ranked."""

    points: np.ndarray  # float32 (d, K, 3), x, y in the stored image's pixels, and the point's score
    scores: np.ndarray  # float32 (d,), of the objects, higher is more certain
    labels: np.ndarray  # int64 (d,), categories from 0
    boxes: np.ndarray | None = None  # float32 (d, 4), x0, y0, x1, y1 in the stored image's pixels

    def finite(self) -> "DetectedKeypoints":
        """Return the objects whose points and score, and box if there are boxes, are finite."""
        is_finite = np.isfinite(self.points).all(axis=(1, 2)) & np.isfinite(self.scores)
        if self.boxes is not None:
            is_finite &= np.isfinite(self.boxes).all(axis=1)
        return self if is_finite.all() else self.only(is_finite)

    def only(self, chosen: np.ndarray) -> "DetectedKeypoints":
        """Return the ``chosen`` objects, bool (d,) or int (n,), in their order."""
        boxes = None if self.boxes is None else self.boxes[chosen]
        return DetectedKeypoints(self.points[chosen], self.scores[chosen], self.labels[chosen], boxes)

    def best_of_classes(self, most: int | None) -> "DetectedKeypoints":
        """Return the ``most`` best objects of each class, or all if None, in their order."""
        return self if most is None else self.only(choose_best(self.scores, self.labels, most))

    def span_boxes(self) -> np.ndarray:
        """Return the boxes, or else the extents of all points of each object: float32 (d, 4), x0, y0, x1, y1."""
        if self.boxes is not None:
            return self.boxes
        places = self.points[:, :, :2]
        return np.concatenate([places.min(axis=1), places.max(axis=1)], axis=1)
