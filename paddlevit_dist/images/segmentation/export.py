"""Export of segmenters."""

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Exportable
from ...core.tasks.step_types import ExportParts
from ..transforms.described import describe_input, draw_image, normalize
from .protocols import describe_protocol, read_crop, read_protocol
from .task import ImageSegmentation

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
        parts = ExportParts(3, meta, size, example=example, output_names=("logits",), output_shape=shape)
        return parts._replace(is_any_size=True)
