"""A hash of 64 bits that changes little where an image is scaled, stored anew, brightened or cropped a little, and a
second look at two images whose hashes are near.

The hash: signs of the lowest coefficients of a discrete cosine transform. Source: C. Zauner, "Implementation and
Benchmarking of Perceptual Image Hash Functions", 2010, section 3.2.1, with two changes: the 64 coefficients are those
of the lowest frequencies by their length, without the mean, and they are compared with 0, not with their median, so
that each bit is of one coefficient alone.
"""

import functools
from typing import NamedTuple

import numpy as np
from PIL import Image

THUMB_PX = 64  # side of what is hashed and looked at again
PLAIN = 2.0  # standard deviation of an image's levels, of 255, below which nothing is there to be recognized
CROP = 0.05  # of a side, that a copy may lack
_HASHED_PX = 32
_SIDE = 12  # of the block of coefficients from which the lowest are taken
_NEAREST_ORDERS = sorted(
    ((row, column) for row in range(_SIDE) for column in range(_SIDE) if row or column),
    key=lambda order: (order[0] ** 2 + order[1] ** 2, order),
)
_ROWS, _COLUMNS = np.array(_NEAREST_ORDERS[:64]).T
_WIDEST = 0.15  # of a side, by which an alignment may move a border
_STEPS = 5  # of an alignment at each resolution


def thumbnail(image: Image.Image) -> np.ndarray:
    """uint8 (64, 64, 3) of an image, each pixel the mean of what it covers."""
    return np.asarray(image.convert("RGB").resize((THUMB_PX, THUMB_PX), Image.Resampling.BOX))


def gray(thumb: np.ndarray) -> np.ndarray:
    """float64 (64, 64), 0 to 255: luminance of a thumbnail, weighted as in ITU-R BT.601."""
    return thumb @ np.array([0.299, 0.587, 0.114])


def hashes(luminance: np.ndarray, number: int) -> np.ndarray:
    """uint64 (number,): the hash of an image, and of what it would be with other borders.

    Args:
        luminance: (64, 64).
        number: 1: of the image itself; 9: also of four crops by 5 % of each side, one to each corner, and as if it
            were such a crop, its borders repeated, which meets a copy that is cropped whichever of the two it is.
    """
    rows, columns = (basis[:number] for basis in _bases())
    coefficients = rows @ luminance @ columns.transpose(0, 2, 1)  # (number, 12, 12)
    bits = coefficients[:, _ROWS, _COLUMNS] > 0
    return np.ascontiguousarray(np.packbits(bits, axis=1)).view("<u8")[:, 0]


NUM_VARIANTS = 9


@functools.cache
def _bases() -> tuple[np.ndarray, np.ndarray]:
    """float64 (9, 12, 64) for rows and for columns: cosines over the borders of each variant."""
    orders, places = np.arange(_SIDE)[:, None], (np.arange(_HASHED_PX) + 0.5) / _HASHED_PX
    cosines = np.cos(np.pi * orders * places)  # (12, 32)
    moved = [(0.0, 0.0)] + [(low, low - sign * CROP) for sign in (1, -1) for low in (0.0, sign * CROP)]
    borders = [moved[0]] * 2
    pairs = [borders] + [[y, x] for half in (moved[1:3], moved[3:]) for y in half for x in half]
    found = [[cosines @ _resampling(low, 1 + high, _HASHED_PX, 8) for low, high in pair] for pair in pairs]
    rows, columns = zip(*found)
    return np.stack(rows), np.stack(columns)


def _resampling(low: float, high: float, size: int, parts: int = 1) -> np.ndarray:
    """(size, 64): what takes ``size`` values between two borders, shares of the side, from 64 pixels, linearly; each is
    the mean of ``parts``, and beyond the border its last pixel counts."""
    places = low + (high - low) * (np.arange(size * parts) + 0.5) / (size * parts)
    pixels = np.clip(places * THUMB_PX - 0.5, 0, THUMB_PX - 1)
    first = np.minimum(pixels.astype(np.int64), THUMB_PX - 2)
    share = pixels - first
    matrix = np.zeros((size * parts, THUMB_PX))
    each = np.arange(size * parts)
    matrix[each, first], matrix[each, first + 1] = 1 - share, share
    return matrix.reshape(size, parts, THUMB_PX).mean(axis=1)


class ImageSimilarity(NamedTuple):
    """How alike two aligned images are, correlations from -1 to 1.

    Attributes:
        colors: of all pixels in three colors, each image with one brightness and one contrast.
        details: of what is left of the luminance without its slow changes.
    """

    colors: float
    details: float

    @property
    def is_copy(self) -> bool:
        """Whether they show the same."""
        return min(self) >= LEAST_EACH and sum(self) >= LEAST_TOGETHER


# Of 40 pairs of different photographs whose hashes are near none reaches 0.5 and 1.41; of copies 19 of 20 do.
LEAST_EACH, LEAST_TOGETHER = 0.5, 1.45
_UNLIKE = 0.4  # of colors that are out of focus: no alignment by a few pixels makes 0.5 of it


def likeness(one: np.ndarray, other: np.ndarray) -> ImageSimilarity:
    """The second look: moves the borders of ``one`` until it fits ``other`` best, and compares what both show.

    Args:
        one, other: thumbnails, uint8 (64, 64, 3).
    """
    first, second = gray(one), gray(other)
    planes, others = (np.moveaxis(thumb.astype(np.float64), 2, 0) for thumb in (one, other))  # (3, 64, 64)
    colors = _correlation(*(_blur() @ image @ _blur().T for image in (planes, others)))
    if colors < _UNLIKE:
        return ImageSimilarity(colors, 0.0)
    borders = np.array([0.0, 1.0, 0.0, 1.0])  # top, bottom, left, right
    borders = _align(_blur() @ first @ _blur().T, _blur() @ second @ _blur().T, borders)
    details = [image - _blur() @ image @ _blur().T for image in (first, second)]
    borders = _align(*details, borders)
    rows, columns, is_shared = _window(borders)
    colors = _correlation((rows @ planes @ columns.T)[:, is_shared], others[:, is_shared])
    return ImageSimilarity(colors, _correlation((rows @ details[0] @ columns.T)[is_shared], details[1][is_shared]))


@functools.cache
def _blur() -> np.ndarray:
    """(64, 64): a Gaussian of four pixels along one side, normalized at its ends."""
    distance = np.arange(THUMB_PX)[:, None] - np.arange(THUMB_PX)
    weights = np.exp(-0.5 * (distance / 4.0) ** 2)
    return weights / weights.sum(axis=1, keepdims=True)


def _window(borders: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make what resamples a thumbnail's rows and columns to these borders, and where it has some, bool (64, 64)."""
    top, bottom, left, right = borders
    places = (np.arange(THUMB_PX) + 0.5) / THUMB_PX
    inside = [np.abs(low + (high - low) * places - 0.5) <= 0.5 for low, high in ((top, bottom), (left, right))]
    matrices = [_resampling(low, high, THUMB_PX) for low, high in ((top, bottom), (left, right))]
    return matrices[0], matrices[1], np.outer(*inside)


def _align(moving: np.ndarray, fixed: np.ndarray, borders: np.ndarray) -> np.ndarray:
    """The borders with which ``moving`` fits ``fixed`` best up to brightness and contrast, by Gauss-Newton steps: of
    those that it comes through, the best.

    Source: B. Lucas, T. Kanade, "An Iterative Image Registration Technique", IJCAI 1981, section 4.3.
    """
    slopes = np.gradient(moving, 1 / THUMB_PX)  # by rows, by columns; a side has the length 1
    centered = (np.arange(THUMB_PX) + 0.5) / THUMB_PX - 0.5
    best, found = -1.0, borders
    for _ in range(_STEPS):
        rows, columns, is_shared = _window(borders)
        shown, target = (rows @ moving @ columns.T)[is_shared], fixed[is_shared]
        fit = _correlation(shown, target)
        if fit > best:
            best, found = fit, borders
        down, across = (rows @ slope @ columns.T for slope in slopes)
        unknown = [down, down * centered[:, None], across, across * centered]
        system = np.stack([*(part[is_shared] for part in unknown), shown, np.ones_like(shown)], axis=1)
        normal = system.T @ system
        solved = np.linalg.solve(normal + 1e-6 * np.trace(normal) * np.eye(6) / 6, system.T @ target)
        shift_y, grow_y, shift_x, grow_x = np.clip(solved[:4] / max(solved[4], 0.2), -CROP, CROP)
        moves = [shift_y - grow_y / 2, shift_y + grow_y / 2, shift_x - grow_x / 2, shift_x + grow_x / 2]
        borders = np.clip(borders + moves, [-_WIDEST, 1 - _WIDEST] * 2, [_WIDEST, 1 + _WIDEST] * 2)
    return found


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Of two arrays of one shape; 0 where one of them is constant."""
    first, second = one - one.mean(), other - other.mean()
    scale = np.sqrt((first * first).sum() * (second * second).sum())
    return float((first * second).sum() / scale) if scale > 0 else 0.0
