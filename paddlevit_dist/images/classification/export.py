"""What an exported classifier needs without this package: preprocessing, an example, and PaddleX's description."""

from typing import Any

import numpy as np
from PIL import Image

from ...core.runtime.errors import UserError
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Exportable
from ...core.tasks.step_types import ExportParts
from ..image_size import as_pair
from ..settings import RGB
from ..transforms.crops import BORDER, CENTER, SQUASH, EvaluationTransform, GlyphTransform
from .samples import evaluation_transform, find_dataset_class
from .settings import ClassificationDataSection, has_test_views
from .task import Classification

_TOP = 5
_NAMES_IN_PADDLEX = {"lanczos": "LANCZOS4"}  # where they are not Pillow's


class ImageClassExport(TaskAspect, Exportable):
    """Describes an exported classifier."""

    task: Classification

    def check_export(self) -> None:
        """Raise a UserError if a test image has several views."""
        data = self.task.config.DATA
        if has_test_views(data):
            raise UserError(
                f"export: DATA.TEST_VIEWS {data.TEST_VIEWS}, DATA.TEST_SCALES {data.TEST_SCALES}: an exported model "
                "computes one view of an image: add DATA.TEST_VIEWS [] DATA.TEST_SCALES [1.0]"
            )

    def export_parts(self) -> ExportParts:
        """Return what an export contains in addition to the model."""
        config, num_classes = self.task.config, self.task.num_classes
        data, kind = config.DATA, find_dataset_class(config).kind
        mean, deviation = ([float(value) for value in values] for values in (data.IMAGENET_MEAN, data.IMAGENET_STD))
        transform = evaluation_transform(data, kind)
        steps: dict[str, Any] = {"mode": "RGB" if data.IMAGE_CHANNELS == RGB else "L"}
        if data.EXIF_ROTATE:
            steps["upright"] = "turned as its EXIF orientation says"
        steps.update(_describe_resize(transform))
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
        paddlex = _describe_for_paddlex(transform, mean, deviation) if data.IMAGE_CHANNELS == RGB else None
        outputs = None if num_classes is None else (num_classes,)
        example = _example(data, transform)
        return ExportParts(data.IMAGE_CHANNELS, meta, example=example, paddlex=paddlex, output_shape=outputs)


def _describe_resize(transform: EvaluationTransform | GlyphTransform) -> dict[str, Any]:
    """Describe resize, borders and crop; sizes are (height, width)."""
    crop = list(as_pair(transform.image_size))
    if isinstance(transform, GlyphTransform):
        return {"resize": crop}
    resized = list(transform.target)
    steps: dict[str, Any] = {}
    if transform.crop_mode == SQUASH:
        steps["resize"] = resized
    elif transform.crop_mode == BORDER:
        steps["resize_to_fit"] = resized
        steps["sides"] = "round(side / the larger of height and width, each divided by resize_to_fit's), at least 1"
        steps["pad_to"] = crop
        steps["pad_with"] = list(transform.fill) if isinstance(transform.fill, tuple) else transform.fill
        steps["padding_starts_at"] = "(crop - side) // 2 where the side is shorter than the crop"
    elif resized[0] == resized[1]:
        steps["resize_shorter_side"] = resized[0]
        steps["longer_side"] = "int(resize_shorter_side * longer / shorter)"
    else:
        steps["resize_to_cover"] = resized
        steps["sides"] = "round(side / the smaller of height and width, each divided by resize_to_cover's), at least 1"
    return {**steps, "center_crop": crop, "crop_starts_at": "round((side - crop) / 2), halves to the even number"}


def _example(data: ClassificationDataSection, transform: EvaluationTransform | GlyphTransform) -> dict[str, np.ndarray]:
    """Return a drawn image, uint8 (90, 120[, 3]), and its model input, float32 (1, channels, height, width)."""
    rows, columns = np.mgrid[0:90, 0:120]
    planes = [rows * 2, columns * 2, ((rows - 45) ** 2 + (columns - 60) ** 2 < 900) * 220]
    image = np.stack(planes, axis=-1).astype(np.uint8)
    image = image if data.IMAGE_CHANNELS == RGB else image[..., 2]
    pixels = transform(Image.fromarray(image), np.random.default_rng(0)).astype(np.float32)
    mean, deviation = (np.asarray(values, dtype=np.float32) for values in (data.IMAGENET_MEAN, data.IMAGENET_STD))
    prepared = (pixels / 255 - mean.reshape(-1, 1, 1)) / deviation.reshape(-1, 1, 1)
    return {"picture": image, "input": prepared[None].astype(np.float32)}


def _describe_for_paddlex(
    transform: EvaluationTransform | GlyphTransform, mean: list[float], deviation: list[float]
) -> dict[str, Any] | None:
    """Return ``inference.yml`` for PaddleX's classification predictor 3, without names of classes and model.

    None: PaddleX lacks the resize. Its sizes are one number or [width, height], and it calls Pillow's filter LANCZOS4.
    """
    interpolation, crop = "BICUBIC", _in_paddlex_order(as_pair(transform.image_size))
    resize: dict[str, Any] = {"size": crop}
    if isinstance(transform, EvaluationTransform):
        interpolation = _NAMES_IN_PADDLEX.get(transform.interpolation, transform.interpolation.upper())
        resize = {"size": _in_paddlex_order(transform.target)}
        if transform.crop_mode == CENTER:
            resize = {"resize_short": resize["size"]}
        if transform.crop_mode == BORDER or not isinstance(resize.get("resize_short", 0), int):
            return None
    operations: list[dict[str, dict[str, Any] | None]] = [
        {"ResizeImage": {**resize, "backend": "pil", "interpolation": interpolation}}
    ]
    if isinstance(transform, EvaluationTransform):
        operations.append({"CropImage": {"size": crop}})
    scaling = {"channel_num": 3, "mean": mean, "std": deviation, "scale": 1 / 255, "order": ""}
    operations += [{"NormalizeImage": scaling}, {"ToCHWImage": None}]
    return {"PreProcess": {"transform_ops": operations}, "PostProcess": {"Topk": {"topk": _TOP}}}


def _in_paddlex_order(size: tuple[int, int]) -> int | list[int]:
    height, width = size
    return height if height == width else [width, height]
