"""Perceptual hash of an image, and similarity of two images whose hashes are near.

The hash has 64 bits. It changes little if an image is scaled, compressed again, brightened or slightly cropped. It
consists of the signs of the lowest coefficients of a discrete cosine transform. Source: C. Zauner, "Implementation and
Benchmarking of Perceptual Image Hash Functions", 2010, section 3.2.1, with two changes: the 64 coefficients have the
lowest frequencies by their length, without the mean; and they are compared with 0, not with their median, so that each
bit depends on one coefficient alone.
"""

import functools
from typing import NamedTuple

import numpy as np
from PIL import Image

THUMB_PX = 64  # side of a thumbnail
PLAIN = 2.0  # standard deviation of gray levels, 0 to 255, below which an image is too plain to be recognized
CROP = 0.05  # share of a side that may be cropped from a copy
_HASHED_PX = 32
_SIDE = 12  # side of the block of coefficients from which the lowest are taken
_NEAREST_ORDERS = sorted(
    ((row, column) for row in range(_SIDE) for column in range(_SIDE) if row or column),
    key=lambda order: (order[0] ** 2 + order[1] ** 2, order),
)
_ROWS, _COLUMNS = np.array(_NEAREST_ORDERS[:64]).T
_WIDEST = 0.15  # share of a side by which an alignment may move a border
_STEPS = 5  # of an alignment at each resolution


def make_thumbnail(image: Image.Image) -> np.ndarray:
    """Shrink an image to uint8 (64, 64, 3) with a box filter."""
    return np.asarray(image.convert("RGB").resize((THUMB_PX, THUMB_PX), Image.Resampling.BOX))


def to_luminance(thumb: np.ndarray) -> np.ndarray:
    """Compute the luminance of a thumbnail, float64 (64, 64), 0 to 255, with the weights of ITU-R BT.601."""
    return thumb @ np.array([0.299, 0.587, 0.114])


def compute_hashes(luminance: np.ndarray, number: int) -> np.ndarray:
    """Compute the hashes of an image and of its variants with other borders, uint64 (number,).

    Args:
        luminance: (64, 64).
        number: 1: the image itself; 9: also four crops by 5 % of each side, one to each corner, and four extensions by
            5 % with repeated borders. So a cropped copy is found, and also the original of a cropped image.
    """
    rows, columns = (basis[:number] for basis in _bases())
    coefficients = rows @ luminance @ columns.transpose(0, 2, 1)  # (number, 12, 12)
    bits = coefficients[:, _ROWS, _COLUMNS] > 0
    return np.ascontiguousarray(np.packbits(bits, axis=1)).view("<u8")[:, 0]


NUM_VARIANTS = 9


@functools.cache
def _bases() -> tuple[np.ndarray, np.ndarray]:
    """Compute the cosines over the borders of each variant, float64 (9, 12, 64) for rows and for columns."""
    orders, places = np.arange(_SIDE)[:, None], (np.arange(_HASHED_PX) + 0.5) / _HASHED_PX
    cosines = np.cos(np.pi * orders * places)  # (12, 32)
    moved = [(0.0, 0.0)] + [(low, low - sign * CROP) for sign in (1, -1) for low in (0.0, sign * CROP)]
    borders = [moved[0]] * 2
    pairs = [borders] + [[y, x] for half in (moved[1:3], moved[3:]) for y in half for x in half]
    bases = [[cosines @ _resampling_matrix(low, 1 + high, _HASHED_PX, 8) for low, high in pair] for pair in pairs]
    rows, columns = zip(*bases)
    return np.stack(rows), np.stack(columns)


def _resampling_matrix(low: float, high: float, size: int, parts: int = 1, given: int = THUMB_PX) -> np.ndarray:
    """Build the matrix (size, given) that resamples pixels linearly to means of ``parts`` positions between borders."""
    places = low + (high - low) * (np.arange(size * parts) + 0.5) / (size * parts)
    pixels = np.clip(places * given - 0.5, 0, given - 1)
    first = pixels.astype(np.int64).clip(max=given - 2)
    share = pixels - first
    matrix = np.zeros((size * parts, given))
    each = np.arange(size * parts)
    matrix[each, first], matrix[each, first + 1] = 1 - share, share
    return matrix.reshape(size, parts, given).mean(axis=1)


class ImageSimilarity(NamedTuple):
    """Similarity of two aligned images: correlations from -1 to 1."""

    colors: float  # of all pixels in three colors, each image with one brightness and one contrast
    details: float  # of the luminance minus its Gaussian blur

    @property
    def is_copy(self) -> bool:
        """Whether one image is a copy of the other."""
        return min(self) >= LEAST_EACH and sum(self) >= LEAST_TOGETHER


# None of 40 pairs of different photographs with near hashes reaches 0.5 and 1.41; 19 of 20 copies do.
LEAST_EACH, LEAST_TOGETHER = 0.5, 1.45
_DISSIMILAR = 0.4  # correlation of blurred colors that an alignment by a few pixels cannot raise to 0.5


def compute_similarity(first_thumb: np.ndarray, second_thumb: np.ndarray) -> ImageSimilarity:
    """Align the borders of the first thumbnail, uint8 (64, 64, 3), with the second, and compare their common area."""
    first, second = to_luminance(first_thumb), to_luminance(second_thumb)
    thumbs = first_thumb, second_thumb
    planes, others = (np.moveaxis(thumb, 2, 0) for thumb in thumbs)  # (3, 64, 64)
    colors = correlate(*(_blur() @ image @ _blur().T for image in (planes, others)))
    if colors < _DISSIMILAR:
        return ImageSimilarity(colors, 0.0)
    borders = align_thumbnails(first, second)
    details = [image - _blur() @ image @ _blur().T for image in (first, second)]
    rows, columns, is_shared = find_window(borders)
    colors = correlate((rows @ planes @ columns.T)[:, is_shared], others[:, is_shared])
    return ImageSimilarity(colors, correlate((rows @ details[0] @ columns.T)[is_shared], details[1][is_shared]))


def align_thumbnails(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the borders (top, bottom, left, right) with which one luminance (64, 64) fits the other best."""
    blurred, other_blurred = (_blur() @ image @ _blur().T for image in (first, second))
    borders = align_images(blurred, other_blurred, np.array([0.0, 1.0, 0.0, 1.0]))
    return align_images(first - blurred, second - other_blurred, borders)


def _blur() -> np.ndarray:
    return build_blur(THUMB_PX, 4.0)


@functools.cache
def build_blur(side: int, deviation: float) -> np.ndarray:
    """Build the matrix (side, side) of a Gaussian blur along one side, in pixels, normalized at its ends."""
    distance = np.arange(side)[:, None] - np.arange(side)
    weights = np.exp(-0.5 * (distance / deviation) ** 2)
    return weights / weights.sum(axis=1, keepdims=True)


def find_window(borders: np.ndarray, side: int = THUMB_PX) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return matrices that resample an image's rows and columns to these borders, and its valid mask, (side, side)."""
    top, bottom, left, right = borders
    places = (np.arange(side) + 0.5) / side
    inside = [np.abs(low + (high - low) * places - 0.5) <= 0.5 for low, high in ((top, bottom), (left, right))]
    matrices = [_resampling_matrix(low, high, side, given=side) for low, high in ((top, bottom), (left, right))]
    return matrices[0], matrices[1], np.outer(*inside)


def align_images(moving: np.ndarray, fixed: np.ndarray, borders: np.ndarray, steps: int | None = None) -> np.ndarray:
    """Find the borders with which ``moving`` fits ``fixed`` best, up to brightness and contrast, of Gauss-Newton steps.

    Source: B. Lucas, T. Kanade, "An Iterative Image Registration Technique", IJCAI 1981, section 4.3.
    """
    side = len(moving)
    slopes = np.gradient(moving, 1 / side)  # by rows, by columns; a side has the length 1
    centered = (np.arange(side) + 0.5) / side - 0.5
    best_fit, best_borders = -1.0, borders
    for _ in range(steps or _STEPS):
        rows, columns, is_shared = find_window(borders, side)
        source, target = (rows @ moving @ columns.T)[is_shared], fixed[is_shared]
        fit = correlate(source, target)
        if fit > best_fit:
            best_fit, best_borders = fit, borders
        down, across = (rows @ slope @ columns.T for slope in slopes)
        derivatives = [down, down * centered[:, None], across, across * centered]
        system = np.stack([*(part[is_shared] for part in derivatives), source, np.ones_like(source)], axis=1)
        normal = system.T @ system
        solved = np.linalg.solve(normal + 1e-6 * np.trace(normal) * np.eye(6) / 6, system.T @ target)
        shift_y, grow_y, shift_x, grow_x = np.clip(solved[:4] / max(solved[4], 0.2), -CROP, CROP)
        moves = [shift_y - grow_y / 2, shift_y + grow_y / 2, shift_x - grow_x / 2, shift_x + grow_x / 2]
        borders = np.clip(borders + moves, [-_WIDEST, 1 - _WIDEST] * 2, [_WIDEST, 1 + _WIDEST] * 2)
    return best_borders


def correlate(first: np.ndarray, second: np.ndarray) -> float:
    """Compute the correlation of two arrays of one shape; 0 if one of them is constant."""
    first, second = first - first.mean(), second - second.mean()
    scale = np.sqrt((first * first).sum() * (second * second).sum())
    return float((first * second).sum() / scale) if scale > 0 else 0.0
