"""Metrics of semantic segmentation: sums over the pixels of all images at their stored size, and figures."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...metrics.confusion import CONFUSION, ConfusionMetrics
from ...metrics.counts import boundary_statistics, count_confusion, reduce_confusions
from ...runtime.errors import UserError
from .data.segmentation_dataset import IGNORED

_BOUNDARIES = "boundaries"


class SegmentationMetrics(ConfusionMetrics):
    """Counts of (label, prediction) pairs over labeled pixels and over those near boundaries, see ``metrics.counts``.

    Counts are computed on the host while a GPU computes the next image: Paddle's ``bincount`` waits for all queued
    work.
    """

    elements = "pixels"
    second_array = _BOUNDARIES
    lists = ("_images",)

    def __init__(self, class_names: Sequence[str]) -> None:
        super().__init__(class_names)
        number = len(class_names)
        self.state = {CONFUSION: np.zeros((number, number), np.int64), _BOUNDARIES: np.zeros((3, number), np.int64)}
        self._images: list[tuple[np.ndarray, np.ndarray]] = []

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
        self.state[CONFUSION] += confusion
        self.state[_BOUNDARIES] += boundaries
        self._images.append((reduce_confusions(confusion), boundaries))
        return confusion, boundaries

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Compute the scores of ``ConfusionMetrics``, the boundary IoU, and the number of pixels."""
        statistics = reduce_confusions(state[CONFUSION])
        scores = self.scores(statistics[None], state[_BOUNDARIES][None])
        return {**scores, "pixels": int(state[CONFUSION].sum())}

    def per_sample(self) -> list[np.ndarray]:
        """Return int64 (images, 3, classes), of all pixels and of those near boundaries."""
        none = np.zeros((0, 3, len(self.class_names)), np.int64)
        return [np.stack(column) for column in zip(*self._images)] or [none, none]

    def summary(self, values: dict[str, float]) -> str:
        """Format the scores for the log."""
        shown = (
            f"{super().summary(values)} mean Dice {values['mean Dice']:.4f} boundary IoU {values['boundary IoU']:.4f}"
        )
        return f"{shown}{self.absent(values)}"
