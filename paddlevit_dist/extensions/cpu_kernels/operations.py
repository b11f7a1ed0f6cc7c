"""Operations of the augmentation policies in compiled loops, bit-identical to Pillow's.

Pillow does not guarantee its arithmetic: on some processors, a compiler fuses a product and a sum. Each loop is
therefore compared with the installed Pillow once per process that does not inherit the result, on images that reach its
branches. Pillow computes the operations that differ.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...core.runtime.compiled import compiled
from ...images.transforms.operations import OPERATIONS, SOLARIZE_THRESHOLD, Fill


@compiled
def histograms(planes: np.ndarray) -> np.ndarray:
    """Count the pixels of each level: int64 (channels, 256)."""
    channels, height, width = planes.shape
    counts = np.zeros((channels, 256), dtype=np.int64)
    # Neighbors are often equal, and updates of one count wait for each other
    others = np.zeros((channels, 256), dtype=np.int64)
    for channel in range(channels):
        even, odd = counts[channel], others[channel]
        for row in range(height):
            line = planes[channel, row]
            for pair in range(width // 2):
                even[line[2 * pair]] += 1
                odd[line[2 * pair + 1]] += 1
            if width % 2:
                even[line[width - 1]] += 1
    return counts + others


@compiled
def look_up(planes: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """Replace every level; ``tables`` is uint8 (channels, 256)."""
    channels, height, width = planes.shape
    result = np.empty_like(planes)
    for channel in range(channels):
        table = tables[channel]
        for row in range(height):
            line, target = planes[channel, row], result[channel, row]
            for column in range(width):
                target[column] = table[line[column]]
    return result


@compiled
def luminance(planes: np.ndarray) -> np.ndarray:
    """Convert RGB (3, height, width) to uint8 gray like Pillow, with ITU-R BT.601's weights rounded to 16 bits."""
    _, height, width = planes.shape
    result = np.empty((height, width), dtype=np.uint8)
    for row in range(height):
        red, green, blue, target = planes[0, row], planes[1, row], planes[2, row], result[row]
        for column in range(width):
            level = 19595 * np.uint32(red[column]) + 38470 * np.uint32(green[column]) + 7471 * np.uint32(blue[column])
            target[column] = np.uint8((level + np.uint32(0x8000)) >> np.uint32(16))
    return result


@compiled
def blend(planes: np.ndarray, others: np.ndarray, factor: np.float32) -> np.ndarray:
    """Compute ``others`` + ``factor`` (``planes`` - ``others``), truncated and clipped to 0 to 255.

    ``planes``: uint8 (channels, height, width); ``others``: likewise, or with one channel.
    """
    channels, height, width = planes.shape
    result = np.empty_like(planes)
    for channel in range(channels):
        for row in range(height):
            line, target = planes[channel, row], result[channel, row]
            other = others[min(channel, len(others) - 1), row]
            for column in range(width):
                start = np.float32(np.int32(other[column]))
                level = start + factor * (np.float32(np.int32(line[column])) - start)
                level = level if level > np.float32(0) else np.float32(0)
                target[column] = np.int32(level if level < np.float32(255) else np.float32(255))
    return result


@compiled
def smooth(planes: np.ndarray, neighbor: np.float32, center: np.float32) -> np.ndarray:
    """Average pixels and their eight neighbors with weights, except on the border, in Pillow's float32 order."""
    channels, height, width = planes.shape
    result = planes.copy()
    inner = width - 2
    if inner < 1:
        return result
    for channel in range(channels):
        for row in range(1, height - 1):
            above, middle, below = planes[channel, row - 1], planes[channel, row], planes[channel, row + 1]
            target = result[channel, row, 1 : width - 1]
            a, b, c = above[:inner], above[1 : width - 1], above[2:]
            d, e, f = middle[:inner], middle[1 : width - 1], middle[2:]
            g, h, i = below[:inner], below[1 : width - 1], below[2:]
            for column in range(inner):
                level = np.float32(0.5) + (
                    np.float32(np.int32(g[column])) * neighbor
                    + np.float32(np.int32(h[column])) * neighbor
                    + np.float32(np.int32(i[column])) * neighbor
                )
                level += (
                    np.float32(np.int32(d[column])) * neighbor
                    + np.float32(np.int32(e[column])) * center
                    + np.float32(np.int32(f[column])) * neighbor
                )
                level += (
                    np.float32(np.int32(a[column])) * neighbor
                    + np.float32(np.int32(b[column])) * neighbor
                    + np.float32(np.int32(c[column])) * neighbor
                )
                target[column] = np.int32(level if level < np.float32(255) else np.float32(255))
    return result


LEVELS = np.arange(256)


class ImagePlanes(NamedTuple):
    """An image in the model's layout: uint8 (channels, height, width), C-contiguous."""

    pixels: np.ndarray

    @classmethod
    def from_image(cls, image: Image.Image) -> "ImagePlanes":
        """Convert a gray ("L") or RGB image."""
        return cls(np.array(np.atleast_3d(np.asarray(image)).transpose(2, 0, 1), order="C"))

    def changed(self, name: str, parameter: object, fill: Fill) -> "ImagePlanes":
        """Return the image after the operation ``name``, by a loop if it is equal to Pillow's, else by Pillow."""
        if has_equal_operation(name):
            return ImagePlanes(_OPERATIONS[name](self.pixels, parameter, fill))
        pixels = self.pixels[0] if len(self.pixels) == 1 else np.ascontiguousarray(self.pixels.transpose(1, 2, 0))
        return ImagePlanes.from_image(OPERATIONS[name].apply(Image.fromarray(pixels), parameter, fill))


@functools.cache
def has_equal_operation(name: str) -> bool:
    """Return whether the operation ``name`` has a loop with the results of the installed Pillow."""
    if name not in _OPERATIONS:
        return False
    parameters = _TRIAL_PARAMETERS.get(name)
    if parameters is None:
        generator = np.random.default_rng(0)
        parameters = [OPERATIONS[name].parameter(strength, generator) for strength in (0.0, 0.2, 0.5, 0.9, 1.0)]
    for image in (trial_image(), trial_image().getchannel(0), trial_image(darkest=200)):
        fill = (7, 128, 250) if image.mode == "RGB" else 128
        planes = ImagePlanes.from_image(image).pixels
        for parameter in parameters:
            expected = ImagePlanes.from_image(OPERATIONS[name].apply(image, parameter, fill)).pixels
            if not np.array_equal(_OPERATIONS[name](planes, parameter, fill), expected):
                return False
    return True


def trial_image(darkest: int = 0) -> Image.Image:
    """Create a small RGB image with every kind of neighborhood: noise, a ramp and a uniform area."""
    generator = np.random.default_rng(1)
    pixels = generator.integers(darkest, 256, (91, 90, 3), dtype=np.uint8)
    pixels[30:60] = np.linspace(darkest, 255, 90).astype(np.uint8)[:, None]
    pixels[70:80, 20:60] = 255
    return Image.fromarray(pixels)


# Each table (256,) contains integers from 0 to 255.


def _blend(factor: float, other: int) -> np.ndarray:
    """Blend every level with the level ``other`` like Pillow: in float32, truncated."""
    return (np.float32(other) + np.float32(factor) * (LEVELS - other).astype(np.float32)).clip(0, 255)


def _stretch(histogram: np.ndarray) -> np.ndarray:
    """Return levels that map the darkest used level to 0 and the brightest to 255; ``histogram`` (256,)."""
    used = np.flatnonzero(histogram)
    low, high = int(used[0]), int(used[-1])
    if high <= low:
        return LEVELS
    scale = 255.0 / (high - low)
    return np.trunc(LEVELS * scale - low * scale).clip(0, 255)


def _equalize(histogram: np.ndarray) -> np.ndarray:
    """Return levels whose frequencies are about equal; ``histogram`` (256,)."""
    used = histogram[histogram > 0]
    step = (int(used.sum()) - int(used[-1])) // 255
    if len(used) <= 1 or not step:
        return LEVELS
    before = np.concatenate([[0], np.cumsum(histogram)[:-1]])  # pixels at lower levels
    return ((step // 2 + before) // step).clip(0, 255)


def _with_table(pixels: np.ndarray, table: np.ndarray) -> np.ndarray:
    return look_up(pixels, np.ascontiguousarray(np.broadcast_to(table.astype(np.uint8), (len(pixels), 256))))


def _with_tables(pixels: np.ndarray, compute_table: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return look_up(pixels, np.stack([compute_table(counts).astype(np.uint8) for counts in histograms(pixels)]))


def _posterize(pixels: np.ndarray, bits: int, fill: Fill) -> np.ndarray:
    return pixels & np.uint8(256 - (1 << (8 - max(0, min(bits, 8)))))


def _solarize(pixels: np.ndarray, threshold: int, fill: Fill) -> np.ndarray:
    return _with_table(pixels, np.where(LEVELS < threshold, LEVELS, 255 - LEVELS))


def _solarize_add(pixels: np.ndarray, addition: int, fill: Fill) -> np.ndarray:
    return _with_table(pixels, np.where(LEVELS < SOLARIZE_THRESHOLD, np.minimum(LEVELS + addition, 255), LEVELS))


def _brightness(pixels: np.ndarray, factor: float, fill: Fill) -> np.ndarray:
    return _with_table(pixels, _blend(factor, 0))


def _contrast(pixels: np.ndarray, factor: float, fill: Fill) -> np.ndarray:
    gray = luminance(pixels) if len(pixels) == 3 else pixels[0]
    return _with_table(pixels, _blend(factor, int(float(gray.mean(dtype=np.float64)) + 0.5)))


def _color(pixels: np.ndarray, factor: float, fill: Fill) -> np.ndarray:
    return pixels if len(pixels) == 1 else blend(pixels, luminance(pixels)[None], np.float32(factor))


def _sharpness(pixels: np.ndarray, factor: float, fill: Fill) -> np.ndarray:
    # Pillow's ImageFilter.SMOOTH
    smoothed = smooth(pixels, np.float32(1) / np.float32(13), np.float32(5) / np.float32(13))
    return blend(pixels, smoothed, np.float32(factor))


def _affine(pixels: np.ndarray, rows: tuple[float, ...], fill: Fill) -> np.ndarray:
    from .warp_kernels import warp  # loads numba

    # Pillow reads a number as a color with red in its lowest byte.
    red, green, blue = (*fill, 0, 0)[:3] if isinstance(fill, tuple) else (fill & 255, fill >> 8 & 255, fill >> 16 & 255)
    return warp(pixels, tuple(map(float, rows)), (red, green, blue))


def _rotate(pixels: np.ndarray, degrees: float, fill: Fill) -> np.ndarray:
    """Rotate about the center, counterclockwise; like Pillow, round the matrix to 15 places."""
    _, height, width = pixels.shape
    angle = -math.radians(degrees % 360.0)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    minus_sin = round(-math.sin(angle), 15)
    x, y = width / 2, height / 2
    return _affine(pixels, (cos, sin, cos * -x + sin * -y + x, minus_sin, cos, minus_sin * -x + cos * -y + y), fill)


_OPERATIONS: dict[str, Callable[[np.ndarray, Any, Fill], np.ndarray]] = {
    "AutoContrast": lambda pixels, _, fill: _with_tables(pixels, _stretch),
    "Equalize": lambda pixels, _, fill: _with_tables(pixels, _equalize),
    "Invert": lambda pixels, _, fill: ~pixels,
    "Rotate": _rotate,
    **dict.fromkeys(("Posterize", "PosterizeIncreasing", "PosterizeOriginal"), _posterize),
    **dict.fromkeys(("Solarize", "SolarizeIncreasing"), _solarize),
    "SolarizeAdd": _solarize_add,
    **dict.fromkeys(("Color", "ColorIncreasing", "Desaturate"), _color),
    **dict.fromkeys(("Contrast", "ContrastIncreasing"), _contrast),
    **dict.fromkeys(("Brightness", "BrightnessIncreasing"), _brightness),
    **dict.fromkeys(("Sharpness", "SharpnessIncreasing"), _sharpness),
    "ShearX": lambda pixels, x, fill: _affine(pixels, (1, x, 0, 0, 1, 0), fill),
    "ShearY": lambda pixels, y, fill: _affine(pixels, (1, 0, 0, y, 1, 0), fill),
    "TranslateXRel": lambda pixels, x, fill: _affine(pixels, (1, 0, x * pixels.shape[2], 0, 1, 0), fill),
    "TranslateYRel": lambda pixels, y, fill: _affine(pixels, (1, 0, 0, 0, 1, y * pixels.shape[1]), fill),
}

# Parameters for comparisons, if the parameters of a few strengths do not reach all branches.
_TRIAL_PARAMETERS: dict[str, Any] = {
    **dict.fromkeys(("Color", "ColorIncreasing", "Contrast", "ContrastIncreasing"), (0.0, 0.1, 0.77, 1.0, 1.3, 1.9)),
    **dict.fromkeys(("Brightness", "BrightnessIncreasing", "Sharpness", "SharpnessIncreasing"), (0.1, 0.77, 1.0, 1.9)),
    "Rotate": (-30.0, -7.1, 0.0, 13.7, 30.0),
    **dict.fromkeys(("ShearX", "ShearY"), (-0.3, -0.1, 0.0, 0.21, 0.3)),
    **dict.fromkeys(("TranslateXRel", "TranslateYRel"), (-0.45, -0.2, 0.0, 0.1, 0.45)),
}
