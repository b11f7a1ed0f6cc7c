"""The value that every point cloud dataset returns."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

CENTERED = "mean of a scene at the origin"  # possible coordinates of a dataset
AS_GIVEN = "as given"
IGNORED = -100  # label of a point without a class or instance
NORMAL = "normal"  # the channel of three columns, which turns with the points


class Scene(NamedTuple):
    """One room or scan. The arrays may be read-only views of a file: copy before modifying.

    Attributes:
        xyz: float32 (points, 3), meters, z up.
        rgb: uint8 (points, 3).
        semantic: int16 (points,), class number, -100 for none.
        instance: int16 (points,), object number from 0 within the scene, -100 for none.
        name: of the scene, such as "scene0000_00".
        offset: meters, float64 each: xyz plus this are the coordinates of the source, which may lie too far from the
            origin for float32.
        channels: whatever else its source has of the points, by name: float32 (points, 3) for ``NORMAL``, x, y and z of
            a unit vector, (points, 1) for all others. Not to be modified.
        left_out: rows of its source without finite coordinates, ascending, which are no points here.
    """

    xyz: np.ndarray
    rgb: np.ndarray
    semantic: np.ndarray
    instance: np.ndarray
    name: str
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    channels: Mapping[str, np.ndarray] = {}
    left_out: tuple[int, ...] = ()

    def as_source(self, values: np.ndarray, nothing: int = IGNORED) -> np.ndarray:
        """Values (points, ...) by the rows of the source, with ``nothing`` for those left out."""
        places = np.array(self.left_out, np.int64) - np.arange(len(self.left_out))
        return np.insert(values, places, nothing, axis=0) if len(places) else values


def channel_width(name: str) -> int:
    """Columns of a channel."""
    return 3 if name == NORMAL else 1
