"""Exported detectors: a function of images and sizes, and what is needed to use it without this package."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
from PIL import Image

from ...core.registry.lookup import resolve
from ...core.runtime.errors import UserError
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Exportable
from ...core.tasks.step_types import ExportParts
from ..transforms.described import describe_input, draw_image, normalize
from .data.transforms import build_window_plan, export_size, resize, resize_as_torchvision, whole_view
from .detector import Detector, TopDetections
from .settings import ONE_SIZE, PILLOW, TORCHVISION, DetectionSettings
from .task import Detection

_INTERPOLATIONS = {
    PILLOW: "bilinear, as PIL's BILINEAR",
    TORCHVISION: "bilinear between the four nearest pixels, levels not rounded, as PyTorch's interpolate",
}

OUTPUTS = ("labels", "boxes", "scores")  # names and shapes as in RT-DETR's and D-FINE's exports
SIZES = "orig_target_sizes"
_MEANING = {
    "labels": "int64 (batch, n), classes from 0; best first",
    "boxes": "float32 (batch, n, 4), x0, y0, x1, y1 in pixels of the stored images",
    "scores": "float32 (batch, n), probabilities",
}
_MASKS = {
    "masks": "float32 (batch, n, height, width), logits in the whole image; resized to it, bilinearly between centers "
    "of cells, they are above 0 inside"
}
_IGNORED_SHARE = 0.1
_COMPARED = "boxes (as fractions) and scores of nine in ten objects"


class BoxExport(TaskAspect, Exportable):
    """Describes an exported detector."""

    task: Detection
    image_size_key = "DETECTION.EXPORT_SIZE"
    outputs = OUTPUTS
    meaning = _MEANING

    def export_parts(self) -> ExportParts:
        """Return the description of the exported model."""
        config = self.task.config
        family = resolve("model", config.MODEL.NAME)
        require_exportable(family, config.MODEL.NAME)
        masks = _MASKS if family.learns_masks else {}
        data, size, plan = config.DATA, export_size(config), build_window_plan(config)
        description = {
            **describe_input(data, self.task.turns, list(size), _INTERPOLATIONS[data.EVAL_RESIZE]),
            SIZES: "int64 (batch, 2), width and height of the stored images",
            "output": {**self.meaning, **masks},
        }
        if config.DETECTION.EVAL_BATCHING != ONE_SIZE:
            description["note"] = (
                "an evaluation keeps the aspect ratio of images, with a shorter side of "
                f"{data.EVAL_SHORTEST_SIDE} pixels; it detects slightly more than this model of one size"
            )
        if plan is not None:
            description["windows"] = plan.to_description(config.DETECTION.MERGE_IOU)
        image = draw_image(90, 120)
        view = whole_view(Image.fromarray(image), np.zeros((0, 4)), np.zeros(0, np.int64))
        resized = (resize_as_torchvision if data.EVAL_RESIZE == TORCHVISION else resize)(view, size).image
        example = {"picture": image, "input": normalize(np.asarray(resized), data)}
        return ExportParts(
            3,
            description,
            size,
            example=example,
            output_names=(*self.outputs, *masks),
            sizes_name=SIZES,
            difference=self.compare,
        )

    @staticmethod
    def compare(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]) -> tuple[float, str]:
        """Return the largest difference of two results of an exported function, and what it is of."""
        return compare_detections(expected, actual)

    def exported_model(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return the function that is exported."""
        return ExportedDetector(model)

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return a model that evaluates an exported function."""
        require_one_size(self.task.config)
        return EvaluatedFunction(function, self.task.num_classes)


class ExportedDetector(paddle.nn.Layer):
    """A detector as a function of normalized images of one size, without padding."""

    def __init__(self, model: Detector) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: paddle.Tensor, sizes: paddle.Tensor):
        """Return ``_MEANING`` of (N, 3, height, width); ``sizes``: int64 (N, 2), width and height boxes refer to."""
        found = self.model.best(self.model(images))
        boxes = found.boxes * paddle.concat([sizes, sizes], axis=1).astype(found.boxes.dtype).unsqueeze(1)
        return found.labels, boxes, found.scores, *(() if found.masks is None else (found.masks,))


class EvaluatedFunction(paddle.nn.Layer):
    """Adapts a function such as ``ExportedDetector``, possibly of another project, to the task's evaluation."""

    def __init__(self, function: paddle.nn.Layer, num_classes: int | None) -> None:
        super().__init__()
        self.function, self._classes = function, math.inf if num_classes is None else num_classes

    @property
    def computes_alone(self) -> bool:
        """Whether only the function is computed, without a comparison and without cached results."""
        return getattr(self.function, "pairs", ()) is None

    def forward(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None) -> TopDetections:
        """Detect objects in images without padding."""
        return TopDetections(*self.function(images, paddle.ones([len(images), 2], dtype="int64")))

    def decode(self, outputs: Any, sizes: np.ndarray, original_sizes: np.ndarray) -> list[Any]:
        """Return the detections, see ``Detector.decode``; raise UserError if a label is not a class of the data."""
        detections, num_classes = outputs.read(original_sizes), self._classes
        labels = np.concatenate([image.labels for image in detections])
        wrong = labels[(labels < 0) | (labels >= num_classes)]
        if len(wrong):
            message = f"EXPORTED returns label {wrong[0]}, but these data have 0 to {num_classes - 1}"
            raise UserError(f"{message}: use data with its classes")
        return detections


def compare_detections(
    expected: Sequence[np.ndarray], actual: Sequence[np.ndarray], compared: str = _COMPARED
) -> tuple[float, str]:
    """Return the largest distance of scores, and of boxes as fractions of the longest coordinate, and what it is.

    Each expected object is compared with the nearest one of its label. The largest tenth of the distances is ignored,
    since rounding may decide which object is the last among the best. Both are labels (N, n), boxes (N, n, 4) or other
    coordinates (N, n, m), scores (N, n), and perhaps logits of masks (N, n, height, width), whose distance is the mean
    difference of probabilities.
    """
    (labels, boxes, scores), (other_labels, other_boxes, other_scores) = expected[:3], actual[:3]
    scale = max(1.0, float(np.abs(boxes).max()))
    distances = np.abs(boxes[:, :, None] - other_boxes[:, None]).max(axis=3) / scale  # (N, n, n)
    distances = np.maximum(distances, np.abs(scores[:, :, None] - other_scores[:, None]))
    distances = np.where(labels[:, :, None] == other_labels[:, None], distances, 1.0)
    places, distances = distances.argmin(axis=2)[:, :, None, None], distances.min(axis=2)
    for masks, others in zip(expected[3:], actual[3:]):
        apart = np.tanh(masks / 2) - np.tanh(np.take_along_axis(others, places, axis=1) / 2)  # of twice the sigmoid
        distances = np.maximum(distances, np.abs(apart / 2).mean(axis=(2, 3)))
        compared = f"masks, {compared}"
    nearest = float(np.quantile(distances, 1 - _IGNORED_SHARE, method="higher"))
    return nearest if nearest == nearest else math.inf, compared


def require_exportable(family: type[Detector], name: str) -> None:
    """Raise UserError if networks of this family cannot be exported."""
    if not family.is_exportable:
        raise UserError(
            f"export: {name} selects regions on the host with Paddle's nms, which paddle2onnx does not support: "
            "export a DETR, RT-DETR, D-FINE or RF-DETR, or predict with this package"
        )


def require_one_size(config: DetectionSettings) -> None:
    """Raise UserError if an evaluation keeps images' aspect ratio, which an exported model does not."""
    if config.DETECTION.EVAL_BATCHING != ONE_SIZE:
        raise UserError(
            "an exported detector takes images of one size, but DETECTION.EVAL_BATCHING "
            f"{config.DETECTION.EVAL_BATCHING} keeps their aspect ratio: set it to {ONE_SIZE}"
        )
