"""Transforms from an image to the uint8 array for the device, which normalizes whole batches.

Every transform is called as ``transform(image, generator)``, draws all random numbers from ``generator`` and returns
(channels, height, width) uint8, C-contiguous. ``image_size`` is one number of pixels, or (height, width). The
``augment`` of ``TrainingTransform`` changes the image after it is scaled to the image size and before it becomes an
array (``policies.py``).
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ..data.parts import Box, UndecodedImage
from ..data.reading import crop_image
from ..image_size import ImageSize, as_pair
from .operations import Fill
from .policies import Augmentation

Transform = Callable[[Image.Image, np.random.Generator], np.ndarray]

_CROP_ATTEMPTS = 10
_DECIMALS = 6  # of a scaled side before it is rounded down


CENTER, SQUASH, BORDER = "center", "squash", "border"


@dataclass(frozen=True)
class EvaluationTransform:
    """Resize by the crop fraction, then center crop, as torchvision and timm do for evaluation.

    Each side of the crop, ``image_size``, is divided by ``crop_pct``, multiplied by ``scale``, and rounded down. To
    this size, "squash" resizes, "center" scales the image until it covers it, "border" until it fits into it. The
    longer side of an image that covers a square is ``int(shorter * long / short)``, truncated as in torchvision; other
    scaled sides are rounded as in timm. The crop starts at ``round((side - crop) / 2)``, halves to the even number.
    With "border", an image smaller than the crop gets borders of the color ``fill``. The left and upper ones are not
    wider than the others.
    """

    image_size: ImageSize
    crop_pct: float
    channels: int = 3
    interpolation: str = "bicubic"
    crop_mode: str = CENTER
    fill: Fill = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        share = self.crop_pct / self.scale
        if not (0 < share and (share <= 1 or self.crop_mode == BORDER)):
            raise ValueError(f"crop_pct is {share}, expected above 0 and at most 1: a crop cannot exceed its image")

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> np.ndarray:
        """Return (channels, height, width) uint8; the generator is not used."""
        return self.crops(image)[0]

    def crops(self, image: Image.Image, has_corners: bool = False) -> list[np.ndarray]:
        """Return the center crop, (channels, height, width) uint8, and perhaps a crop at each of the four corners."""
        height, width = as_pair(self.image_size)
        image = self.resize(image)
        right, lower = image.width - width, image.height - height
        places = [(round(right / 2), round(lower / 2))]
        if has_corners:
            places += [(0, 0), (right, 0), (0, lower), (right, lower)]
        boxes = [(left, top, left + width, top + height) for left, top in places]
        return [to_array(crop_image(image, box), self.channels) for box in boxes]

    def resize(self, image: Image.Image) -> Image.Image:
        """Resize an image, and pad it if the crop mode is "border"."""
        image = as_mode(image, self.channels)
        image = image.resize(self.resized(image.size), Image.Resampling[self.interpolation.upper()])
        height, width = as_pair(self.image_size)
        across, down = max(0, width - image.width), max(0, height - image.height)
        if not (across or down):  # as always but with "border"
            return image
        image = in_color(image, self.channels)
        padded = Image.new(image.mode, (image.width + across, image.height + down), self.fill)
        padded.paste(image, (across // 2, down // 2))
        return padded

    @property
    def target(self) -> tuple[int, int]:
        """Height and width that images are resized to, or scaled to cover or to fit into."""
        height, width = (side / self.crop_pct for side in as_pair(self.image_size))
        if self.scale != 1.0:  # 1.15 * 80 is not below 92; without a scale, the quotient is timm's
            height, width = (round(self.scale * side, _DECIMALS) for side in (height, width))
        return max(1, math.floor(height)), max(1, math.floor(width))

    def resized(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return (width, height) after the resize of an image of ``size``, both (width, height)."""
        (width, height), (rows, columns) = size, self.target
        if self.crop_mode == SQUASH:
            return columns, rows
        if self.crop_mode == CENTER and rows == columns:
            if width <= height:
                return columns, int(columns * height / width)
            return int(rows * width / height), rows
        ratios = width / columns, height / rows
        ratio = max(ratios) if self.crop_mode == BORDER else min(ratios)
        return max(1, round(width / ratio)), max(1, round(height / ratio))


@dataclass(frozen=True)
class TrainingTransform:
    """Random resized crop, horizontal flip and, between them, ``augment``.

    Source: C. Szegedy et al., "Going deeper with convolutions", 2015, section 6 (area and ratio of the crop);
    the ratio is drawn log-uniformly, as is usual since.
    """

    image_size: ImageSize
    crop_scale: tuple[float, float] = (0.08, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip_probability: float = 0.5
    channels: int = 3
    augment: Augmentation | None = None

    def __call__(self, image: Image.Image | UndecodedImage, generator: np.random.Generator) -> np.ndarray:
        """Return (channels, height, width) uint8."""
        box = self.draw_box(image.size, generator)
        if isinstance(image, UndecodedImage):
            image, box = image.around(box)
        return self.finish(self.cut(image, box), generator)

    def cut(self, image: Image.Image | np.ndarray, box: Box) -> Image.Image | np.ndarray:
        """Crop ``box`` from an image or pixels uint8 (rows, columns, 1 or 3), and scale it bicubically.

        The result is a Pillow image, or planes uint8 (channels, height, width).
        """
        if isinstance(image, np.ndarray):
            image = Image.fromarray(image if image.shape[2] == 3 else image[:, :, 0])
        # Crop first: resize(box=...) would let the filter use pixels outside the crop.
        height, width = as_pair(self.image_size)
        return crop_image(as_mode(image, self.channels), box).resize((width, height), Image.Resampling.BICUBIC)

    def finish(self, image: Image.Image | np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Finish the resized crop, an image or planes: draw the flip, apply ``augment``, make the array."""
        flip = generator.random() < self.flip_probability
        if self.augment is not None:
            image = self.augmented(image, generator)
        return to_array(image, self.channels, flip)

    def augmented(self, image: Image.Image | np.ndarray, generator: np.random.Generator) -> Any:
        """Apply ``augment``, which may add color: a gray image in a color dataset is converted to RGB first."""
        if isinstance(image, np.ndarray):
            image = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
        image = in_color(image, self.channels)
        return image if self.augment is None else self.augment(image, generator)

    def prepare(self) -> None:
        """Prepare a process once, before loader processes are forked from it; does nothing here."""

    def draw_box(self, size: tuple[int, int], generator: np.random.Generator) -> Box:
        """Draw a box of random area, aspect ratio and position; central if ten draws do not fit."""
        width, height = size
        log_ratio = np.log(self.crop_ratio)
        for _ in range(_CROP_ATTEMPTS):
            area = width * height * generator.uniform(*self.crop_scale)
            ratio = math.exp(generator.uniform(*log_ratio))
            crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < crop_width <= width and 0 < crop_height <= height:
                left = int(generator.integers(0, width - crop_width, endpoint=True))
                top = int(generator.integers(0, height - crop_height, endpoint=True))
                return left, top, left + crop_width, top + crop_height
        return self._central_box(width, height)

    def _central_box(self, width: int, height: int) -> Box:
        """Return the largest central box with an allowed aspect ratio."""
        smallest_ratio, largest_ratio = self.crop_ratio
        crop_width, crop_height = width, height
        if width / height < smallest_ratio:
            crop_height = max(1, round(width / smallest_ratio))
        elif width / height > largest_ratio:
            crop_width = max(1, round(height * largest_ratio))
        left, top = (width - crop_width) // 2, (height - crop_height) // 2
        return left, top, left + crop_width, top + crop_height


@dataclass(frozen=True)
class GlyphTransform:
    """Whole glyphs: scaled to the image size without a crop, with a small random affine map in training.

    They are never mirrored. Pixels outside the image are black, the background of such datasets. Meant for images not
    larger than ``image_size``: the affine map interpolates and does not average.
    """

    image_size: ImageSize
    train: bool
    channels: int = 1
    largest_rotation_degrees: float = 12.0
    scale: tuple[float, float] = (0.9, 1.1)
    largest_shear: float = 0.1
    largest_shift: float = 0.08  # of the side
    distortion: float = 1.0  # fraction of each of these that is applied
    augment: Augmentation | None = None

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> np.ndarray:
        """Return (channels, height, width) uint8."""
        image = as_mode(image, self.channels)
        target = self._target
        if self.train:
            inverse = self.draw_inverse_map(image.size, generator)
            image = image.transform(target, Image.Transform.AFFINE, inverse, Image.Resampling.BICUBIC)
            image = image if self.augment is None else self.augment(in_color(image, self.channels), generator)
        else:
            image = image.resize(target, Image.Resampling.BICUBIC)
        return to_array(image, self.channels)

    @functools.cached_property
    def _target(self) -> tuple[int, int]:
        """Width and height of the result."""
        height, width = as_pair(self.image_size)
        return width, height

    def draw_inverse_map(self, size: tuple[int, int], generator: np.random.Generator) -> tuple[float, ...]:
        """Draw the affine map as Pillow's six numbers: the first two rows of the map from target to source.

        A source point is mapped to the target by shear, scale and rotation about the center, then the shift.
        """
        share = self.distortion
        angle = share * math.radians(generator.uniform(-self.largest_rotation_degrees, self.largest_rotation_degrees))
        scale = 1.0 + share * (generator.uniform(*self.scale) - 1.0)
        shear = share * generator.uniform(-self.largest_shear, self.largest_shear)
        target = np.array(self._target)
        shift = share * generator.uniform(-self.largest_shift, self.largest_shift, size=2) * target

        cos, sin = math.cos(angle), math.sin(angle)
        rotation = np.array([[cos, -sin], [sin, cos]])
        forward = scale * rotation @ np.array([[1.0, shear], [0.0, 1.0]]) @ np.diag(target / np.array(size))
        inverse = np.linalg.inv(forward)  # (2, 2)
        offset = np.array(size) / 2 - inverse @ (target / 2 + shift)
        return (*inverse[0].tolist(), float(offset[0]), *inverse[1].tolist(), float(offset[1]))


def to_array(image: Image.Image | np.ndarray, channels: int, flip: bool = False) -> np.ndarray:
    """Convert an image, or planes uint8 (1 or channels, height, width), to the layout (channels, height, width).

    Gray is repeated for every channel; the result is mirrored if ``flip``, and C-contiguous.
    """
    if isinstance(image, Image.Image):
        pixels = np.array(image)  # (height, width) or (height, width, 3), its own memory
        image = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if len(image) != channels:
        image = np.broadcast_to(image, (channels, *image.shape[1:]))
    return np.ascontiguousarray(image[:, :, ::-1] if flip else image)


def as_mode(image: Image.Image, channels: int) -> Image.Image:
    """Convert an image to "L" or "RGB". Gray stays gray until the array is built: three channels triple the work."""
    mode = "L" if channels == 1 or image.mode == "L" else "RGB"
    return image if image.mode == mode else image.convert(mode)


def in_color(image: Image.Image, channels: int) -> Image.Image:
    """Convert gray to RGB if a network takes three channels."""
    return image.convert("RGB") if channels == 3 and image.mode == "L" else image
