"""Furnished rooms generated from a seed, so that a first training run on point clouds needs no download.

Furniture is made of boxes along the axes; its classes differ in shape and location, not in color. The rooms of a seed
are part of every result obtained with it: if you change them, raise ``GENERATOR_VERSION`` and measure again.
"""

import colorsys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.tasks.dataset import require_split
from ..settings import PointSettings
from .scannet_classes import CLASS_NAMES
from .scene import IGNORED, Scene
from .scenes import SceneDataset

GENERATOR_VERSION = 2

_SPLITS = {"train": 0, "val": 1}  # part of each room's seed: the splits share no rooms
_SPACING_RANGE_M = (0.01, 0.2)
_PRESENCE_PROBABILITY = 0.9  # that an item of the list is in the room, if it fits
_MAX_PLACEMENTS = 40  # attempts to find space for an item
_GAP_M, _FRONT_M = 0.08, 0.25  # between things, and in front of furniture at a wall
_HIDDEN, _MISSED = 0.8, 0.85  # fraction of points that a scanner misses behind furniture, and in blind spots
_NOISE_M, _COLOR_NOISE = 0.006, 7.0  # standard deviations of a coordinate, and of a color out of 255

Range = tuple[float, ...]  # low and high
Boxes = tuple[tuple[float, ...], ...]  # low and high of width, depth and height, each as a fraction of the whole


class FurnitureSpec(NamedTuple):
    """Geometry of the things of one class."""

    width: Range  # width, depth, height: meters, drawn between two numbers; the back is at depth 0
    depth: Range
    height: Range
    boxes: Boxes  # parts of the thing
    lowest: Range = (0.0, 0.0)  # meters from the floor to its lower end
    is_free: bool = False  # placed anywhere; else with its back at a wall


def _parse_thing(line: str) -> tuple[str, FurnitureSpec]:
    """Parse a line of ``furniture.txt``."""
    name, *ranges, place, boxes = line.split(" | ")
    width, depth, height, lowest = (tuple(map(float, limits.split())) for limits in ranges)
    parts = tuple(tuple(map(float, box.split())) for box in boxes.split("; "))
    return name, FurnitureSpec(width, depth, height, parts, lowest, place == "free")


_LINES = Path(__file__).with_name("furniture.txt").read_text(encoding="ascii").splitlines()
FURNITURE = dict(_parse_thing(line) for line in _LINES if not line.startswith("#"))
_CLUTTER = FURNITURE.pop("clutter")  # has no label

# Size of the floor in x and y, meters, and the furniture of the room, the largest first.
_ROOMS = (
    ((3.2, 4.4), (3.0, 4.0), "bed,desk,cabinet,cabinet,bookshelf,window,curtain,otherfurniture,chair,picture,picture"),
    ((2.3, 3.1), (2.2, 3.0), "bathtub,toilet,sink,shower_curtain,cabinet,window,picture"),
    ((3.2, 4.6), (3.0, 4.0), "counter,refrigerator,sink,cabinet,window,table,chair,chair,chair,picture"),
    ((3.6, 5.0), (3.4, 4.4), "sofa,sofa,bookshelf,cabinet,curtain,window,table,otherfurniture,chair,picture,picture"),
    ((3.2, 4.6), (3.0, 4.2), "desk,desk,bookshelf,bookshelf,cabinet,window,curtain,refrigerator,chair,chair,picture"),
)


def generate_room(index: int, seed: tuple[int, ...], spacing_m: float, name: str) -> Scene:
    """Generate room ``index`` for ``seed`` as a scanner would record it, points about ``spacing_m`` apart.

    Its kind (bedroom, bathroom, kitchen, living room, office) is ``index`` modulo five. Furniture has instances from 0
    without gaps; floor and walls have none, as in PointGroup's ScanNet; unlabeled things have neither class nor
    instance.
    """
    generator = np.random.default_rng([GENERATOR_VERSION, *seed, index])
    x_range, y_range, furniture_names = _ROOMS[index % len(_ROOMS)]
    size = np.array([generator.uniform(*limits) for limits in (x_range, y_range, (2.25, 2.5))])
    things = _build_structure(size)
    names: list[str | None] = ["floor", *["wall"] * 4]
    first = len(things)  # index of the first furniture
    for item in ["door", *furniture_names.split(","), None, None]:
        class_name = None if item is None else item.replace("_", " ")
        thing_boxes = _place(_CLUTTER if class_name is None else FURNITURE[class_name], size, things[first:], generator)
        if thing_boxes is not None and generator.random() < _PRESENCE_PROBABILITY:
            names.append(class_name)
            things.append(thing_boxes)
    boxes = np.concatenate(things)  # (boxes, 2, 3)
    owner = np.repeat(np.arange(len(things)), [len(thing) for thing in things])  # (boxes,)
    xyz, box, axis = _scatter(boxes, spacing_m, generator)
    visible = _find_visible(xyz, owner[box] < first, things[first:], size, generator)
    xyz, box, axis = xyz[visible], box[visible], axis[visible]
    rgb = _draw_colors(owner, box, axis, generator)
    xyz += generator.normal(0.0, _NOISE_M, xyz.shape)
    classes = np.array([IGNORED if label is None else CLASS_NAMES.index(label) for label in names], np.int16)
    numbers = np.arange(len(things))
    is_instance = np.isin(numbers, owner[box]) & (numbers >= first) & (classes >= 0)
    instances = np.where(is_instance, np.cumsum(is_instance) - 1, IGNORED).astype(np.int16)
    semantic, instance = classes[owner[box]], instances[owner[box]]
    return Scene(xyz.astype(np.float32), rgb, semantic, instance, name)


def _build_structure(size: np.ndarray) -> list[np.ndarray]:
    """Return floor and walls, each a box without thickness, float64 (1, 2, 3)."""
    x, y, z = size
    corners = (((0, 0, 0), (x, y, 0)), ((0, 0, 0), (x, 0, z)), ((x, 0, 0), (x, y, z)))
    return [np.array([pair], float) for pair in (*corners, ((0, y, 0), (x, y, z)), ((0, 0, 0), (0, y, z)))]


def _place(
    furniture: FurnitureSpec, size: np.ndarray, others: list[np.ndarray], generator: np.random.Generator
) -> np.ndarray | None:
    """Place a thing where it fits; return the corners of its boxes, float64 (boxes, 2, 3), or None."""
    size_m = np.array([generator.uniform(*limits) for limits in furniture[:3]])
    lowest = generator.uniform(*furniture.lowest)
    parts = np.array(furniture.boxes, float).reshape(-1, 3, 2).transpose(0, 2, 1) * size_m  # (boxes, 2, 3)
    parts += [-size_m[0] / 2, 0.0, lowest]
    around = [_extent(other) for other in others]
    for _ in range(_MAX_PLACEMENTS):
        turns = int(generator.integers(4))
        share = generator.random(2)
        if furniture.is_free:
            foot = share * size[:2]
        else:
            position = share[0] * size[turns % 2]
            foot = np.array(
                [(position, 0.02), (size[0] - 0.02, position), (position, size[1] - 0.02), (0.02, position)][turns]
            )
        thing = _rotate(parts, turns) + [*foot, 0.0]
        low, high = _extent(thing)
        if (low[:2] < 0).any() or (high > size).any():
            continue
        front = 0.0 if furniture.is_free or furniture.lowest[1] else _FRONT_M
        footprint = _extent(_rotate(np.array([parts.min(axis=(0, 1)), parts.max(axis=(0, 1)) + [0, front, 0]]), turns))
        low, high = footprint[0] + [*foot, 0.0] - _GAP_M, footprint[1] + [*foot, 0.0] + _GAP_M
        if not any((low < other[1]).all() and (other[0] < high).all() for other in around):
            return thing
    return None


def _rotate(boxes: np.ndarray, turns: int) -> np.ndarray:
    """Rotate boxes (..., 2, 3) by quarter turns about z, from x toward y."""
    for _ in range(turns):
        boxes = np.stack([-boxes[..., 1], boxes[..., 0], boxes[..., 2]], axis=-1)
    return np.sort(boxes, axis=-2)


def _extent(boxes: np.ndarray) -> np.ndarray:
    """Return the low and high corner of the bounding box of all boxes, (2, 3)."""
    corners = boxes.reshape(-1, 3)
    return np.stack([corners.min(axis=0), corners.max(axis=0)])


def _scatter(
    boxes: np.ndarray, spacing_m: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sample a random point in each cell of the faces: xyz float64 (points, 3), its box and its face's axis, int64."""
    low, extent = boxes[:, 0], boxes[:, 1] - boxes[:, 0]
    faces = [
        (row, dimension, end)
        for row in range(len(boxes))
        for dimension in range(3)
        for end in range(2 if extent[row, dimension] else 1)  # the two faces of a box without thickness are one
    ]
    face_box, face_axis, face_end = np.array(faces).T
    others = np.array([(1, 2), (0, 2), (0, 1)])[face_axis]  # (faces, 2)
    lengths = np.take_along_axis(extent[face_box], others, axis=1)
    # A strip narrower than the spacing gets a point with a probability proportional to its width.
    cells = np.floor(lengths / spacing_m + generator.random(lengths.shape)).astype(np.int64)
    number = cells.prod(axis=1)
    face = np.repeat(np.arange(len(faces)), number)
    place = np.arange(len(face)) - np.repeat(np.cumsum(number) - number, number)
    grid = np.stack(np.divmod(place, cells[face, 1]), axis=1)
    shares = (grid + generator.random(grid.shape)) / cells[face]
    box, axis = face_box[face], face_axis[face]
    xyz, rows = low[box], np.arange(len(face))
    xyz[rows, axis] += face_end[face] * extent[box, axis]
    for column in range(2):
        xyz[rows, others[face, column]] += shares[:, column] * lengths[face, column]
    return xyz, box, axis


def _find_visible(
    xyz: np.ndarray,
    is_structure: np.ndarray,
    things: list[np.ndarray],
    size: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """Return which points a scanner sees: few of floor and walls behind things, and few in random blind spots."""
    behind, missed = np.zeros(len(xyz), bool), np.zeros(len(xyz), bool)
    for low, high in map(_extent, things):
        behind |= ((xyz >= low - 0.05) & (xyz <= high + 0.05)).all(axis=1)
    for _ in range(int(generator.integers(2, 6))):
        center = generator.uniform((0.0, 0.0, 0.0), (*size[:2], 2.0))
        missed |= ((xyz - center) ** 2).sum(axis=1) < generator.uniform(0.15, 0.4) ** 2
    chance = generator.random((2, len(xyz)))
    return ~(behind & is_structure & (chance[0] < _HIDDEN)) & ~(missed & (chance[1] < _MISSED))


def _draw_colors(owner: np.ndarray, box: np.ndarray, axis: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return uint8 (points, 3): a color for each thing, a shade of it for each box, directional light and noise.

    ``owner`` is the thing of each box, ``box`` the box of each point, and ``axis`` the axis perpendicular to its face.
    """
    draws = generator.random((int(owner[-1]) + 1, 3))
    main = np.array([colorsys.hsv_to_rgb(hue, 0.7 * gray**2, 0.15 + 0.8 * value) for hue, gray, value in draws])
    shade = generator.uniform(0.7, 1.2, len(owner))
    light = generator.normal(size=3)
    light = 0.82 + 0.18 * np.abs(light) / np.linalg.norm(light)  # (axes,)
    values = 255.0 * main[owner[box]] * (shade[box] * light[axis])[:, None]
    return np.clip(values + generator.normal(0.0, _COLOR_NOISE, values.shape), 0.0, 255.0).astype(np.uint8)


class SyntheticRooms(SceneDataset):
    """Bedrooms, bathrooms, kitchens, living rooms and offices with ScanNet's twenty classes, generated on read.

    About 50,000 points per room at the default spacing, in about 30 ms. A room depends only on ``seed``, split and
    index; requesting more rooms appends new ones.
    """

    class_names = list(CLASS_NAMES)
    num_classes = len(CLASS_NAMES)
    fixed_classes = CLASS_NAMES
    channels = ()

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path | None,
        num_train: int = 400,
        num_val: int = 40,
        spacing_m: float = 0.04,
        seed: int = 0,
    ) -> None:
        """Serve ``split``, "train" or "val"; rooms are synthetic, so both paths are ignored.

        ``spacing_m`` is the mean distance between neighboring points, 0.01 to 0.2; the number of points scales with its
        inverse square.
        """
        require_split(split, tuple(_SPLITS), "synthetic_rooms")
        low, high = _SPACING_RANGE_M
        if not low <= spacing_m <= high:
            raise UserError(f"spacing of synthetic_rooms is {spacing_m} m; expected {low} to {high}")
        self.split, self.spacing_m, self.seed = split, spacing_m, seed
        self._number = num_train if split == "train" else num_val

    @classmethod
    def open(cls, config: PointSettings, split: str, cache_folder: Path) -> "SyntheticRooms":
        """Return the rooms of ``split`` with the settings of POINTS.ROOMS."""
        rooms = config.POINTS.ROOMS
        return cls(config.DATA.DATA_PATH, split, cache_folder, rooms.TRAIN, rooms.VAL, rooms.SPACING_M)

    def __len__(self) -> int:
        return self._number

    def read(self, index: int) -> Scene:
        """Return room ``index``."""
        if not 0 <= index < self._number:
            raise IndexError(f"room {index} is outside 0..{self._number - 1}")
        return generate_room(index, (self.seed, _SPLITS[self.split]), self.spacing_m, f"{self.split}_{index:05d}")

    def first_scenes(self) -> list[Scene]:
        """Return nothing: in generated rooms there is nothing to find."""
        return []

    def describe(self, index: int) -> str:
        """Return the room's name and its seed."""
        return f"synthetic room {self.split}_{index:05d} (seed {self.seed}, generator {GENERATOR_VERSION})"
