"""What training and evaluation do to pictures and their label maps, together; everything random comes from the sample's
generator.

The course is mmsegmentation's for ADE20K and Cityscapes (configs/_base_/datasets/ade20k.py, version 1.2.2): resize to a
random scale, crop, mirror half of the pictures, change colours, fill up to the crop's size. Pictures are resized with
Pillow's bilinear filter, which averages over what becomes smaller; labels are those of the nearest pixel.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from .data.segmentation_dataset import IGNORED

Size = tuple[int, int]  # height, width
_CROPS = 10  # drawn in search of one with several classes


def fitted_scale(size: Size, shortest: int | None, longest: int | None) -> float:
    """The factor by which the shorter side becomes ``shortest``, or less where the longer one would pass ``longest``;
    1 without them. As ``mmcv.imrescale`` has it."""
    if shortest is None:
        return 1.0
    scale = shortest / min(size)
    return scale if longest is None else min(scale, longest / max(size))


def scaled_size(size: Size, scale: float) -> Size:
    """Both sides rounded to the nearest pixel, none to 0."""
    return max(int(size[0] * scale + 0.5), 1), max(int(size[1] * scale + 0.5), 1)


@dataclass(frozen=True)
class EvaluationTransform:
    """Resize so that the shorter side is ``shortest``, or less where the longer one would pass ``longest``; None: as
    stored. Then enlarge both sides to multiples of ``divisor``."""

    shortest: int | None = None
    longest: int | None = None
    divisor: int = 1

    def __call__(self, picture: Image.Image) -> np.ndarray:
        """The network's view of a picture, uint8 (3, height, width)."""
        return channels_first(picture.resize(self.resized((picture.height, picture.width))[::-1], _BILINEAR))

    def resized(self, size: Size) -> Size:
        """Height and width of a picture of this ``size`` as the network sees it."""
        height, width = scaled_size(size, fitted_scale(size, self.shortest, self.longest))
        return -(-height // self.divisor) * self.divisor, -(-width // self.divisor) * self.divisor


_BILINEAR = Image.Resampling.BILINEAR


def channels_first(picture: Image.Image) -> np.ndarray:
    """uint8 (3, height, width) of a picture in mode "RGB", its own memory."""
    return np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))


@dataclass(frozen=True)
class TrainingTransform:
    """Resize, crop, mirror, change colours, fill up.

    Attributes:
        shortest, longest: the size of scale 1, as in ``EvaluationTransform``.
        scales: smallest and largest scale.
        crop: height and width of the result.
        largest_share: of the labelled pixels of a crop that one class may have, see ``_choose``.
        flip_probability: of a mirrored picture.
        is_photometric: colours change.
        padding: red, green and blue of what is beside a picture smaller than the crop.
    """

    shortest: int | None
    longest: int | None
    scales: tuple[float, float]
    crop: Size
    largest_share: float
    flip_probability: float
    is_photometric: bool
    padding: tuple[int, int, int]

    def __call__(
        self, picture: Image.Image, labels: np.ndarray, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Picture uint8 (3, *crop) and labels uint8 crop, ``IGNORED`` beside the picture."""
        stored = labels.shape
        scale = generator.uniform(*self.scales) * fitted_scale(stored, self.shortest, self.longest)
        size = scaled_size(stored, scale)
        # The row and the column of the stored picture that each one of the resized picture shows.
        rows, columns = (np.arange(side) * whole // side for side, whole in zip(size, stored))
        (top, left), (height, width) = self._choose(labels, rows, columns, generator)
        labels = labels.take(columns[left : left + width], axis=1).take(rows[top : top + height], axis=0)
        down, right = stored[0] / size[0], stored[1] / size[1]
        box = left * right, top * down, min((left + width) * right, stored[1]), min((top + height) * down, stored[0])
        picture = picture.resize((width, height), _BILINEAR, box)  # of the resized picture only what is kept
        if generator.random() < self.flip_probability:
            picture, labels = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT), labels[:, ::-1]
        if self.is_photometric:
            picture = distort_colours(picture, generator)
        image = np.empty((3, *self.crop), np.uint8)
        image[:] = np.array(self.padding, np.uint8)[:, None, None]
        image[:, :height, :width] = np.asarray(picture).transpose(2, 0, 1)
        padded = np.full(self.crop, IGNORED, np.uint8)
        padded[:height, :width] = labels
        return image, padded

    def _choose(
        self, labels: np.ndarray, rows: np.ndarray, columns: np.ndarray, generator: np.random.Generator
    ) -> tuple[Size, Size]:
        """Upper left corner and size of a crop of the resized picture. One with a single class, or with more than
        ``largest_share`` of one, is drawn again, ten times at most, as mmsegmentation's ``RandomCrop`` does
        (``cat_max_ratio``)."""
        height, width = min(self.crop[0], len(rows)), min(self.crop[1], len(columns))
        tries = _CROPS if self.largest_share < 1 else 0
        for attempt in range(tries + 1):
            top = int(generator.integers(0, len(rows) - height, endpoint=True))
            left = int(generator.integers(0, len(columns) - width, endpoint=True))
            if attempt == tries:
                break
            seen = labels.take(columns[left : left + width], axis=1).take(rows[top : top + height], axis=0)
            counts = np.bincount(seen.ravel(), minlength=IGNORED + 1)[:IGNORED]
            if np.count_nonzero(counts) > 1 and counts.max() < self.largest_share * counts.sum():
                break
        return (top, left), (height, width)


_BRIGHTNESS = 32.0  # levels
_FACTORS = (0.5, 1.5)  # of contrast and saturation
_HUE = 18 / 180  # of a whole turn


def distort_colours(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Brightness, contrast, saturation and hue, each changed with probability 1/2; contrast comes after brightness or
    at the end. Order and ranges of mmsegmentation's ``PhotoMetricDistortion``, which are those of W. Liu et al., "SSD:
    Single Shot MultiBox Detector", 2016."""
    pixels = np.asarray(picture)
    is_early = generator.random() < 0.5
    if generator.random() < 0.5:
        pixels = _levels(pixels, 1.0, generator.uniform(-_BRIGHTNESS, _BRIGHTNESS))
    if is_early and generator.random() < 0.5:
        pixels = _levels(pixels, generator.uniform(*_FACTORS), 0.0)
    saturation = generator.uniform(*_FACTORS) if generator.random() < 0.5 else None
    turn = generator.uniform(-_HUE, _HUE) if generator.random() < 0.5 else None
    if saturation is not None or turn is not None:
        hue, colour, value = Image.fromarray(pixels).convert("HSV").split()
        levels = np.arange(256)
        if turn is not None:
            hue = hue.point(((levels + round(256 * turn)) % 256).tolist())
        if saturation is not None:
            colour = colour.point(np.clip(np.rint(levels * saturation), 0, 255).astype(int).tolist())
        pixels = np.asarray(Image.merge("HSV", (hue, colour, value)).convert("RGB"))
    if not is_early and generator.random() < 0.5:
        pixels = _levels(pixels, generator.uniform(*_FACTORS), 0.0)
    return Image.fromarray(pixels)


def _levels(pixels: np.ndarray, factor: float, shift: float) -> np.ndarray:
    """uint8 pixels times ``factor`` plus ``shift``, cut off at 0 and 255."""
    table = np.clip(np.rint(np.arange(256) * factor + shift), 0, 255).astype(np.uint8)
    return table[pixels]


def training_transform(data: Any) -> TrainingTransform:
    """What the keys below DATA describe."""
    return TrainingTransform(
        data.BASE_SHORTEST_SIDE,
        data.BASE_LONGEST_SIDE,
        tuple(data.SCALE_RANGE),
        tuple(data.CROP_SIZE),
        data.LARGEST_CLASS_SHARE,
        data.HORIZONTAL_FLIP,
        data.PHOTOMETRIC,
        tuple(round(255 * mean) for mean in data.IMAGENET_MEAN),
    )


def evaluation_transform(data: Any) -> EvaluationTransform:
    """What the keys below DATA describe."""
    return EvaluationTransform(data.EVAL_SHORTEST_SIDE, data.EVAL_LONGEST_SIDE, data.EVAL_DIVISOR)
