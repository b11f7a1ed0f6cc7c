"""Pillow's crop with resize and the operations of the augmentation policies in compiled loops: what DATA.DECODER exact
uses. Each is equal to Pillow's in every bit.

Pillow's arithmetic is not promised: version 13 changed the order of a resize's passes, and on some processors a
compiler joins a product and a sum. So each loop is compared with the installed Pillow before it is used, on pictures
that reach its branches, once per process that does not inherit the answer. What differs is left to Pillow.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Dict, Iterable, NamedTuple, Optional, Tuple

import numpy as np
from PIL import Image

from . import levels
from .compiled_levels import blend, histograms, look_up, luminance, smooth
from .compiled_resize import resize_crop
from .compiled_warp import warp
from .operations import OPERATIONS, Fill

Box = Tuple[int, int, int, int]  # left, top, right, bottom
_TALL = 100  # times as high as wide: some versions of Pillow scale such crops in another order


class Planes(NamedTuple):
    """An image as the model has it: uint8 (channels, height, width), C-contiguous."""

    pixels: np.ndarray

    @classmethod
    def of(cls, image: Image.Image) -> Planes:
        """A gray ("L") or RGB image."""
        return cls(np.array(np.atleast_3d(np.asarray(image)).transpose(2, 0, 1), order="C"))

    def as_pillow(self) -> Image.Image:
        """The same as a Pillow image."""
        if len(self.pixels) == 1:
            return Image.fromarray(self.pixels[0])
        return Image.fromarray(np.ascontiguousarray(self.pixels.transpose(1, 2, 0)))


def apply_compiled(name: str, image: Planes, parameter: Any, fill: Fill) -> Optional[Planes]:
    """The image after the operation ``name``; None if only Pillow has it, or has another one."""
    if not has_equal_operation(name):
        return None
    return Planes(_OPERATIONS[name](image.pixels, parameter, fill))


def can_cut(box: Box) -> bool:
    """Whether ``cut`` does with this crop what the installed Pillow does."""
    left, top, right, bottom = box
    return order_of_passes() is not None and bottom - top <= _TALL * (right - left)


def cut(pixels: np.ndarray, box: Box, size: int, flip: bool) -> Planes:
    """The crop ``box`` scaled bicubically to a square and mirrored if ``flip``.

    Args:
        pixels: uint8 (rows, columns, channels), C-contiguous; numba compiles once more for one that is read-only.
    """
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    order = order_of_passes()
    columns_first = order is not None and order(width, height, size)
    resized = resize_crop(pixels, (left, top, width, height), pixels.shape[2], size, flip, columns_first)
    return Planes(np.ascontiguousarray(resized))


def _rows_first(width: int, height: int, size: int) -> bool:
    return False


def _by_sizes(width: int, height: int, size: int) -> bool:
    """Whether the columns come first: where the height shrinks by more than twice as many pixels as the width."""
    return height - size > max(0, 2 * (width - size))


@functools.lru_cache(maxsize=None)
def order_of_passes() -> Optional[Callable[[int, int, int], bool]]:
    """The rule by which the installed Pillow scales columns first, None if no known one gives its results."""
    image = _noise(3)
    boxes = [
        (0, 0, 90, 70),
        (3, 1, 20, 90),
        (5, 2, 45, 91),
        (0, 0, 8, 9),
        (1, 0, 33, 32),
        (0, 5, 88, 9),
        (2, 0, 34, 70),
    ]
    for order in (_by_sizes, _rows_first):
        if all(_resizes_equally(picture, box, order) for box in boxes for picture in (image, image.getchannel(1))):
            return order
    return None


def _resizes_equally(image: Image.Image, box: Box, order: Callable[[int, int, int], bool], size: int = 32) -> bool:
    crop = image.crop(box)
    pixels = np.array(crop).reshape(crop.height, crop.width, -1)
    whole = (0, 0, crop.width, crop.height)
    ours = resize_crop(pixels, whole, pixels.shape[2], size, False, order(crop.width, crop.height, size))
    return np.array_equal(ours, Planes.of(crop.resize((size, size), Image.Resampling.BICUBIC)).pixels)


@functools.lru_cache(maxsize=None)
def has_equal_operation(name: str) -> bool:
    """Whether there is a loop for the operation ``name`` which gives what the installed Pillow gives."""
    if name not in _OPERATIONS:
        return False
    parameters = _TRIED.get(name)
    if parameters is None:
        generator = np.random.default_rng(0)
        parameters = [OPERATIONS[name].parameter(strength, generator) for strength in (0.0, 0.2, 0.5, 0.9, 1.0)]
    for image in (_noise(3), _noise(3).getchannel(0), _noise(3, darkest=200)):
        fill = (7, 128, 250) if image.mode == "RGB" else 128
        planes = Planes.of(image).pixels
        for parameter in parameters:
            expected = Planes.of(OPERATIONS[name].apply(image, parameter, fill)).pixels
            if not np.array_equal(_OPERATIONS[name](planes, parameter, fill), expected):
                return False
    return True


def _noise(channels: int, darkest: int = 0) -> Image.Image:
    """A small picture with every kind of neighbourhood: noise, a ramp and an even area."""
    generator = np.random.default_rng(1)
    pixels = generator.integers(darkest, 256, (91, 90, channels), dtype=np.uint8)
    pixels[30:60] = np.linspace(darkest, 255, 90).astype(np.uint8)[:, None]
    pixels[70:80, 20:60] = 255
    return Image.fromarray(pixels)


def prepare(names: Iterable[str] = ()) -> None:
    """Compile or load the loops and compare them with Pillow: once, for all processes forked from this one.

    Args:
        names: the operations that will be applied.
    """
    order_of_passes()
    for name in names:
        has_equal_operation(name)


def _with_table(pixels: np.ndarray, table: np.ndarray) -> np.ndarray:
    return look_up(pixels, np.ascontiguousarray(np.broadcast_to(table.astype(np.uint8), (len(pixels), 256))))


def _with_tables(pixels: np.ndarray, table_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return look_up(pixels, np.stack([table_of(counts).astype(np.uint8) for counts in histograms(pixels)]))


def _grey(pixels: np.ndarray) -> np.ndarray:
    return luminance(pixels) if len(pixels) == 3 else pixels[0]


def _contrast(pixels: np.ndarray, factor: float, fill: Fill) -> np.ndarray:
    return _with_table(pixels, levels.blended(factor, int(float(_grey(pixels).mean(dtype=np.float64)) + 0.5)))


def _color(pixels: np.ndarray, factor: float, fill: Fill) -> np.ndarray:
    return pixels if len(pixels) == 1 else blend(pixels, luminance(pixels)[None], np.float32(factor))


def _sharpness(pixels: np.ndarray, factor: float, fill: Fill) -> np.ndarray:
    # Pillow's ImageFilter.SMOOTH
    smoothed = smooth(pixels, np.float32(1) / np.float32(13), np.float32(5) / np.float32(13))
    return blend(pixels, smoothed, np.float32(factor))


def _affine(pixels: np.ndarray, rows: Tuple[float, ...], fill: Fill) -> np.ndarray:
    # To Pillow a number is a colour with red in its lowest byte.
    red, green, blue = (*fill, 0, 0)[:3] if isinstance(fill, tuple) else (fill & 255, fill >> 8 & 255, fill >> 16 & 255)
    return warp(pixels, tuple(map(float, rows)), (red, green, blue))


def _rotate(pixels: np.ndarray, degrees: float, fill: Fill) -> np.ndarray:
    """Rotate about the centre, counterclockwise; the matrix is rounded to 15 places, as Pillow does."""
    _, height, width = pixels.shape
    angle = -math.radians(degrees % 360.0)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    minus_sin = round(-math.sin(angle), 15)
    x, y = width / 2, height / 2
    return _affine(pixels, (cos, sin, cos * -x + sin * -y + x, minus_sin, cos, minus_sin * -x + cos * -y + y), fill)


_OPERATIONS: Dict[str, Callable[[np.ndarray, Any, Fill], np.ndarray]] = {
    "AutoContrast": lambda pixels, _, fill: _with_tables(pixels, levels.stretched),
    "Equalize": lambda pixels, _, fill: _with_tables(pixels, levels.equalised),
    "Invert": lambda pixels, _, fill: ~pixels,
    "Rotate": _rotate,
    **dict.fromkeys(
        ("Posterize", "PosterizeIncreasing", "PosterizeOriginal"),
        lambda pixels, bits, fill: pixels & np.uint8(levels.posterized(bits)[255]),
    ),
    **dict.fromkeys(
        ("Solarize", "SolarizeIncreasing"),
        lambda pixels, threshold, fill: _with_table(pixels, levels.solarized(threshold)),
    ),
    "SolarizeAdd": lambda pixels, addition, fill: _with_table(pixels, levels.solarized_by_adding(addition)),
    **dict.fromkeys(("Color", "ColorIncreasing", "Desaturate"), _color),
    **dict.fromkeys(("Contrast", "ContrastIncreasing"), _contrast),
    **dict.fromkeys(
        ("Brightness", "BrightnessIncreasing"),
        lambda pixels, factor, fill: _with_table(pixels, levels.blended(factor, 0)),
    ),
    **dict.fromkeys(("Sharpness", "SharpnessIncreasing"), _sharpness),
    "ShearX": lambda pixels, x, fill: _affine(pixels, (1, x, 0, 0, 1, 0), fill),
    "ShearY": lambda pixels, y, fill: _affine(pixels, (1, 0, 0, y, 1, 0), fill),
    "TranslateXRel": lambda pixels, x, fill: _affine(pixels, (1, 0, x * pixels.shape[2], 0, 1, 0), fill),
    "TranslateYRel": lambda pixels, y, fill: _affine(pixels, (1, 0, 0, 0, 1, y * pixels.shape[1]), fill),
}

# Parameters to compare at, where those of a few strengths would not reach all branches.
_TRIED: Dict[str, Any] = {
    **dict.fromkeys(("Color", "ColorIncreasing", "Contrast", "ContrastIncreasing"), (0.0, 0.1, 0.77, 1.0, 1.3, 1.9)),
    **dict.fromkeys(("Brightness", "BrightnessIncreasing", "Sharpness", "SharpnessIncreasing"), (0.1, 0.77, 1.0, 1.9)),
    "Rotate": (-30.0, -7.1, 0.0, 13.7, 30.0),
    **dict.fromkeys(("ShearX", "ShearY"), (-0.3, -0.1, 0.0, 0.21, 0.3)),
    **dict.fromkeys(("TranslateXRel", "TranslateYRel"), (-0.45, -0.2, 0.0, 0.1, 0.45)),
}
