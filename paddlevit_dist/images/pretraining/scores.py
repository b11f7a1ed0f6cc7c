"""Scores of features that are learned without labels: means of images, and the share that neighbors classify right.

Needs no Paddle.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.intervals import means
from ...core.tasks.score_kind import Arrays, FormatInterval, ScoreKind

KIND = "pretraining"
TOP1 = "top-1"
_OF_CLASSES = ("labels", "predictions")


class PretrainingScores(ScoreKind):
    """Means of the numbers of each image and, if images have classes, the top-1 of their neighbors' votes.

    "labels" and "predictions", int (images,), are the class of each image and its neighbors' choice; any other array
    has a number for each image, float (images,), whose mean has the name of the array.
    """

    is_ranking = False
    right_rate = TOP1

    def compute(self, arrays: Arrays, weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Compute the means, and top-1 in percent."""
        columns = {name: array for name, array in arrays.items() if name not in _OF_CLASSES}
        if "predictions" in arrays:
            columns = {TOP1: 100.0 * self.hits(arrays, ())[TOP1], **columns}
        is_infinite = {name: ~np.isfinite(column) for name, column in columns.items()}
        values = means(columns)(weights)
        # A number that is not finite must not hide in the mean of the others.
        return {name: np.where(weights @ is_infinite[name] > 0, np.inf, value) for name, value in values.items()}

    def hits(self, arrays: Arrays, classes: Sequence[str]) -> Mapping[str, np.ndarray]:
        """Return for each image whether its neighbors choose its class."""
        return {TOP1: arrays["predictions"] == arrays["labels"]} if "predictions" in arrays else {}

    def counts(self, arrays: Arrays) -> dict[str, int]:
        """Count the images."""
        return {"images": len(next(iter(arrays.values())))}

    def columns(self, arrays: Arrays) -> Mapping[str, Sequence[Any]]:
        """Return the classes of each image, and its numbers."""
        numbers = {name: array for name, array in arrays.items() if name not in _OF_CLASSES}
        if "predictions" not in arrays:
            return numbers
        named = {name: [self._name(label) for label in arrays[name].tolist()] for name in _OF_CLASSES}
        right = self.hits(arrays, ())[TOP1]
        return {"truth": named["labels"], "prediction": named["predictions"], "correct": right, **numbers}

    def _name(self, label: int) -> str:
        return self.classes[label] if 0 <= label < len(self.classes) else str(label)

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the line that an evaluation ends with."""
        first = [f"{TOP1} of neighbors {values[TOP1]:.2f}%{format_interval(TOP1, 1)}"] if TOP1 in values else []
        others = [(name, value) for name, value in values.items() if isinstance(value, float) and name != TOP1]
        return " ".join([*first, *(f"{name} {value:.4f}{format_interval(name, 4)}" for name, value in others)])

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether there is a number of each kind for each image."""
        return all(array.shape == (samples,) for array in arrays.values()) and (
            ("labels" in arrays) == ("predictions" in arrays)
        )

    def truth(self, arrays: Arrays) -> np.ndarray | None:
        """Return the class of each image; None if they have none."""
        return arrays.get("labels")
