"""Metrics of learning without labels over the processes of a run: numbers of images, and votes of neighbors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ...core.tasks.metrics import TableMetrics, gather_columns
from .neighbors import predict_by_others
from .scores import KIND

FEATURES = "features"


class PretrainingMetrics(TableMetrics):
    """Collect numbers of each image and, if images have classes, features and labels.

    The images of all ranks are each other's neighbors, so that scores are equal on any number of processes.

    Args:
        class_names: names of the classes; empty: there are none.
        neighbors: number of the most similar other images that vote.
    """

    def __init__(self, class_names: Sequence[str], neighbors: int) -> None:
        super().__init__(KIND, class_names)
        self.neighbors = neighbors
        self._predictions: np.ndarray | None = None

    def update(self, numbers: dict[str, paddle.Tensor], features: paddle.Tensor | None, labels: paddle.Tensor) -> None:
        """Add a batch.

        Args:
            numbers: float (batch,) by name, whose means are values.
            features: float (batch, channels); None: images have no classes.
            labels: int64 (batch,), the class of each image.
        """
        columns = {name: column.astype("float32") for name, column in numbers.items()}
        if features is not None:
            columns = {"labels": labels.astype("int32"), FEATURES: features.astype("float32"), **columns}
        self.add_batch(**columns)

    def rows(self) -> dict[str, np.ndarray]:
        """Return the numbers of this rank's images; with classes also these and, once known, their predictions."""
        rows = super().rows()
        features = rows.pop(FEATURES, None)
        if features is None or self._predictions is None:
            return rows if features is None else {**rows, FEATURES: features}
        return {**rows, "predictions": self._predictions}

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Compute the values of all ranks' samples. Every rank must call this."""
        self._predictions = None
        rows = self.rows()
        own = {name: rows[name] for name in ("labels", FEATURES) if name in rows}
        indices, table = gather_columns(own, self.indices)
        if table:
            found = predict_by_others(table[FEATURES], table["labels"], self.neighbors)
            places = range(len(found)) if indices is None else np.searchsorted(indices, np.asarray(self.indices))
            self._predictions = found[np.asarray(places, np.int64)]
        return super().compute(state)
