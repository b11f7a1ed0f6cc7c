"""Needs of somebody without this package who uses an exported detector: a function of images and their sizes that gives
objects, how images are prepared, and what the outputs mean."""

import math
from collections.abc import Sequence

import numpy as np
import paddle
from PIL import Image

from ...runtime.errors import UserError
from ...tasks.task import ExportParts
from ..transforms.described import describe_input, draw_image, normalize
from .data.transforms import resize, resize_as_torchvision, whole_view
from .detections import DetectedObjects
from .detector import Detector, TopDetections
from .settings import PILLOW, TORCHVISION, DetectionDataSection

_INTERPOLATIONS = {
    PILLOW: "bilinear, as PIL's BILINEAR",
    TORCHVISION: "bilinear between the four nearest pixels, levels not rounded, as PyTorch's interpolate",
}

OUTPUTS = ("labels", "boxes", "scores")  # names and sizes as RT-DETR's and D-FINE's authors have them
SIZES = "orig_target_sizes"
_MEANING = {
    "labels": "int64 (batch, n), classes from 0; best first",
    "boxes": "float32 (batch, n, 4), x0, y0, x1, y1 in pixels of the pictures as they are stored",
    "scores": "float32 (batch, n), probabilities",
}
_LEFT_OUT = 0.1
_COMPARED = "boxes (as shares) and scores of nine in ten objects"


class ExportedDetector(paddle.nn.Layer):
    """A detector as a function of normalized images of one size, without padding."""

    def __init__(self, model: Detector) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: paddle.Tensor, sizes: paddle.Tensor):
        """Labels, boxes and scores, see ``_MEANING``.

        Args:
            images: (N, 3, height, width).
            sizes: int64 (N, 2), width and height of the pictures that boxes are given for.
        """
        labels, boxes, scores = self.model.best(self.model(images))
        return labels, boxes * paddle.concat([sizes, sizes], axis=1).astype(boxes.dtype).unsqueeze(1), scores


class EvaluatedFunction(paddle.nn.Layer):
    """The other way round: what the task evaluates, of a function such as ``ExportedDetector``, which may be another
    maker's.

    Args:
        num_classes: of the data; None: not known.
    """

    def __init__(self, function: paddle.nn.Layer, num_classes: int | None) -> None:
        super().__init__()
        self.function, self._classes = function, math.inf if num_classes is None else num_classes

    @property
    def computes_alone(self) -> bool:
        """Whether only the function is computed: no weights for a comparison, and nothing that was kept."""
        return getattr(self.function, "pairs", ()) is None

    def forward(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None) -> TopDetections:
        """What is found in images without padding."""
        return TopDetections(*self.function(images, paddle.ones([len(images), 2], dtype="int64")))

    def decode(self, outputs: TopDetections, sizes: np.ndarray, original_sizes: np.ndarray) -> list[DetectedObjects]:
        """As ``Detector.decode``.

        Raises:
            UserError: there are labels of no class.
        """
        found, known = outputs.read(original_sizes), self._classes
        labels = np.concatenate([one.labels for one in found])
        wrong = labels[(labels < 0) | (labels >= known)]
        if len(wrong):
            said = f"EXPORTED gives label {wrong[0]}, and these data have 0 to {known - 1}"
            raise UserError(f"{said}: name data of its classes")
        return found


def difference(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> tuple[float, str]:
    """Of scores and boxes, as shares of the longest coordinate, without regard to the order of objects with nearly
    equal scores. Each expected object is compared with the nearest one of its label. Those with the largest distances
    are left out: which object is the last that is still among the best, rounding may decide.

    Args:
        expected, found: labels (N, n), boxes (N, n, 4), scores (N, n).
    """
    (labels, boxes, scores), (other_labels, other_boxes, other_scores) = expected, found
    scale = max(1.0, float(np.abs(boxes).max()))
    apart = np.abs(boxes[:, :, None] - other_boxes[:, None]).max(axis=3) / scale  # (N, n, n)
    apart = np.maximum(apart, np.abs(scores[:, :, None] - other_scores[:, None]))
    apart = np.where(labels[:, :, None] == other_labels[:, None], apart, 1.0).min(axis=2)
    nearest = float(np.quantile(apart, 1 - _LEFT_OUT, method="higher"))
    return nearest if nearest == nearest else math.inf, _COMPARED


def export_parts(data: DetectionDataSection, size: tuple[int, int], turned: bool, is_one_size: bool) -> ExportParts:
    """The parts for a detector trained with this configuration.

    Args:
        data: the configuration's DATA.
        size: height and width that images are resized to.
        turned: they are turned as their EXIF orientation says.
        is_one_size: evaluations resize images as an exported model needs it.
    """
    about = {
        **describe_input(data, turned, list(size), _INTERPOLATIONS[data.EVAL_RESIZE]),
        SIZES: "int64 (batch, 2), width and height of the pictures as they are stored",
        "output": _MEANING,
    }
    if not is_one_size:
        about["note"] = (
            "an evaluation keeps the proportions of images, with so many pixels of the shorter side: "
            f"{data.EVAL_SHORTEST_SIDE}; it finds somewhat more than this model of one size"
        )
    image = draw_image(90, 120)
    view = whole_view(Image.fromarray(image), np.zeros((0, 4)), np.zeros(0, np.int64))
    resized = (resize_as_torchvision if data.EVAL_RESIZE == TORCHVISION else resize)(view, size).image
    example = {"picture": image, "input": normalize(np.asarray(resized), data)}
    return ExportParts(3, about, size, example=example, output_names=OUTPUTS, sizes_name=SIZES, difference=difference)
