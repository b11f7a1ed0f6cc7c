"""Transforms of images and label maps together in training and evaluation; everything random comes from the sample's
generator.

The course is mmsegmentation's for ADE20K and Cityscapes (configs/_base_/datasets/ade20k.py, version 1.2.2): resize to a
random scale, crop, mirror half of the images, change colors, fill up to the crop's size. Images are resized
bilinearly, with Pillow's filter or as OpenCV does; labels are those of the nearest pixel.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from ...registry import resolve
from ...tasks.sample_checks import BadSample
from ..transforms.resizing import PILLOW, Size, fitted_scale, nearest, resize_image, scaled_size
from .data.segmentation_dataset import IGNORED
from .settings import SegmentationDataSection

_CROPS = 10  # drawn in search of one with several classes


@dataclass(frozen=True)
class SegmentationEvaluationTransform:
    """Resize so that the shorter side is ``shortest``, or less where the longer one would pass ``longest``; None: as
    stored. Then enlarge both sides to multiples of ``divisor``, in a second step, as SegFormer's authors do
    (``AlignedResize``)."""

    shortest: int | None = None
    longest: int | None = None
    divisor: int = 1
    how: str = PILLOW

    def __call__(self, original: Image.Image) -> np.ndarray:
        """The network's view of an image, uint8 (3, height, width)."""
        for size in self.sizes((original.height, original.width)):
            if size != (original.height, original.width):
                original = Image.fromarray(resize_image(original, size, self.how))
        return np.ascontiguousarray(np.asarray(original).transpose(2, 0, 1))

    def sizes(self, size: Size) -> tuple[Size, Size]:
        """Height and width of an image of this ``size`` after both steps."""
        height, width = scaled_size(size, fitted_scale(size, self.shortest, self.longest))
        return (height, width), (-(-height // self.divisor) * self.divisor, -(-width // self.divisor) * self.divisor)


@dataclass(frozen=True)
class SegmentationTrainingTransform:
    """A user's own transforms, then resize, crop, mirror, change colors, fill up.

    Attributes:
        own: names of ``register_transform``.
        shortest, longest: the size of scale 1, as in ``SegmentationEvaluationTransform``.
        scales: smallest and largest scale.
        how: as in ``resized``.
        crop: height and width of the result.
        largest_share: of the labeled pixels of a crop that one class may have, see ``_choose``.
        flip_probability: of a mirrored image.
        is_photometric: colors change.
        padding: red, green and blue of what is beside an image smaller than the crop.
    """

    own: tuple[str, ...]
    shortest: int | None
    longest: int | None
    scales: tuple[float, float]
    how: str
    crop: Size
    largest_share: float
    flip_probability: float
    is_photometric: bool
    padding: tuple[int, int, int]

    def __call__(
        self, original: Image.Image, labels: np.ndarray, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Image uint8 (3, *crop) and labels uint8 crop, ``IGNORED`` beside the image."""
        for name in self.own:
            original, labels = with_own(name, original, labels, generator)
        stored = labels.shape
        scale = generator.uniform(*self.scales) * fitted_scale(stored, self.shortest, self.longest)
        size = scaled_size(stored, scale)
        rows, columns = nearest(stored, size)
        top, left, height, width = part = self._choose(labels, rows, columns, generator)
        labels = _take(labels, rows[top : top + height], columns[left : left + width])
        pixels = resize_image(original, size, self.how, part)  # of the resized image only what is kept
        if generator.random() < self.flip_probability:
            pixels, labels = pixels[:, ::-1], labels[:, ::-1]
        if self.is_photometric:
            pixels = with_other_colors(pixels, generator)
        image = np.empty((3, *self.crop), np.uint8)
        image[:] = np.array(self.padding, np.uint8)[:, None, None]
        image[:, :height, :width] = pixels.transpose(2, 0, 1)
        padded = np.full(self.crop, IGNORED, np.uint8)
        padded[:height, :width] = labels
        return image, padded

    def _choose(
        self, labels: np.ndarray, rows: np.ndarray, columns: np.ndarray, generator: np.random.Generator
    ) -> tuple[int, int, int, int]:
        """Top, left, height and width of a crop of the resized image. One with a single class, or with at least
        ``largest_share`` of one, is drawn again, ten times at most, as mmsegmentation's ``RandomCrop`` does
        (``cat_max_ratio``)."""
        height, width = min(self.crop[0], len(rows)), min(self.crop[1], len(columns))
        tries = _CROPS if self.largest_share < 1 else 0
        for attempt in range(tries + 1):
            top = int(generator.integers(0, len(rows) - height, endpoint=True))
            left = int(generator.integers(0, len(columns) - width, endpoint=True))
            if attempt < tries:
                seen = _take(labels, rows[top : top + height], columns[left : left + width])
                counts = np.bincount(seen.ravel(), minlength=IGNORED + 1)[:IGNORED]
                if np.count_nonzero(counts) > 1 and counts.max() < self.largest_share * counts.sum():
                    break
        return top, left, height, width


def _take(labels: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The labels where chosen rows and columns cross, whole rows at once."""
    return labels.take(rows, axis=0).take(columns, axis=1)


def training_transform(data: SegmentationDataSection) -> SegmentationTrainingTransform:
    """Make what the keys below DATA describe.

    Raises:
        UserError: a transform of that name is not registered.
    """
    for name in data.TRANSFORMS:
        resolve("transform", name)
    return SegmentationTrainingTransform(
        own=tuple(data.TRANSFORMS),
        shortest=data.BASE_SHORTEST_SIDE,
        longest=data.BASE_LONGEST_SIDE,
        scales=tuple(data.SCALE_RANGE),
        how=data.RESIZE,
        crop=tuple(data.CROP_SIZE),
        largest_share=data.MAX_CLASS_FRACTION,
        flip_probability=data.HORIZONTAL_FLIP,
        is_photometric=data.PHOTOMETRIC,
        padding=tuple(round(255 * mean) for mean in data.IMAGENET_MEAN),
    )


def evaluation_transform(data: SegmentationDataSection) -> SegmentationEvaluationTransform:
    """Make what the keys below DATA describe."""
    return SegmentationEvaluationTransform(
        data.EVAL_SHORTEST_SIDE, data.EVAL_LONGEST_SIDE, data.EVAL_DIVISOR, data.RESIZE
    )


def with_own(
    name: str, image: Image.Image, labels: np.ndarray, generator: np.random.Generator
) -> tuple[Image.Image, np.ndarray]:
    """Image and labels after a user's transform: an object of albumentations, or one that can be seeded as those are
    (``set_random_seed``), or a function that takes the generator as well.

    Raises:
        BadSample: it returns something else than an image and labels of its size.
    """
    transform, given = resolve("transform", name), {"image": np.array(image), "mask": labels}
    if hasattr(transform, "set_random_seed"):
        transform.set_random_seed(int(generator.integers(2**31)))
        made = transform(**given)
    else:
        made = transform(**given, generator=generator)
    if not isinstance(made, Mapping) or not {"image", "mask"} <= set(made):
        raise BadSample(f"transform {name} returns {type(made).__name__}: expected a dictionary with image and mask")
    pixels, labels = (np.asarray(made[part]) for part in ("image", "mask"))
    kinds = (pixels.dtype, pixels.ndim, pixels.shape[2:], labels.dtype, pixels.shape[:2])
    if kinds != (np.uint8, 3, (3,), np.uint8, labels.shape) or not labels.size:
        raise BadSample(
            f"transform {name} returns an image {pixels.dtype} {pixels.shape} and a mask {labels.dtype} "
            f"{labels.shape}: expected uint8 (height, width, 3) and uint8 (height, width)"
        )
    return Image.fromarray(pixels), labels


_BRIGHTNESS = 32.0  # levels
_FACTORS = (0.5, 1.5)  # of contrast and saturation
_HUE = 18 / 180  # of a whole turn


def with_other_colors(pixels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Pixels uint8 (height, width, 3) with brightness, contrast, saturation and hue changed, each with probability 1/2;
    contrast comes after brightness or at the end.

    Source: order and ranges of mmsegmentation's ``PhotoMetricDistortion``, which are those of W. Liu et al., "SSD:
    Single Shot MultiBox Detector", 2016 (in its code).
    """
    is_early = generator.random() < 0.5
    if generator.random() < 0.5:
        pixels = _levels(pixels, 1.0, generator.uniform(-_BRIGHTNESS, _BRIGHTNESS))
    if is_early and generator.random() < 0.5:
        pixels = _levels(pixels, generator.uniform(*_FACTORS), 0.0)
    saturation = generator.uniform(*_FACTORS) if generator.random() < 0.5 else None
    turn = generator.uniform(-_HUE, _HUE) if generator.random() < 0.5 else None
    if saturation is not None or turn is not None:
        hue, color, value = Image.fromarray(np.ascontiguousarray(pixels)).convert("HSV").split()
        levels = np.arange(256)
        if turn is not None:
            hue = hue.point(((levels + round(256 * turn)) % 256).tolist())
        if saturation is not None:
            color = color.point(np.clip(np.rint(levels * saturation), 0, 255).astype(int).tolist())
        pixels = np.asarray(Image.merge("HSV", (hue, color, value)).convert("RGB"))
    if not is_early and generator.random() < 0.5:
        pixels = _levels(pixels, generator.uniform(*_FACTORS), 0.0)
    return pixels


def _levels(pixels: np.ndarray, factor: float, shift: float) -> np.ndarray:
    """uint8 pixels times ``factor`` plus ``shift``, cut off at 0 and 255."""
    table = np.clip(np.rint(np.arange(256) * factor + shift), 0, 255).astype(np.uint8)
    return table[pixels]
