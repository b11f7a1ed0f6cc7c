"""Prove that two images whose thumbnails are alike are copies of one: compare their registered pixels, block by block.

Thumbnails of different objects before one background, or of different patients, may be as similar as thumbnails of
copies. Copies also have the same texture, and have it everywhere. Thresholds and rates: ``benchmarks/leaks.py``.
"""

from typing import NamedTuple

import numpy as np
from PIL import Image

from . import perceptual

SIDE = 192  # pixels, largest side of compared images; three thumbnails
_BLOCK = 8  # pixels of a block's side
_TEXTURE, _STRONG = 3.0, 8.0  # gray levels: deviation within a block from which it is compared, or has to agree
_CORNER, _ROUNDNESS = 1.0, 0.1  # gray levels per pixel along the direction of least change; its share of the power
_NOISE = 2.0  # gray levels that make no difference
_LOW, _HIGH = 5.0, 250.0  # gray levels below and above these may be clipped
_BLUR = 3.0  # pixels of the blur whose difference to the image is registered
_FEWEST_CORNERS, _LEAST_AGREEMENT, _MOST_CHANGED, _DIFFERS = 12, 0.6, 0.01, 0.8


class RegisteredDifference(NamedTuple):
    """Comparison of two registered images."""

    corners: int  # blocks with structure in two directions
    agreement: float  # tenth percentile over the textured blocks, from -1 to 1
    changed: float  # share of the strongly textured blocks that do not agree

    @property
    def is_proof(self) -> bool:
        """Whether the pixels prove that both are copies of one image."""
        is_equal = self.agreement >= _LEAST_AGREEMENT and self.changed <= _MOST_CHANGED
        return is_equal and self.corners >= _FEWEST_CORNERS


def make_picture(image: Image.Image) -> np.ndarray:
    """Shrink an image to its luminance, uint8 (side, side), with at most ``SIDE`` pixels, and not above its own."""
    side = int(np.clip(min(image.size), perceptual.THUMB_PX, SIDE)) // _BLOCK * _BLOCK
    return np.asarray(image.convert("L").resize((side, side), Image.Resampling.BILINEAR))


def compare_registered(first: np.ndarray, second: np.ndarray) -> RegisteredDifference:
    """Register two results of ``make_picture``, equalize brightness and contrast, and compare their blocks."""
    side = min(len(first), len(second))
    moving, fixed = (_smooth(_shrink(picture, side)) for picture in (first, second))
    borders = perceptual.align_thumbnails(*(_shrink(picture, perceptual.THUMB_PX) for picture in (first, second)))
    for size, steps in ((side // 2, 5), (side, 3)):
        blur = perceptual.build_blur(size, _BLUR)
        pair = (_shrink(image, size) for image in (moving, fixed))
        details, other_details = (image - blur @ image @ blur.T for image in pair)
        borders = perceptual.align_images(details, other_details, borders, steps)
    rows, columns, is_shared = perceptual.find_window(borders, side)
    is_inside = _to_blocks(is_shared).all(axis=1)
    if not is_inside.any():
        return RegisteredDifference(0, 0.0, 1.0)
    images = _equalize(rows @ moving @ columns.T, fixed, is_shared)
    blocks = [_to_blocks(image)[is_inside] for image in images]
    one, other = (block - block.mean(axis=1, keepdims=True) for block in blocks)
    powers = (one * one).mean(axis=1), (other * other).mean(axis=1)
    deviation = np.sqrt(np.maximum(*powers))
    agreement = 2 * (one * other).mean(axis=1) / (powers[0] + powers[1] + _NOISE**2)
    is_textured, is_strong = deviation > _TEXTURE, deviation > _STRONG
    if not is_textured.any():
        return RegisteredDifference(0, 0.0, 1.0)
    cornered = np.logical_and(*(_find_corners(image)[is_inside] for image in images))
    return RegisteredDifference(
        int((is_textured & cornered).sum()),
        float(np.percentile(agreement[is_textured], 10)),
        float((agreement[is_strong] < _DIFFERS).mean()) if is_strong.any() else 0.0,
    )


def _shrink(picture: np.ndarray, side: int) -> np.ndarray:
    """Shrink an image to float64 (side, side)."""
    image = Image.fromarray(picture.astype(np.float32))
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR), np.float64)


def _smooth(image: np.ndarray) -> np.ndarray:
    """Average pixels with their neighbors, by 1, 4, 6, 4, 1 along each axis: sizes differ in their finest details."""
    for axis in (0, 1):
        padded = np.pad(image, [(2, 2) if axis == other else (0, 0) for other in (0, 1)], mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(padded, 5, axis=axis)
        image = windows @ (np.array([1, 4, 6, 4, 1]) / 16)
    return image


def _equalize(first: np.ndarray, second: np.ndarray, is_shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the image of less contrast the other's brightness and contrast, clipped as a brightened copy would be."""
    used = is_shared & (np.maximum(first, second) < _HIGH) & (np.minimum(first, second) > _LOW)
    if used.sum() < _BLOCK**2:
        return first, second
    deviations = [max(float(image[used].std()), 1e-3) for image in (first, second)]
    if deviations[0] > deviations[1]:
        return _equalize(second, first, is_shared)[::-1]
    gain = deviations[1] / deviations[0]
    changed = (first - first[used].mean()) * gain + second[used].mean()
    return changed.clip(0, 255), second


def _find_corners(image: np.ndarray) -> np.ndarray:
    """Return for each block whether it has structure in two directions; an edge, even a curved one, has it in one.

    Source: J. Shi, C. Tomasi, "Good Features to Track", CVPR 1994, section 5.
    """
    down, across = np.gradient(image)
    yy, xx, yx = (_to_blocks(product).mean(axis=1) for product in (down * down, across * across, down * across))
    spread = np.sqrt(((yy - xx) / 2) ** 2 + yx**2)
    least, most = (yy + xx) / 2 - spread, (yy + xx) / 2 + spread
    return (least > _CORNER**2) & (least > _ROUNDNESS * most)


def _to_blocks(image: np.ndarray) -> np.ndarray:
    """Reshape (side, side) to (blocks, pixels)."""
    number = len(image) // _BLOCK
    return image.reshape(number, _BLOCK, number, _BLOCK).swapaxes(1, 2).reshape(number * number, -1)
