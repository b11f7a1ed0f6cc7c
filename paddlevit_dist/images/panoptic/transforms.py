"""Transforms of images with segments: scale jitter and crops in training, a padded square in an evaluation.

Source: the code of T. Kerssies et al., "Your ViT is Secretly an Image Segmentation Model", CVPR 2025, tue-mps/eomt,
datasets/transforms.py and training/lightning_module.py: mirror, resize, pad at the right and the bottom with black,
crop. A crop without an object is drawn again.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image

from ..data.seen_images import SeenImages
from ..transforms.resizing import PILLOW, Size, find_nearest_pixels, resize_image
from .data.segments import VOID, Segments
from .settings import PanopticSettings

_TRIES = 10  # to draw a crop with an object


class _Crop(NamedTuple):
    """A part of a resized image, in the upper left corner of the network's input."""

    size: Size  # of the resized image
    top: int
    left: int
    is_mirrored: bool


def fit_size(stored: Size, square: Size, scale: float = 1.0) -> Size:
    """Return the size at which an image fits the network's input, times ``scale``; sides are at least 1."""
    factor = min(side / own for side, own in zip(square, stored)) * scale
    return max(round(stored[0] * factor), 1), max(round(stored[1] * factor), 1)


def pad_pixels(pixels: np.ndarray, square: Size) -> np.ndarray:
    """Return the network's input, uint8 (3, height, width), black outside of pixels, uint8 (height, width, 3)."""
    padded = np.zeros((3, *square), np.uint8)
    padded[:, : pixels.shape[0], : pixels.shape[1]] = pixels.transpose(2, 0, 1)
    return padded


@dataclass(frozen=True)
class PanopticEvaluationTransform:
    """Resizes an image to fit the network's input, and pads it."""

    square: Size  # height and width of the network's input

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, Size]:
        """Return the network's input, uint8 (3, height, width), and the size of the image in it."""
        inner = fit_size((image.height, image.width), self.square)
        return pad_pixels(resize_image(image, inner, PILLOW), self.square), inner


@dataclass(frozen=True)
class PanopticTrainingTransform:
    """Mirrors, resizes to a random scale, and crops or pads to the network's input."""

    square: Size  # height and width of the network's input
    scales: tuple[float, float]  # smallest and largest scale; at 1 the image fits the input
    flip_probability: float  # of a mirrored image

    def __call__(
        self, image: Image.Image, segments: Segments, generator: np.random.Generator
    ) -> tuple[np.ndarray, Segments]:
        """Return the network's input, uint8 (3, height, width), and the segments in it that have pixels, no crowds."""
        learned = segments.choose(np.flatnonzero(~segments.is_crowd))
        for _ in range(_TRIES):
            crop = self._draw(learned.places.shape, generator)
            places = self._cut(learned.places, crop)
            if (places >= 0).any():
                break
        part = (crop.top, crop.left, *places.shape)
        if crop.is_mirrored:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = resize_image(image, crop.size, PILLOW, part)  # computes only the crop
        padded = np.full(self.square, VOID, np.int32)
        padded[: places.shape[0], : places.shape[1]] = places
        present = np.unique(padded)
        return pad_pixels(pixels, self.square), learned._replace(places=padded).choose(present[present >= 0])

    def _draw(self, stored: Size, generator: np.random.Generator) -> _Crop:
        size = fit_size(stored, self.square, generator.uniform(*self.scales))
        top, left = (
            int(generator.integers(0, max(side - limit, 0), endpoint=True)) for side, limit in zip(size, self.square)
        )
        return _Crop(size, top, left, bool(generator.random() < self.flip_probability))

    def _cut(self, places: np.ndarray, crop: _Crop) -> np.ndarray:
        """Take the segments of a crop, each from the nearest pixel."""
        rows, columns = find_nearest_pixels(places.shape, crop.size)
        height, width = self.square
        rows, columns = rows[crop.top : crop.top + height], columns[crop.left : crop.left + width]
        if crop.is_mirrored:
            columns = places.shape[1] - 1 - columns
        return places.take(rows, axis=0).take(columns, axis=1)


def build_training_transform(config: PanopticSettings) -> PanopticTrainingTransform:
    """Build the training transform from the keys of PANOPTIC and DATA."""
    (height, width), (low, high) = config.PANOPTIC.INPUT_SIZE, config.PANOPTIC.SCALE_RANGE
    return PanopticTrainingTransform((height, width), (low, high), config.DATA.HORIZONTAL_FLIP)


def build_evaluation_transform(config: PanopticSettings) -> PanopticEvaluationTransform:
    """Build the evaluation transform from the keys of PANOPTIC."""
    height, width = config.PANOPTIC.INPUT_SIZE
    return PanopticEvaluationTransform((height, width))


def see_segments(config: PanopticSettings, is_training: bool) -> SeenImages:
    """Return what the network sees of an image."""
    height, width = config.PANOPTIC.INPUT_SIZE
    if not is_training:
        return SeenImages(f"at most {width} x {height}, padded")
    low, high = config.PANOPTIC.SCALE_RANGE
    return SeenImages(
        f"at {low:g} to {high:g} times the size that fits {width} x {height}, crops of {width} x {height}"
    )
