"""What somebody without this package needs to use an exported segmenter: how pictures are prepared, what the output
means, and how a whole picture was evaluated."""

from typing import Any

import numpy as np
import paddle
from PIL import Image

from ...contracts.task import ExportParts, TaskExport
from ...runtime.errors import UserError
from .protocols import Protocol
from .transforms import Size, channels_first

_OUTPUT = (
    "(batch, classes, rows, columns), logits at the network's own resolution: resize them bilinearly between the "
    "centres of pixels (align_corners false, half_pixel) to the size of the picture; its class is the largest"
)


class SegmentationExport(TaskExport):
    """A segmenter as a function of normalised pictures of one size."""

    image_size_key = "SEGMENTATION.EXPORT_SIZE"

    num_classes: int | None
    protocol: Protocol

    @property
    def _export_size(self) -> Size:
        height, width = self.config.SEGMENTATION.EXPORT_SIZE or self.protocol.crop or self.config.DATA.CROP_SIZE
        return height, width

    def protocol_line(self) -> str:
        """What a score depends on besides the weights and the data."""
        raise NotImplementedError

    def export_parts(self) -> ExportParts:
        data, size = self.config.DATA, self._export_size
        mean, deviation = ([float(value) for value in values] for values in (data.IMAGENET_MEAN, data.IMAGENET_STD))
        steps = {
            "mode": "RGB",
            "upright": "turned as its EXIF orientation says" if data.EXIF_ROTATE else "as stored",
            "resize": "as 'evaluated' says; of the result, windows of this size, or the whole if it has this size",
            "interpolation": "bilinear, as PIL's BILINEAR",
            "divide_by": 255,
            "subtract": mean,
            "divide_by_deviation": deviation,
            "layout": "batch, channels, height, width",
        }
        about = {
            "mean": mean,
            "standard_deviation": deviation,
            "preprocessing": steps,
            "output": _OUTPUT,
            "evaluated": self.protocol_line(),
        }
        shape = (self.num_classes, None, None)
        example = _example(size, mean, deviation)
        return ExportParts(3, about, size, example=example, output_name="logits", output_shape=shape)

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        return OfOneSize(function, self._export_size)


class OfOneSize(paddle.nn.Layer):
    """An exported segmenter in the place of the network.

    Args:
        size: height and width of its input.
    """

    def __init__(self, function: paddle.nn.Layer, size: Size) -> None:
        super().__init__()
        self.function, self._size = function, size

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        """
        Raises:
            UserError: pictures, or windows of them, have another size.
        """
        if tuple(images.shape[2:]) != self._size:
            own, theirs = ("x".join(map(str, size)) for size in (self._size, images.shape[2:]))
            raise UserError(
                f"the exported model takes {own} pixels (height x width), and the network would see {theirs} here: set "
                f"SEGMENTATION.PROTOCOL slide with SEGMENTATION.CROP [{own.replace('x', ', ')}], enlarge smaller "
                "pictures with DATA.EVAL_SHORTEST_SIDE, or export the model for this size (-image_size)"
            )
        return self.function(images)


def _example(size: Size, mean: Any, deviation: Any) -> dict[str, np.ndarray]:
    """A drawn picture, uint8 (*size, 3), and the input that it becomes, float32 (1, 3, *size)."""
    rows, columns = np.mgrid[: size[0], : size[1]]
    inside = (rows - size[0] / 2) ** 2 + (columns - size[1] / 2) ** 2 < min(size) ** 2 / 9
    planes = [rows * 255 // size[0], columns * 255 // size[1], inside * 220]
    picture = np.stack(planes, axis=-1).astype(np.uint8)
    centre, spread = (np.asarray(values, np.float32).reshape(-1, 1, 1) for values in (mean, deviation))
    pixels = channels_first(Image.fromarray(picture)).astype(np.float32)
    return {"picture": picture, "input": ((pixels / 255 - centre) / spread)[None].astype(np.float32)}
