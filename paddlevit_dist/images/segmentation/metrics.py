"""Metrics of semantic segmentation: counts of the pixels of each image at its stored size."""

import numpy as np

from ...core.metrics.confusion import ConfusionMetrics
from ...core.metrics.counts import boundary_statistics, count_confusion, reduce_confusions
from ...core.runtime.errors import UserError
from .data.segmentation_dataset import IGNORED


class SegmentationMetrics(ConfusionMetrics):
    """Counts of labeled pixels and of those near boundaries, see ``metrics.counts``.

    Counts are computed on the host while a GPU computes the next image: Paddle's ``bincount`` waits for all queued
    work.
    """

    def update(self, predicted: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add an image, uint8 (height, width) both, with true classes or ``IGNORED``; return its counts.

        They are its confusion, int64 (classes, classes), and its boundaries, int64 (3, classes).

        Raises:
            UserError: a pixel has no prediction.
        """
        if (predicted == IGNORED).any():
            raise UserError("the network's outputs for an image are not finite: nothing is scored")
        number, is_labeled = len(self.class_names), labels != IGNORED
        confusion = count_confusion(labels, predicted, number, IGNORED)
        boundaries = boundary_statistics(labels, predicted, number, is_labeled)
        self.add(statistics=reduce_confusions(confusion), boundaries=boundaries, losses=np.nan)
        return confusion, boundaries
