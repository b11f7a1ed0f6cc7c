"""Predictions of objects with keypoints in whole images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle

from ....core.tasks.prediction import InputSamples
from ...detection.data.transforms import build_evaluation_transform
from ...detection.prediction import DetectionInput
from ..detected_keypoints import DetectedKeypoints
from ..prediction import KeypointPrediction
from .task import KeypointDetection


class PosePrediction(KeypointPrediction):
    """Predicts the objects in images, with their keypoints."""

    task: KeypointDetection

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[DetectedKeypoints]:
        """Return the objects in each image, in its pixels, best first."""
        return self.task.detect(model, batch)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Return samples of images to predict."""
        return self._open_images(inputs, cache_folder, DetectionInput(build_evaluation_transform(self.task.config)))

    def list_named(self) -> Sequence[str]:
        """Return the names of the first categories that have one."""
        return self.task.class_names[: min(len(self.task.category_ids), self.task.num_named)]
