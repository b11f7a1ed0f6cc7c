"""``Scene``, the type that every point cloud dataset returns."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

CENTERED = "mean of a scene at the origin"  # coordinate conventions of a dataset
AS_GIVEN = "as given"
IGNORED = -100  # label of a point without a class or instance
#: fields of scenes that have a row for each point, like each of the channels; all others are of the whole scene
POINT_FIELDS = ("xyz", "positions", "rgb", "semantic", "instance")
NORMAL = "normal"  # the channel with three columns, which is rotated with the points


class Scene(NamedTuple):
    """One room or scan; ``make_scene`` creates it. The arrays may be read-only views of a file: copy before modifying.

    Attributes:
        xyz: float32 (points, 3), meters, z up.
        rgb: uint8 (points, 3).
        semantic: int16 (points,), class number, -100 for none.
        instance: int16 (points,), int32 for numbers beyond 32,767: object number from 0 within the scene, -100 for
            none.
        name: name of the scene, such as "scene0000_00".
        offset: meters, float64 each: xyz plus this are the coordinates of the source, which may be too far from the
            origin for float32.
        channels: other values of the points in the source, by name: float32 (points, 3) for ``NORMAL``, x, y and z of
            a unit vector, (points, 1) for all others. Not to be modified.
        skipped_rows: rows of the source without finite coordinates, ascending; the scene has no points for them.
        floor: z from which heights are measured, meters: the lowest point before others were removed. None: the lowest
            of these points.
    """

    xyz: np.ndarray
    rgb: np.ndarray
    semantic: np.ndarray
    instance: np.ndarray
    name: str
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    channels: Mapping[str, np.ndarray] = {}
    skipped_rows: Sequence[int] | np.ndarray = ()
    floor: float | None = None

    def to_source_rows(self, values: np.ndarray, fill_value: float = IGNORED) -> np.ndarray:
        """Return values (points, ...) by the rows of the source, with ``fill_value`` for the skipped rows."""
        places = np.array(self.skipped_rows, np.int64) - np.arange(len(self.skipped_rows))
        return np.insert(values, places, fill_value, axis=0) if len(places) else values


def channel_width(name: str) -> int:
    """Return the number of columns of a channel."""
    return 3 if name == NORMAL else 1


class VoxelizedScene(NamedTuple):
    """A scene with voxel coordinates in addition to its positions: only the former are distorted and moved."""

    xyz: np.ndarray  # float64 (n, 3), in voxels: modified by the steps after ``VoxelPlacement``
    positions: np.ndarray  # float32 (n, 3), meters
    rgb: np.ndarray  # float32 (n, 3), in the requested range
    semantic: np.ndarray  # semantic, instance, name, offset, channels: as in ``Scene``; ``instance`` in int32
    instance: np.ndarray
    name: str
    offset: tuple[float, float, float]
    channels: Mapping[str, np.ndarray]
    floor: float | None = None  # of the positions


def find_floor(scene: Scene | VoxelizedScene) -> float:
    """Return the z from which the heights of a scene are measured, meters; 0 without points."""
    if scene.floor is not None:
        return scene.floor
    z = (scene.positions if isinstance(scene, VoxelizedScene) else scene.xyz)[:, 2]
    return float(z.min()) if len(z) else 0.0


def find_middle(scene: Scene | VoxelizedScene) -> np.ndarray:
    """Return the center of the scene's bounding box on its floor, float32 (3,)."""
    if not len(scene.xyz):
        return np.zeros(3, np.float32)
    x, y = (np.ascontiguousarray(scene.xyz[:, axis]) for axis in range(2))  # many times faster than along rows
    middle = ((float(column.min()) + float(column.max())) / 2 for column in (x, y))
    return np.array([*middle, find_floor(scene)], np.float32)
