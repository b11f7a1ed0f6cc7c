"""Predictions of several labels for new images: a row with the chosen labels, and the probability of each."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...core.runtime.errors import UserError
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import InputSamples, PredictionWriter, Row
from ...core.tasks.protocols import EnsembleMember
from ...core.tasks.sample_checks import BadSample
from ..classification.prediction import ImageClassPrediction, ImageClassWriter
from .curves import sigmoid
from .scores import join_names
from .task import MultiLabel

_COLUMNS = ("input", "labels")  # that do not stand for a class
_MOST_NAMES = 5
_DIGITS = 7  # of a probability; float32 has no more


class LabelPrediction(ImageClassPrediction):
    """Predicts several labels of images, with one or several networks."""

    task: MultiLabel

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Open images as for one class, and say that the wished thresholds are not known."""
        samples = super().open_inputs(inputs, cache_folder)
        notice = self.task.outputs.thresholds.notice
        samples.notices = [*samples.notices, *([f"note: {notice}"] if notice else [])]
        return samples

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[np.ndarray]:
        """Compute the probability of each label, float64 (classes,), for each image."""
        return list(_compute_probabilities(self.task, model, batch))

    def predict_mean(self, members: Iterable[EnsembleMember], batch: dict[str, Any]) -> list[np.ndarray]:
        """Compute the mean over the networks of the probability of each label, float64 (classes,), for each image."""
        found = [_compute_probabilities(task, model, dict(batch)) for task, model in members]
        source, named = self.task.outputs.thresholds.source, self.task.config.MULTI_LABEL.THRESHOLDS_OF
        if len(found) > 1 and source and named is None:
            raise UserError(
                f"predict: the thresholds {source} were chosen for one network, not for the mean of {len(found)}: set "
                "MULTI_LABEL.THRESHOLDS fixed, or name others with MULTI_LABEL.THRESHOLDS_OF"
            )
        return list(np.mean(found, axis=0))

    def prediction_rows(self, prediction: np.ndarray) -> list[Row]:
        """Return the row of an image: its chosen labels, and the probability of each class."""
        if not np.isfinite(prediction).all():
            raise BadSample("the model's outputs for it are not finite")
        names, chosen = self.task.outputs.names, prediction > self.task.outputs.levels
        columns = [f"probability {name}" if name in _COLUMNS else name for name in names]
        shown = {name: float(f"{share:.{_DIGITS}g}") for name, share in zip(columns, prediction.tolist())}
        return [{"labels": join_names(names, chosen), **shown}]

    def prediction_writer(self, folder: Path, dataset: TransformedDataset) -> PredictionWriter:
        """Return the writer that draws the most probable labels."""
        return ChosenLabelWriter(folder, dataset, self.task.outputs.names, self.task.outputs.levels)


class ChosenLabelWriter(ImageClassWriter):
    """Draws the most probable labels next to the first images; a star marks the chosen ones."""

    noun, remark = "labels", "; * marks the chosen ones"

    def __init__(self, folder: Path, samples: TransformedDataset, names: Sequence[str], thresholds: np.ndarray) -> None:
        super().__init__(folder, samples, names)
        self._names, self._thresholds = names, thresholds

    def choose(self, prediction: np.ndarray) -> tuple[Sequence[str], Sequence[float]]:
        """Return the most probable labels with their probabilities."""
        best = np.argsort(-prediction, kind="stable")[:_MOST_NAMES].tolist()
        marks = ("* " if prediction[label] > self._thresholds[label] else "" for label in best)
        return [f"{mark}{self._names[label]}" for mark, label in zip(marks, best)], prediction[best].tolist()


def _compute_probabilities(task: MultiLabel, model: paddle.nn.Layer, batch: dict[str, Any]) -> np.ndarray:
    return sigmoid(task.logits(model, batch).astype("float32").numpy())
