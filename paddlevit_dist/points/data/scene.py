"""What every dataset of point clouds hands out."""

from __future__ import annotations

from typing import NamedTuple, Tuple

import numpy as np

CENTRED = "mean of a scene at the origin"  # what the coordinates of a dataset may be
AS_GIVEN = "as given"
IGNORED = -100  # label of a point without a class, and of one that belongs to no instance


class Scene(NamedTuple):
    """One room or scan. The arrays may be views of a file and read-only: copy what is to be changed.

    Attributes:
        xyz: float32 (points, 3), metres, z up.
        rgb: uint8 (points, 3).
        semantic: int16 (points,), class number, -100 where there is none.
        instance: int16 (points,), number of the object from 0 within the scene, -100 where there is none.
        name: of the scene, such as "scene0000_00".
        offset: metres, float64 each: xyz plus this are the coordinates of the source, which may lie too far from the
            origin for float32.
    """

    xyz: np.ndarray
    rgb: np.ndarray
    semantic: np.ndarray
    instance: np.ndarray
    name: str
    offset: Tuple[float, float, float] = (0.0, 0.0, 0.0)
