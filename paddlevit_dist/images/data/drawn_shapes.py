"""Synthetic images of shapes, so that detection and segmentation can be tried without a download.

They are the same on every machine: NumPy guarantees the raw words of a bit generator only, and libraries differ in the
last bit of a sine. So all numbers are scaled from raw words with integers, and corners are on a grid of 1/16 pixel.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.tasks.dataset import require_split
from ..settings import CATEGORIES, ObjectSettings
from .image_dataset import ImageDataset

_SPLITS = {"train": 0, "val": 1}  # part of each image's seed: the splits share no images
_VERSION = 1  # of the drawing; a new version draws other images from the same numbers

_FINE = 16  # steps of the grid in a pixel
_UNIT = 1024  # corners of a shape of radius 1, and sines, are in this unit
_TURNS = 64  # directions a shape can have
_COSINES = [round(_UNIT * math.cos(2 * math.pi * turn / _TURNS)) for turn in range(_TURNS)]
_ATTEMPTS = 20  # to place a shape without covering the others
_VISIBLE = (3, 4)  # share of a shape's pixels that must stay visible
_CONTRAST = 150  # smallest sum of differences over the channels between a shape and the background
_NOISE = 24  # largest change of a pixel's value

Color = tuple[int, int, int]  # red, green, blue
_Polygon = Sequence[tuple[int, int]]  # convex, corners counter-clockwise where y points up
_BOX: _Polygon = ((-800, -800), (800, -800), (800, 800), (-800, 800))
# Convex parts of each shape that is not round, and how far it may be turned to either side.
_PARTS: dict[str, tuple[list[_Polygon], int]] = {
    "square": ([_BOX], _TURNS // 18),
    "triangle": ([((-887, -512), (887, -512), (0, 1024))], _TURNS),
    "cross": (
        [((-300, -950), (300, -950), (300, 950), (-300, 950)), ((-950, -300), (950, -300), (950, 300), (-950, 300))],
        _TURNS // 18,
    ),
    "bar": ([((-1000, -280), (1000, -280), (1000, 280), (-1000, 280))], _TURNS),
}


class DrawnImages(ImageDataset):
    """Shapes of random colors, sizes and places in front of a noisy background, drawn when they are read.

    An image depends on ``seed``, split, index, ``sides``, ``per_image`` and ``categories`` alone; more images are
    appended at the end.
    """

    #: what is drawn, in messages
    drawn_name = "shapes"

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path | None,
        num_train: int = 2000,
        num_val: int = 200,
        sides: Sequence[int] = (64, 64),
        per_image: Sequence[int] = (1, 4),
        categories: Sequence[str] = CATEGORIES[:3],
        seed: int = 0,
    ) -> None:
        """Draw ``split``, "train" or "val", with shapes of ``categories``; both paths are ignored.

        ``sides`` are smallest and largest height and width of an image in pixels, ``per_image`` fewest and most shapes.
        """
        self.split = require_split(split, tuple(_SPLITS), "of drawn shapes")
        self.categories = list(categories)
        self._number = num_train if split == "train" else num_val
        self._sides, self._per_image, self._seed = tuple(sides), tuple(per_image), seed

    @classmethod
    def open(cls, config: ObjectSettings, split: str, cache_folder: Path) -> Any:
        """Open the split with the keys of DATA.SHAPES."""
        keys = config.DATA.SHAPES
        return cls(
            None, split, cache_folder, keys.TRAIN, keys.VAL, keys.SIDES, keys.OBJECTS_PER_IMAGE, tuple(keys.CATEGORIES)
        )

    def __len__(self) -> int:
        return self._number

    def size(self, index: int) -> tuple[int, int]:
        """Return height and width of image ``index``."""
        draws = PortableRandom(self._derive_seed(index))
        return draws.between(*self._sides), draws.between(*self._sides)

    def describe(self, index: int) -> str:
        """Return the image's number and the seed it is drawn from."""
        return f"synthetic image {self.split}_{index:05d} (seed {self._seed}, drawing {_VERSION})"

    def summary(self, chosen: np.ndarray | None = None) -> str:
        """Describe the images; what is drawn is not counted, since all images would have to be drawn."""
        fewest, most = self._per_image
        objects = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        number = self._number if chosen is None else len(chosen)
        return f"{number:,} drawn images of {objects} {self.drawn_name} each: {', '.join(self.categories)}"

    def draw(self, index: int) -> "SyntheticImage":
        """Draw the shapes of image ``index``."""
        return draw_shapes(self._derive_seed(index), self._sides, self._per_image, self.categories)

    def _derive_seed(self, index: int) -> tuple[int, int, int]:
        if not 0 <= index < self._number:
            raise IndexError(f"image {index} is outside 0..{self._number - 1}")
        return self._seed, _SPLITS[self.split], index


class PortableRandom:
    """Random integers from a seed, the same on every machine and with every version of NumPy."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(list(seed)))

    def below(self, limit: int) -> int:
        """Return an integer from 0 to ``limit - 1``, for limits up to 2**31."""
        return (int(self._bits.random_raw()) >> 33) * limit >> 31

    def between(self, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``."""
        return low + self.below(high - low + 1)

    def bytes(self, number: int) -> np.ndarray:
        """Return random bytes, uint8 (number,)."""
        words = self._bits.random_raw(-(-number // 8)).astype("<u8")
        return words.view(np.uint8)[:number]


class SyntheticImage(NamedTuple):
    """The shapes of an image; later shapes are in front.

    Attributes:
        labels: of each shape, position in the requested categories.
        masks: bool (height, width) of each shape, its visible pixels; they do not overlap.
        colors: red, green and blue of each shape, then of the background's four corners.
        draws: generator of the image's noise.
    """

    height: int
    width: int
    labels: list[int]
    masks: list[np.ndarray]
    colors: list[Color]
    draws: PortableRandom


def draw_shapes(
    seed: Sequence[int], sides: Sequence[int], number: Sequence[int], categories: Sequence[str]
) -> SyntheticImage:
    """Choose and place the shapes of one image.

    ``sides`` are smallest and largest height and width in pixels, ``number`` fewest and most shapes; fewer are drawn if
    there is no room.
    """
    draws = PortableRandom(seed)
    height, width = draws.between(*sides), draws.between(*sides)
    corners = [(draws.between(20, 235), draws.between(20, 235), draws.between(20, 235))]
    corners += [vary_color(draws, corners[0]) for _ in range(3)]
    labels: list[int] = []
    masks: list[np.ndarray] = []
    wholes: list[int] = []  # pixels of each shape before later shapes covered it
    colors = []
    for _ in range(draws.between(*number)):
        label = draws.below(len(categories))
        colors.append(choose_color(draws, corners[0]))
        for _ in range(_ATTEMPTS):
            shape = _place(draws, categories[label], height, width)
            rest = [mask & ~shape for mask in masks]
            if shape.any() and all(_VISIBLE[1] * mask.sum() >= _VISIBLE[0] * all_ for mask, all_ in zip(rest, wholes)):
                labels, masks, wholes = [*labels, label], [*rest, shape], [*wholes, int(shape.sum())]
                break
        else:
            colors.pop()
    return SyntheticImage(height, width, labels, masks, [*colors, *corners], draws)


def render_image(drawn: SyntheticImage) -> np.ndarray:
    """Render the image once, uint8 (height, width, 3): shapes on a smooth background, with noise from ``draws``."""
    height, width = drawn.height, drawn.width
    upper_left, upper_right, lower_left, lower_right = (np.array(rgb, np.int64) for rgb in drawn.colors[-4:])
    down, right = np.arange(height)[:, None, None], np.arange(width)[None, :, None]
    top = upper_left * (width - 1 - right) + upper_right * right  # (1, width, 3)
    bottom = lower_left * (width - 1 - right) + lower_right * right
    pixels = (top * (height - 1 - down) + bottom * down) // ((width - 1) * (height - 1))  # (height, width, 3)
    for mask, color in zip(drawn.masks, drawn.colors):
        pixels[mask] = color
    noise = drawn.draws.bytes(3 * height * width).reshape(height, width, 3).astype(np.int64)
    return np.clip(pixels + noise * (2 * _NOISE + 1) // 256 - _NOISE, 0, 255).astype(np.uint8)


def choose_color(draws: PortableRandom, background: Color) -> Color:
    """Choose a random color that differs from the background's."""
    while True:
        color = draws.below(256), draws.below(256), draws.below(256)
        if sum(abs(channel - other) for channel, other in zip(color, background)) >= _CONTRAST:
            return color


def vary_color(draws: PortableRandom, color: Color) -> Color:
    """Choose a random color near another."""
    red, green, blue = (min(255, max(0, channel + draws.between(-40, 40))) for channel in color)
    return red, green, blue


def _place(draws: PortableRandom, category: str, height: int, width: int) -> np.ndarray:
    """Place a shape of random size, direction and position inside the image: bool (height, width)."""
    shorter = min(height, width)
    radius = draws.between(_FINE * shorter // 9, _FINE * shorter // 4)  # on the fine grid
    y = draws.between(radius, _FINE * height - radius)
    x = draws.between(radius, _FINE * width - radius)
    rows = 2 * _FINE * np.arange(height)[:, None] + _FINE - 2 * y  # pixel centers relative to the shape, in 1/32 pixel
    columns = 2 * _FINE * np.arange(width)[None, :] + _FINE - 2 * x
    if category in ("circle", "ring"):
        distances = rows**2 + columns**2
        inside = distances <= (2 * radius) ** 2
        return inside if category == "circle" else inside & (4 * distances >= (2 * radius) ** 2)
    parts, most = _PARTS[category]
    turn = draws.between(-most, most) % _TURNS
    mask = np.zeros((height, width), bool)
    for part in parts:
        mask |= _fill([_turn(corner, turn, radius) for corner in part], rows, columns)
    return mask


def _turn(corner: tuple[int, int], turn: int, radius: int) -> tuple[int, int]:
    """Return a corner in 1/32 pixel from the shape's middle, rounded down."""
    cosine, sine = _COSINES[turn], _COSINES[(turn - _TURNS // 4) % _TURNS]
    x, y = corner
    return (x * cosine - y * sine) * 2 * radius // _UNIT**2, (x * sine + y * cosine) * 2 * radius // _UNIT**2


def _fill(corners: _Polygon, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return which pixel centers are in a convex polygon, edges included: bool (height, width)."""
    inside = np.ones((len(rows), columns.shape[1]), bool)
    for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]]):
        inside &= (x1 - x0) * (rows - y0) - (y1 - y0) * (columns - x0) >= 0
    return inside
