"""Transforms of images with their label maps; everything random comes from the sample's generator.

The steps are mmsegmentation's for ADE20K and Cityscapes (configs/_base_/datasets/ade20k.py, version 1.2.2): resize to a
random scale, crop, mirror half of the images, change colors, pad to the crop's size. Images are resized bilinearly,
with Pillow's filter or OpenCV's; labels are taken from the nearest pixel.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from ...core.registry.lookup import resolve
from ...core.tasks.sample_checks import BadSample
from ..data.seen_images import SeenImages, see_sides
from ..transforms.resizing import PILLOW, Size, find_nearest_pixels, fitted_scale, resize_image, scaled_size
from .data.segmentation_dataset import IGNORED
from .settings import SegmentationDataSection

_CROPS = 10  # attempts to draw a crop with several classes


@dataclass(frozen=True)
class SegmentationEvaluationTransform:
    """Resize an image for evaluation.

    The shorter side becomes ``shortest``, or less if the longer one would exceed ``longest``; None: as stored. Then
    both sides are enlarged to multiples of ``divisor``, in a second step, as in SegFormer's code (``AlignedResize``).
    """

    shortest: int | None = None
    longest: int | None = None
    divisor: int = 1
    interpolation: str = PILLOW

    def __call__(self, original: Image.Image) -> np.ndarray:
        """Return the network's input for an image, uint8 (3, height, width)."""
        for size in self.sizes((original.height, original.width)):
            if size != (original.height, original.width):
                original = Image.fromarray(resize_image(original, size, self.interpolation))
        return np.ascontiguousarray(np.asarray(original).transpose(2, 0, 1))

    def sizes(self, size: Size) -> tuple[Size, Size]:
        """Return height and width of an image of this ``size`` after both steps."""
        height, width = scaled_size(size, fitted_scale(size, self.shortest, self.longest))
        return (height, width), (-(-height // self.divisor) * self.divisor, -(-width // self.divisor) * self.divisor)


@dataclass(frozen=True)
class SegmentationTrainingTransform:
    """A user's transforms, then resize, crop, mirror, change colors, pad."""

    custom_transforms: tuple[str, ...]  # names of ``register_transform``
    shortest: int | None  # shorter side at scale 1, see ``SegmentationEvaluationTransform``
    longest: int | None  # limit of the longer side at scale 1
    scales: tuple[float, float]  # smallest and largest scale
    interpolation: str  # filter, see ``resize_image``
    crop: Size  # height and width of the result
    largest_share: float  # limit of one class's share of the labeled pixels in a crop, see ``_choose``
    flip_probability: float  # of a mirrored image
    is_photometric: bool  # colors change
    padding: tuple[int, int, int]  # red, green and blue outside an image smaller than the crop

    def __call__(
        self, original: Image.Image, labels: np.ndarray, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return an image uint8 (3, *crop) and labels uint8 crop, ``IGNORED`` outside the image."""
        for name in self.custom_transforms:
            original, labels = apply_user_transform(name, original, labels, generator)
        stored = labels.shape
        scale = generator.uniform(*self.scales) * fitted_scale(stored, self.shortest, self.longest)
        size = scaled_size(stored, scale)
        rows, columns = find_nearest_pixels(stored, size)
        top, left, height, width = part = self._choose(labels, rows, columns, generator)
        labels = _take(labels, rows[top : top + height], columns[left : left + width])
        pixels = resize_image(original, size, self.interpolation, part)  # computes only the crop
        if generator.random() < self.flip_probability:
            pixels, labels = pixels[:, ::-1], labels[:, ::-1]
        if self.is_photometric:
            pixels = distort_colors(pixels, generator)
        image = np.empty((3, *self.crop), np.uint8)
        image[:] = np.array(self.padding, np.uint8)[:, None, None]
        image[:, :height, :width] = pixels.transpose(2, 0, 1)
        padded = np.full(self.crop, IGNORED, np.uint8)
        padded[:height, :width] = labels
        return image, padded

    def _choose(
        self, labels: np.ndarray, rows: np.ndarray, columns: np.ndarray, generator: np.random.Generator
    ) -> tuple[int, int, int, int]:
        """Draw top, left, height and width of a crop of the resized image.

        A crop with a single class, or with at least ``largest_share`` of one class, is drawn again, at most ten times,
        as in mmsegmentation's ``RandomCrop`` (``cat_max_ratio``).
        """
        height, width = min(self.crop[0], len(rows)), min(self.crop[1], len(columns))
        tries = _CROPS if self.largest_share < 1 else 0
        for attempt in range(tries + 1):
            top = int(generator.integers(0, len(rows) - height, endpoint=True))
            left = int(generator.integers(0, len(columns) - width, endpoint=True))
            if attempt < tries:
                crop_labels = _take(labels, rows[top : top + height], columns[left : left + width])
                counts = np.bincount(crop_labels.ravel(), minlength=IGNORED + 1)[:IGNORED]
                if np.count_nonzero(counts) > 1 and counts.max() < self.largest_share * counts.sum():
                    break
        return top, left, height, width


def _take(labels: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Take the labels at chosen rows and columns, whole rows at once."""
    return labels.take(rows, axis=0).take(columns, axis=1)


def training_transform(data: SegmentationDataSection) -> SegmentationTrainingTransform:
    """Build the training transform from keys of DATA; raise UserError if a transform's name is not registered."""
    for name in data.TRANSFORMS:
        resolve("transform", name)
    smallest, largest = data.SCALE_RANGE
    height, width = data.CROP_SIZE
    red, green, blue = (round(255 * mean) for mean in data.IMAGENET_MEAN)
    return SegmentationTrainingTransform(
        custom_transforms=tuple(data.TRANSFORMS),
        shortest=data.BASE_SHORTEST_SIDE,
        longest=data.BASE_LONGEST_SIDE,
        scales=(smallest, largest),
        interpolation=data.RESIZE,
        crop=(height, width),
        largest_share=data.MAX_CLASS_FRACTION,
        flip_probability=data.HORIZONTAL_FLIP,
        is_photometric=data.PHOTOMETRIC,
        padding=(red, green, blue),
    )


def evaluation_transform(data: SegmentationDataSection) -> SegmentationEvaluationTransform:
    """Build the evaluation transform from the keys of DATA."""
    return SegmentationEvaluationTransform(
        data.EVAL_SHORTEST_SIDE, data.EVAL_LONGEST_SIDE, data.EVAL_DIVISOR, data.RESIZE
    )


def see_maps(data: SegmentationDataSection, is_training: bool) -> SeenImages:
    """Return what the network sees of an image: crops in training, else the image at its evaluated size."""
    if is_training:
        height, width = data.CROP_SIZE
        smallest, largest = data.SCALE_RANGE
        return SeenImages(f"at {smallest:g} to {largest:g} times the size, crops of {width} x {height}")
    if data.EVAL_SHORTEST_SIDE is None and data.EVAL_LONGEST_SIDE is None:
        return SeenImages("the stored size")
    sides = [] if data.EVAL_SHORTEST_SIDE is None else [data.EVAL_SHORTEST_SIDE]
    return see_sides(sides, data.EVAL_LONGEST_SIDE)


def apply_user_transform(
    name: str, image: Image.Image, labels: np.ndarray, generator: np.random.Generator
) -> tuple[Image.Image, np.ndarray]:
    """Apply the user's transform registered as ``name`` to an RGB image and labels, uint8 (height, width).

    The transform is an object of albumentations or with its method ``set_random_seed``, or a function that takes the
    generator.

    Raises:
        BadSample: it does not return an image and labels of the same size.
    """
    transform, arguments = resolve("transform", name), {"image": np.array(image), "mask": labels}
    if hasattr(transform, "set_random_state"):  # one seed for all transforms of albumentations gives equal draws
        transform.set_random_state(generator, random.Random(int(generator.integers(2**63))))
        result = transform(**arguments)
    elif hasattr(transform, "set_random_seed"):
        transform.set_random_seed(int(generator.integers(2**31)))
        result = transform(**arguments)
    else:
        result = transform(**arguments, generator=generator)
    if not isinstance(result, Mapping) or not {"image", "mask"} <= set(result):
        raise BadSample(f"transform {name} returns {type(result).__name__}: expected a dictionary with image and mask")
    pixels, labels = (np.asarray(result[part]) for part in ("image", "mask"))
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


def distort_colors(pixels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Change brightness, contrast (next or last), saturation and hue of uint8 (height, width, 3), each half the time.

    Source: order and ranges of mmsegmentation's ``PhotoMetricDistortion``, which follows the code of W. Liu et al.,
    "SSD: Single Shot MultiBox Detector", 2016.
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
    """Scale pixels uint8 by ``factor``, add ``shift``, and clip to 0..255."""
    table = np.clip(np.rint(np.arange(256) * factor + shift), 0, 255).astype(np.uint8)
    return table[pixels]
