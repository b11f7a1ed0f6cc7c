"""What an exported classifier needs without this package: preprocessing, an example, and PaddleX's description."""

import math
from typing import Any

import numpy as np
from PIL import Image

from ...tasks.aspects import TaskAspect
from ...tasks.protocols import Exportable
from ...tasks.step_types import ExportParts
from .samples import evaluation_transform, find_dataset_class
from .settings import ClassificationDataSection
from .task import Classification

_TOP = 5


class ImageClassExport(TaskAspect, Exportable):
    """Describes an exported classifier."""

    task: Classification

    def export_parts(self) -> ExportParts:
        """Return what an export contains in addition to the model."""
        config, num_classes = self.task.config, self.task.num_classes
        data, kind = config.DATA, find_dataset_class(config).kind
        channels, size = data.IMAGE_CHANNELS, data.IMAGE_SIZE
        mean, deviation = ([float(value) for value in values] for values in (data.IMAGENET_MEAN, data.IMAGENET_STD))
        shorter = None if kind == "glyph" else math.floor(size / data.CROP_PCT)
        steps: dict[str, Any] = {"mode": "RGB" if channels == 3 else "L"}
        if data.EXIF_ROTATE:
            steps["upright"] = "turned as its EXIF orientation says"
        is_square = data.CROP_MODE == "squash"
        if shorter is None:
            steps["resize"] = [size, size]
        elif is_square:
            steps["resize"] = [shorter, shorter]
        else:
            steps["resize_shorter_side"] = shorter
            steps["longer_side"] = "int(resize_shorter_side * longer / shorter)"
        if shorter is not None:
            steps["center_crop"] = [size, size]
            steps["crop_starts_at"] = "round((side - crop) / 2), halves to the even number"
        interpolation = "bicubic" if kind == "glyph" else data.INTERPOLATION
        steps.update(interpolation=f"{interpolation}, as PIL's {interpolation.upper()}", divide_by=255)
        steps.update(subtract=mean, divide_by_deviation=deviation, layout="batch, channels, height, width")
        meta = {
            "mean": mean,
            "standard_deviation": deviation,
            "crop_pct": float(data.CROP_PCT),
            "preprocessing": steps,
            "output": "logits of the classes; their softmax is the probability of each",
        }
        paddlex = _paddlex(size, shorter, is_square, mean, deviation, interpolation) if channels == 3 else None
        outputs = None if num_classes is None else (num_classes,)
        return ExportParts(channels, meta, example=_example(data, kind), paddlex=paddlex, output_shape=outputs)


def _example(data: ClassificationDataSection, kind: str) -> dict[str, np.ndarray]:
    """Return a drawn image, uint8 (90, 120[, 3]), and its model input, float32 (1, channels, size, size)."""
    rows, columns = np.mgrid[0:90, 0:120]
    planes = [rows * 2, columns * 2, ((rows - 45) ** 2 + (columns - 60) ** 2 < 900) * 220]
    image = np.stack(planes, axis=-1).astype(np.uint8)
    image = image if data.IMAGE_CHANNELS == 3 else image[..., 2]
    transform = evaluation_transform(data, kind)
    pixels = transform(Image.fromarray(image), np.random.default_rng(0)).astype(np.float32)
    mean, deviation = (np.asarray(values, dtype=np.float32) for values in (data.IMAGENET_MEAN, data.IMAGENET_STD))
    prepared = (pixels / 255 - mean.reshape(-1, 1, 1)) / deviation.reshape(-1, 1, 1)
    return {"picture": image, "input": prepared[None].astype(np.float32)}


def _paddlex(
    size: int, shorter: int | None, is_square: bool, mean: list[float], deviation: list[float], interpolation: str
) -> dict[str, Any]:
    """Return ``inference.yml`` for PaddleX's classification predictor 3, without names of classes and model."""
    resize: dict[str, Any] = {"resize_short": shorter}
    if shorter is None or is_square:
        resize = {"size": shorter or size}
    operations: list[dict[str, dict[str, Any] | None]] = [
        {"ResizeImage": {**resize, "backend": "pil", "interpolation": interpolation.upper()}}
    ]
    if shorter is not None:
        operations.append({"CropImage": {"size": size}})
    scaling = {"channel_num": 3, "mean": mean, "std": deviation, "scale": 1 / 255, "order": ""}
    operations += [{"NormalizeImage": scaling}, {"ToCHWImage": None}]
    return {"PreProcess": {"transform_ops": operations}, "PostProcess": {"Topk": {"topk": _TOP}}}
