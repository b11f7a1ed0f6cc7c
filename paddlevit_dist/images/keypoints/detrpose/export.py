"""Exported DETRPoses: a function of images and sizes that returns objects with their keypoints."""

from collections.abc import Sequence

import numpy as np
import paddle

from ....core.tasks.step_types import ExportParts
from ...detection.export import BoxExport, EvaluatedFunction, compare_detections, require_one_size
from .network import DetrPose, TopPoses
from .task import KeypointDetection


class PoseExport(BoxExport):
    """Describes an exported DETRPose."""

    task: KeypointDetection
    outputs = ("scores", "labels", "keypoints")  # as in the authors' exports
    meaning = {
        "scores": "float32 (batch, n), probabilities of the objects; best first",
        "labels": "int64 (batch, n), classes from 0",
        "keypoints": "float32 (batch, n, points, 2), x and y of each point in pixels of the stored images; a class has "
        "the first ones, as named in class_points",
    }

    def export_parts(self) -> ExportParts:
        """Return the description of the exported model, with the names of points."""
        parts, task = super().export_parts(), self.task
        points = {name: list(each.names) for name, each in zip(task.class_names, task.keypoint_sets)}
        return parts._replace(about={**parts.about, "class_points": points})

    @staticmethod
    def compare(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]) -> tuple[float, str]:
        """Return the largest difference of two results of an exported function, and what it is of."""
        ours, theirs = (
            (labels, poses.reshape(*labels.shape, -1), scores) for scores, labels, poses in (expected, actual)
        )
        return compare_detections(ours, theirs, "points (as fractions) and scores of nine in ten objects")

    def exported_model(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return the function that is exported."""
        return ExportedPoseDetector(model)

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return a model that evaluates an exported function."""
        require_one_size(self.task.config)
        return EvaluatedPoses(function, self.task.num_classes)


class ExportedPoseDetector(paddle.nn.Layer):
    """A DETRPose as a function of normalized images of one size, without padding."""

    def __init__(self, model: DetrPose) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: paddle.Tensor, sizes: paddle.Tensor):
        """Return scores, labels, keypoints of (N, 3, height, width); ``sizes``: int64 (N, 2), width and height."""
        labels, poses, scores = self.model.best(self.model(images))
        return scores, labels, poses * sizes.astype(poses.dtype).unsqueeze([1, 2])


class EvaluatedPoses(EvaluatedFunction):
    """Adapts a function such as ``ExportedPoseDetector`` to the task's evaluation."""

    def forward(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None) -> TopPoses:  # type: ignore[override]
        """Detect objects with keypoints in images without padding."""
        scores, labels, poses = self.function(images, paddle.ones([len(images), 2], dtype="int64"))
        return TopPoses(labels, poses, scores)
