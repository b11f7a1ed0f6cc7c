"""Export of segmenters."""

import paddle

from ...core.runtime.errors import UserError
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Exportable
from ...core.tasks.step_types import ExportParts
from ..transforms.described import describe_input, draw_image, normalize
from .protocols import describe_protocol, read_crop, read_protocol
from .task import ImageSegmentation
from .transforms import Size

_OUTPUT = (
    "(batch, classes, rows, columns), logits at the network's own resolution: resize them bilinearly between the "
    "centers of pixels (align_corners false, half_pixel) to the size of the image; its class is the largest"
)
_PROBABILITIES = (
    "(batch, classes, rows, columns), probabilities at the size of the input: resize them bilinearly between the "
    "centers of pixels (align_corners false, half_pixel) to the size of the image; its class is the largest"
)
_WINDOWS = "a window starts every stride, the last one of a side at side - size"
_SPREAD = "n = ceil(side / size) windows start at int(i * (size - (n * size - side) / (n - 1))), i from 0"
_MERGED = (
    "each one's logits are resized to the window, and where windows overlap, their logits are averaged, before the "
    "resize to the image"
)


class SegmenterExport(TaskAspect, Exportable):
    """Describes an exported segmenter."""

    task: ImageSegmentation
    image_size_key = "SEGMENTATION.CROP"

    def export_parts(self) -> ExportParts:
        """Return what an export contains in addition to the model."""
        task = self.task
        data, size = task.config.DATA, read_crop(task.config)
        resize = "see 'evaluated'; then windows of the input's size, or the whole image if it has this size"
        meta = {
            **describe_input(data, task.turns, resize, f"bilinear of {data.RESIZE}"),
            "output": _PROBABILITIES if read_protocol(task.config).of_probabilities else _OUTPUT,
            "evaluated": describe_protocol(task.config),
        }
        protocol = read_protocol(task.config)
        if protocol.crop is not None:
            stride = "spread" if protocol.stride is None else list(protocol.stride)
            places = _SPREAD if protocol.stride is None else _WINDOWS
            meta["windows"] = {"size": list(protocol.crop), "stride": stride, "logits": f"{places}; {_MERGED}"}
        image = draw_image(*size)
        example = {"picture": image, "input": normalize(image, data)}
        shape = (task.num_classes, None, None)
        return ExportParts(3, meta, size, example=example, output_names=("logits",), output_shape=shape)

    def evaluated_model(self, function: paddle.nn.Layer) -> paddle.nn.Layer:
        """Wrap an exported model, to check the size of its input."""
        config = self.task.config
        return FixedSizeModel(function, read_crop(config), read_protocol(config).crop is not None)


class FixedSizeModel(paddle.nn.Layer):
    """An exported segmenter with a fixed input size, which replaces the network."""

    def __init__(self, function: paddle.nn.Layer, size: Size, has_windows: bool = False) -> None:
        super().__init__()
        self.function, self._size, self._has_windows = function, size, has_windows

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        """Run the exported segmenter; raise UserError if images, or windows of them, have another size."""
        if tuple(images.shape[2:]) != self._size:
            size, input_size = ("x".join(map(str, shape)) for shape in (self._size, images.shape[2:]))
            windows = f"set SEGMENTATION.PROTOCOL slide with SEGMENTATION.CROP [{size.replace('x', ', ')}], "
            given = "a window of an image with a shorter side" if self._has_windows else "the input"
            raise UserError(
                f"the exported model takes {size} pixels (height x width), but {given} has {input_size}; "
                f"{'' if self._has_windows else windows}enlarge smaller images with DATA.EVAL_SHORTEST_SIDE, or export "
                "the model for this size (-image_size)"
            )
        return self.function(images)
