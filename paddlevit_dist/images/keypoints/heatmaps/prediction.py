"""Predictions of keypoints by heatmaps for images without annotations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle

from ....tasks.prediction import InputSamples
from ..detected_keypoints import DetectedKeypoints
from ..prediction import KeypointPrediction
from .samples import ImageInput
from .task import KeypointHeatmaps


class HeatmapPrediction(KeypointPrediction):
    """Predicts the keypoints of the objects that a detector finds, or of one object that fills the image."""

    task: KeypointHeatmaps

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[DetectedKeypoints]:
        """Return the objects in each image, with points in its pixels."""
        return self.task.finder(model, batch)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Return samples of images to predict."""
        task = self.task
        detector, lines = task.detector, ["each image is one object (-detector=RUN finds several)"]
        if detector is not None:
            lines = detector.match_categories(task.class_names)
            transform = ImageInput(task.crops, None, detector.prepare)
        else:
            transform = ImageInput(task.crops, task.whole_images)
        samples = self._open_images(inputs, cache_folder, transform)
        samples.notices = [*samples.notices, *lines]
        return samples
