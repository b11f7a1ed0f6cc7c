"""From the coordinates of raw scenes to those of a store: float32 meters around the origin, plus an offset.

Networks that take positions (PointGroup) must see every scene around the same place, whatever its source,
and float32 resolves millimeters only near the origin: at a UTM northing of 5,400 km its step is 0.5 m.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...runtime.errors import UserError
from ..data.scene_store import SceneHeader

_FAR_M, _FAR_MM = 8192.0, 8192e3  # from here on float32 steps are about 1 mm
_COARSE_M = 0.002
_MOST_M, _STRAY_SHARE = 1000.0, 0.01  # points are stray if fewer than this fraction, and the others are closer together


class StoredPoints(NamedTuple):
    """Points as kept in a store.

    Attributes:
        xyz: float32 (points, 3), meters.
        offset: what was subtracted.
    """

    xyz: np.ndarray
    offset: tuple[float, float, float]


def center(path: str, xyz: np.ndarray) -> StoredPoints:
    """Points around their mean, computed and subtracted in float64.

    Args:
        xyz: float (points, 3), at least one point.

    Raises:
        UserError: the centered points are so far apart that float32 would lose a millimeter; in the unit of
            millimeters, if their heights say that it is.
    """
    first = xyz[0].astype(np.float64)
    placed = _around(path, xyz - first)  # near the origin, sums and means lose no precision
    return placed._replace(offset=tuple(float(length) for length in first + placed.offset))


def center_as_the_original(path: str, xyz: np.ndarray) -> StoredPoints:
    """Points around their mean, both in the precision of the file, summed sequentially as in PointGroup's preparation:
    the mean of float32 coordinates is up to a millimeter off, and so are the positions that its networks have learned.

    Source: the published program of L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658, prepare_data_inst.py.
    """
    return _around(path, np.ascontiguousarray(xyz))


def as_given(path: str, xyz: np.ndarray) -> StoredPoints:
    """Points unchanged, or centered if float32 would lose a millimeter."""
    if np.abs(xyz).max() >= _FAR_M:
        return center(path, xyz)
    return StoredPoints(xyz.astype(np.float32), (0.0, 0.0, 0.0))


def _around(path: str, xyz: np.ndarray) -> StoredPoints:
    mean = xyz.mean(axis=0)  # of C-contiguous rows: numpy sums them sequentially
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        moved = (xyz - mean).astype(np.float32)
    farthest = np.abs(moved).max()  # or NaN
    if not farthest < _FAR_M and not (farthest < _FAR_MM and _is_in_millimeters(xyz)):
        raise UserError(f"{path}{_too_far(xyz)}")
    return StoredPoints(moved, tuple(float(length) for length in mean))


def _is_in_millimeters(xyz: np.ndarray) -> bool:
    """Whether points but for stray ones are so far above one another that the unit cannot be the meter."""
    low, high = np.percentile(xyz[:, 2], (1, 99))
    return bool(high - low >= _MOST_M)


def _too_far(xyz: np.ndarray) -> str:
    """Why points reach ``_FAR_M`` from their mean: a few stray ones, or a wrong unit."""
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.abs(xyz - np.median(xyz, axis=0)).max(axis=1)  # (points,), along the worst axis
    distance = np.nan_to_num(distance, nan=np.inf)
    farthest = int(distance.argmax())
    length = f"{distance[farthest]:,.0f} m" if distance[farthest] < 1e9 else f"{distance[farthest]:.3g} m"
    limit = f"from {_FAR_M:,.0f} m on 32-bit floats lose a millimeter"
    if (distance >= _MOST_M).mean() < _STRAY_SHARE:
        return f": point {farthest} lies {length} from the others, and {limit}: remove stray points"
    return (
        f" reaches {length} from its middle, and {limit}: if it is in millimeters, export it in meters; else cut it "
        "into smaller scenes, or remove stray points"
    )


def coarse_steps(path: str, xyz: np.ndarray) -> list[str]:
    """A warning if the source's own coordinates are coarse: float32 far from the origin."""
    if xyz.dtype != np.float32:
        return []
    farthest = np.abs(xyz).max()
    step = float(np.spacing(farthest))
    if step < _COARSE_M:
        return []
    return [
        f"{path} stores x, y and z up to {farthest:,.0f} m as 32-bit floats, in steps of {step:g} m: export it again "
        "with 64-bit coordinates (double), or shifted to the origin"
    ]


def remarks_on(kind: str, names: Sequence[str], headers: Sequence[SceneHeader]) -> list[str]:
    """Warnings on scenes whose unit or origin does not seem to be what networks expect."""
    lines = []
    large = [pair for pair in zip(names, headers) if pair[1].looks_too_large]
    if large:
        name, header = large[0]
        lines.append(
            f"{len(large)} of {len(names)} scenes look as if they were in millimeters or centimeters ({name} spans "
            f"{header.extent:,.0f} m and is {header.height:,.0f} m high, with {header.num_points:,} points); if they "
            "are, train and predict with DATA.UNIT_M 0.001 or 0.01; if a few stray points are so far away, remove them"
        )
    shifted = [pair for pair in zip(names, headers) if kind == "pth" and not pair[1].is_centered]
    if shifted:
        name, header = shifted[0]
        lines.append(
            f"{len(shifted)} of {len(names)} scenes do not lie around the origin, where PointGroup's preparation puts "
            f"them ({name} has x from {header.low[0]:.2f} to {header.high[0]:.2f} m); they are kept as they are: "
            "networks that are fed positions see others than in centered scenes"
        )
    return lines
