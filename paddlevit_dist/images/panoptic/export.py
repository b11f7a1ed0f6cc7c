"""Export of networks whose queries have a class and a mask each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
from PIL import Image

from ...core.runtime.errors import UserError
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Exportable
from ...core.tasks.step_types import ExportParts
from ..mask_queries.segments import class_probabilities
from ..transforms.described import describe_input, draw_image, normalize
from .task import PanopticSegmentation
from .transforms import build_evaluation_transform

OUTPUTS = ("classes", "masks")
_MEANING = {
    "classes": "float32 (batch, queries, classes + 1), logits; the last is of no object",
    "masks": "float32 (batch, queries, height, width), logits in the input: resize them bilinearly between the centers "
    "of cells to the input, keep the part with the image, and resize this to the image",
}
_RESIZE = (
    "both sides by one factor, so that the image fits the input; it is in the upper left corner, and black fills the "
    "rest"
)


class SegmentExport(TaskAspect, Exportable):
    """Describes an exported network."""

    task: PanopticSegmentation
    image_size_key = "PANOPTIC.INPUT_SIZE"

    def export_parts(self) -> ExportParts:
        """Return what an export contains in addition to the model."""
        task, keys = self.task, self.task.config.PANOPTIC
        height, width = keys.INPUT_SIZE
        description = {
            **describe_input(task.config.DATA, task.turns, _RESIZE, "bilinear, as PIL's BILINEAR"),
            "output": _MEANING,
            "things": list(task.is_thing),
            "segments": {
                "score": keys.SCORE_THRESHOLD,
                "mask": keys.MASK_THRESHOLD,
                "overlap": keys.OVERLAP_THRESHOLD,
                "rules": "queries whose best class is more likely than score; a pixel is of the query with the largest "
                "product of both probabilities, if that of the mask is at least mask; queries whose masks others "
                "mostly take (overlap) are omitted; stuff of one class is one segment",
            },
        }
        image = draw_image(90, 120)
        pixels, _ = build_evaluation_transform(task.config)(Image.fromarray(image))
        example = {"picture": image, "input": normalize(pixels.transpose(1, 2, 0), task.config.DATA)}
        size = (height, width)
        return ExportParts(3, description, size, example=example, output_names=OUTPUTS, difference=self.compare)

    @staticmethod
    def compare(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]) -> tuple[float, str]:
        """Return the largest difference of two results of an exported function, and what it is of."""
        (classes, masks), (other_classes, other_masks) = (
            (class_probabilities(one), np.tanh(other.astype(np.float64) / 2) / 2) for one, other in (expected, actual)
        )
        difference = max(float(np.abs(classes - other_classes).max()), float(np.abs(masks - other_masks).max()))
        return difference, "probabilities of classes and masks"

    def exported_model(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return the function that is exported."""
        return ExportedQueries(model)

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        """Return a model that evaluates an exported function."""
        return EvaluatedQueries(function)


class ExportedQueries(paddle.nn.Layer):
    """A network as a function of normalized images of one size."""

    def __init__(self, model: paddle.nn.Layer) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: paddle.Tensor) -> tuple[Any, ...]:
        """Return ``_MEANING`` of images (N, 3, height, width)."""
        outputs = self.model(images)
        return tuple(outputs[name] for name in OUTPUTS)


class EvaluatedQueries(paddle.nn.Layer):
    """Adapts an exported function to the task's evaluation."""

    def __init__(self, function: paddle.nn.Layer) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: paddle.Tensor) -> dict[str, paddle.Tensor]:
        """Run the function; raise UserError if it returns something else than ``OUTPUTS``."""
        found = self.function(images)
        if not isinstance(found, (tuple, list)) or len(found) != len(OUTPUTS):
            raise UserError(f"EXPORTED does not return {' and '.join(OUTPUTS)}: it is not an export of this task")
        return dict(zip(OUTPUTS, found))
