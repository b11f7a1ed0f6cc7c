"""What somebody without this package needs to use an exported segmenter: how pictures are prepared, what the output
means, and how a whole picture was evaluated."""

import paddle

from ...contracts.task import ExportParts
from ...runtime.errors import UserError
from ..transforms.described import described_input, drawn_picture, normalised
from .evaluation import SegmentationEvaluation
from .transforms import Size

_OUTPUT = (
    "(batch, classes, rows, columns), logits at the network's own resolution: resize them bilinearly between the "
    "centres of pixels (align_corners false, half_pixel) to the size of the picture; its class is the largest"
)


class SegmentationExport(SegmentationEvaluation):
    """A segmenter as a function of normalised pictures of one size."""

    image_size_key = "SEGMENTATION.CROP"

    def export_parts(self) -> ExportParts:
        data, size = self.config.DATA, self.crop
        resize = "as 'evaluated' says; then windows of the input's size, or all of it where it has this size"
        about = {
            **described_input(data, self.turns, resize, f"bilinear of {data.RESIZE}"),
            "output": _OUTPUT,
            "evaluated": self.protocol_line(),
        }
        picture = drawn_picture(*size)
        example = {"picture": picture, "input": normalised(picture, data)}
        shape = (self.num_classes, None, None)
        return ExportParts(3, about, size, example=example, output_name="logits", output_shape=shape)

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        return OfOneSize(function, self.crop)


class OfOneSize(paddle.nn.Layer):
    """An exported segmenter, whose input has this height and width, in the place of the network."""

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
