"""Describe how images become a network's input, for users of an exported model without this package."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..settings import ImageDataSection


def describe_input(data: "ImageDataSection", turned: bool, resize: object, interpolation: str) -> dict[str, Any]:
    """Describe the input of a network that takes normalized RGB images, for ``ExportParts.about``.

    ``turned``: images are turned by their EXIF orientation; ``resize`` is the target of the resize, by
    ``interpolation``.
    """
    mean, deviation = ([float(value) for value in values] for values in (data.IMAGENET_MEAN, data.IMAGENET_STD))
    steps: dict[str, Any] = {"mode": "RGB"}
    if turned:
        steps["upright"] = "turned as its EXIF orientation says"
    steps.update(resize=resize, interpolation=interpolation, divide_by=255)
    steps.update(subtract=mean, divide_by_deviation=deviation, layout="batch, channels, height, width")
    return {"mean": mean, "standard_deviation": deviation, "preprocessing": steps}


def draw_image(height: int, width: int) -> np.ndarray:
    """Draw an example image, uint8 (height, width, 3): two gradients and a disc."""
    rows, columns = np.mgrid[:height, :width]
    is_inside = (rows - height // 2) ** 2 + (columns - width // 2) ** 2 < (min(height, width) // 3) ** 2
    planes = [rows * 180 // height, columns * 240 // width, is_inside * 220]
    return np.stack(planes, axis=-1).astype(np.uint8)


def normalize(pixels: np.ndarray, data: "ImageDataSection") -> np.ndarray:
    """Normalize pixels (height, width, 3), levels 0 to 255, to the network's input, float32 (1, 3, height, width)."""
    center, spread = (np.asarray(values, np.float32) for values in (data.IMAGENET_MEAN, data.IMAGENET_STD))
    return ((pixels.astype(np.float32) / 255 - center) / spread).transpose(2, 0, 1)[None].astype(np.float32)
