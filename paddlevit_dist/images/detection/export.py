"""Needs of somebody without this package who uses an exported detector: a network of one input and one output, how
images are prepared, and what the output means."""

import numpy as np
import paddle
from paddle.nn import functional as F
from PIL import Image

from ...tasks.task import ExportParts
from ..transforms.described import describe_input, draw_image, normalise
from .data.transforms import resize, resize_as_torchvision, whole_view
from .detections import Detections
from .detector import Detector, Outputs
from .settings import PILLOW, TORCHVISION, Data

_INTERPOLATIONS = {
    PILLOW: "bilinear, as PIL's BILINEAR",
    TORCHVISION: "bilinear between the four nearest pixels, levels not rounded, as PyTorch's interpolate",
}

_SMALLEST = 1e-38  # probability whose logarithm is taken for that of 0
_LEAST = 2.0**-24  # between 1 and the next float32 below: of a probability that has no other beside it
_OUTPUT = (
    "(batch, boxes, 4 + classes), for each box centre x, centre y, width and height as shares of the image, then the "
    "probability of each class"
)
_NO_OBJECT = "; what they lack to 1 is that of no object"
_OWN = ", each for itself: the best pairs of box and class are detections"


class ExportedDetector(paddle.nn.Layer):
    """A detector as a function of normalised images of one size, without padding."""

    def __init__(self, model: Detector) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        """(N, 3, height, width) -> (N, queries, 4 + classes), see ``_OUTPUT``."""
        outputs = self.model(images)
        logits = outputs["logits"]
        probabilities = F.softmax(logits, axis=-1)[:, :, :-1] if self.model.has_no_object else F.sigmoid(logits)
        return paddle.concat([outputs["boxes"], probabilities], axis=-1)


class EvaluatedFunction(paddle.nn.Layer):
    """The other way round: what the task evaluates, of a function such as ``ExportedDetector``.

    Args:
        family: class of the network, which knows how its outputs are decoded.
    """

    def __init__(self, function: paddle.nn.Layer, family: type[Detector]) -> None:
        super().__init__()
        self.function, self._family = function, family

    def forward(self, images: paddle.Tensor, sizes: paddle.Tensor | None = None) -> Outputs:
        """Outputs of the network, of images without padding: logits that give the probabilities."""
        found = self.function(images)  # (N, queries, 4 + classes)
        probabilities = found[:, :, 4:]
        if self._family.has_no_object:
            nothing = 1 - probabilities.sum(axis=-1, keepdim=True)
            logits = paddle.log(paddle.clip(paddle.concat([probabilities, nothing], axis=-1), min=_SMALLEST))
        else:
            beside = paddle.clip(1 - probabilities, min=_LEAST)
            logits = paddle.log(paddle.clip(probabilities, min=_SMALLEST)) - paddle.log(beside)
        return {"boxes": found[:, :, :4], "logits": logits}

    def decode(self, outputs: Outputs, sizes: np.ndarray, original_sizes: np.ndarray) -> list[Detections]:
        """As ``Detector.decode``."""
        return self._family.decode(self, outputs, sizes, original_sizes)


def export_parts(family: type[Detector], data: Data, size: tuple[int, int], turned: bool) -> ExportParts:
    """The parts for a detector trained with this configuration.

    Args:
        family: class of the network.
        data: the configuration's DATA.
        size: height and width that images are resized to.
        turned: they are turned as their EXIF orientation says.
    """
    about = {
        **describe_input(data, turned, list(size), _INTERPOLATIONS[data.EVAL_RESIZE]),
        "output": _OUTPUT + (_NO_OBJECT if family.has_no_object else _OWN),
    }
    if not data.SQUARE:
        about["note"] = (
            "an evaluation keeps the proportions of images, with so many pixels of the shorter side: "
            f"{data.EVAL_SHORTEST_SIDE}; it finds somewhat more than this model of one size"
        )
    image = draw_image(90, 120)
    view = whole_view(Image.fromarray(image), np.zeros((0, 4)), np.zeros(0, np.int64))
    resized = (resize_as_torchvision if data.EVAL_RESIZE == TORCHVISION else resize)(view, size).image
    example = {"picture": image, "input": normalise(np.asarray(resized), data)}
    return ExportParts(3, about, size, example=example, output_name="boxes")
