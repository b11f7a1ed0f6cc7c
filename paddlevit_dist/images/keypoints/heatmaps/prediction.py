"""Predictions of keypoints by heatmaps for images without annotations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ....core.tasks.prediction import InputSamples
from ..detected_keypoints import DetectedKeypoints
from ..prediction import KeypointPrediction
from .samples import ImageInput
from .task import KeypointHeatmaps


class HeatmapPrediction(KeypointPrediction):
    """Predicts the keypoints of the objects that a detector finds, or of one object that fills the image."""

    task: KeypointHeatmaps

    is_one_object = False  # whether each input is one object, which ``open_inputs`` decides

    @property
    def least_score(self) -> float:
        """Lowest score of an object that is shown; none if each image is one object."""
        return 0.0 if self.is_one_object else super().least_score

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[DetectedKeypoints]:
        """Return the objects in each image, with points in its pixels; of an image that is one object the best."""
        found = self.task.finder(model, batch)
        if not self.is_one_object:
            return found
        return [objects.only(np.argsort(-objects.scores, kind="stable")[:1]) for objects in found]

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Return samples of images to predict."""
        task = self.task
        detector, lines = task.detector, ["each image is one object, with any score (-detector=RUN finds several)"]
        self.is_one_object = detector is None
        if detector is not None:
            lines = detector.match_categories(task.class_names)
            transform = ImageInput(task.crops, None, detector.prepare)
        else:
            transform = ImageInput(task.crops, task.whole_images)
        samples = self._open_images(inputs, cache_folder, transform)
        samples.notices = [*samples.notices, *lines]
        return samples
