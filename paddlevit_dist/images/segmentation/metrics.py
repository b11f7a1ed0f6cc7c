"""How well the pixels of pictures are labelled: sums over all pictures at the size in which they are stored."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...labelling.confusion import CONFUSION, ConfusionMetrics
from ...labelling.counts import boundary_statistics, confusion_of, statistics_of
from ...runtime.errors import UserError
from .data.segmentation_dataset import IGNORED

_BOUNDARIES = "boundaries"


class SegmentationMetrics(ConfusionMetrics):
    """Counts of (label, prediction) pairs over labelled pixels, and of those near boundaries, see
    ``labelling.counts``. Counted on the host, while a GPU computes the next picture: on a GPU, Paddle's ``bincount``
    waits for all that is queued.

    Args:
        class_names: one per class.
    """

    elements = "pixels"
    beside_statistics = _BOUNDARIES

    def __init__(self, class_names: Sequence[str]) -> None:
        super().__init__(class_names)
        number = len(class_names)
        self.state = {CONFUSION: np.zeros((number, number), np.int64), _BOUNDARIES: np.zeros((3, number), np.int64)}
        self._pictures: list[tuple[np.ndarray, np.ndarray]] = []

    def update(self, predicted: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add a picture; returns its confusion, int64 (classes, classes), and its boundaries, int64 (3, classes).

        Args:
            predicted: uint8 (height, width), the class of each pixel.
            labels: uint8 (height, width), the same or ``IGNORED``.
        Raises:
            UserError: a pixel has no prediction.
        """
        if (predicted == IGNORED).any():
            raise UserError("the network's outputs for a picture are not finite: nothing is scored")
        number, known = len(self.class_names), labels != IGNORED
        confusion = confusion_of(labels, predicted, number, IGNORED)
        boundaries = boundary_statistics(labels, predicted, number, known)
        self.state[CONFUSION] += confusion
        self.state[_BOUNDARIES] += boundaries
        self._pictures.append((statistics_of(confusion), boundaries))
        return confusion, boundaries

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Beside what every ``ConfusionMetrics`` computes the boundary IoU, and the number of pixels."""
        statistics = statistics_of(state[CONFUSION])
        scores = self.scores(statistics[None], state[_BOUNDARIES][None])
        return {**scores, "pixels": int(state[CONFUSION].sum())}

    def per_sample(self) -> list[np.ndarray]:
        """int64 (pictures, 3, classes), of all pixels and of those near boundaries."""
        none = np.zeros((0, 3, len(self.class_names)), np.int64)
        return [np.stack(column) for column in zip(*self._pictures)] or [none, none]

    def summary(self, values: dict[str, float]) -> str:
        shown = (
            f"{super().summary(values)} mean Dice {values['mean Dice']:.4f} boundary IoU {values['boundary IoU']:.4f}"
        )
        return f"{shown}{self.absent(values)}"
