"""Conversion of raw coordinates to a store's coordinates: float32 meters around the origin, plus an offset.

Networks that use positions (PointGroup) must see every scene around the same location, from any source, and float32
resolves millimeters only near the origin: at a UTM northing of 5,400 km its step is 0.5 m.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ..data.scene_store import SceneHeader
from ..data.scenes import describe_lacking

_FAR_M, _FAR_MM = 8192.0, 8192e3  # from this distance on, float32 steps are about 1 mm
_COARSE_M = 0.002
_MAX_EXTENT_M, _STRAY_SHARE = 1000.0, 0.01  # points beyond are stray if fewer than this fraction


class StoredPoints(NamedTuple):
    """Points in the coordinates of a store."""

    xyz: np.ndarray  # float32 (points, 3), meters
    offset: tuple[float, float, float]  # the vector that was subtracted


def center(path: str, xyz: np.ndarray) -> StoredPoints:
    """Center points (points >= 1, 3) on their mean, computed and subtracted in float64.

    UserError if the centered points are so far apart that float32 would lose a millimeter. The limit is 1,000 times as
    high if their heights indicate that the unit is millimeters.
    """
    first = xyz[0].astype(np.float64)
    with np.errstate(over="ignore"):  # reported there
        shifted = xyz - first
    centered = _subtract_mean(path, shifted)  # near the origin, sums and means lose no precision
    x, y, z = (float(length) for length in first + centered.offset)
    return centered._replace(offset=(x, y, z))


def center_like_pointgroup(path: str, xyz: np.ndarray) -> StoredPoints:
    """Center points on their mean, in the precision of the file, summed sequentially like PointGroup's preparation.

    The mean of float32 coordinates is up to a millimeter off, and so are the positions that PointGroup's networks were
    trained on. Source: the published program of L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658,
    prepare_data_inst.py.
    """
    return _subtract_mean(path, np.ascontiguousarray(xyz))


def as_given(path: str, xyz: np.ndarray) -> StoredPoints:
    """Return points unchanged, or centered if float32 would lose a millimeter."""
    if np.abs(xyz).max() >= _FAR_M:
        return center(path, xyz)
    return StoredPoints(xyz.astype(np.float32), (0.0, 0.0, 0.0))


def _subtract_mean(path: str, xyz: np.ndarray) -> StoredPoints:
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        mean = xyz.mean(axis=0)  # numpy sums C-contiguous rows sequentially
        shifted = (xyz - mean).astype(np.float32)
    farthest = np.abs(shifted).max()  # possibly NaN
    if not farthest < _FAR_M and not (farthest < _FAR_MM and _is_in_millimeters(xyz)):
        raise UserError(f"{path}{_explain_distance(xyz)}")
    x, y, z = (float(length) for length in mean)
    return StoredPoints(shifted, (x, y, z))


def _is_in_millimeters(xyz: np.ndarray) -> bool:
    """Return True if points, except stray ones, span such a height that the unit cannot be the meter."""
    low, high = np.percentile(xyz[:, 2], (1, 99))
    return bool(high - low >= _MAX_EXTENT_M)


def _explain_distance(xyz: np.ndarray) -> str:
    """Explain why points reach ``_FAR_M`` from their mean: a few stray points, or a wrong unit."""
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.abs(xyz - np.median(xyz, axis=0)).max(axis=1)  # (points,), along the axis with the largest one
    distance = np.nan_to_num(distance, nan=np.inf)
    farthest = int(distance.argmax())
    length = f"{distance[farthest]:,.0f} m" if distance[farthest] < 1e9 else f"{distance[farthest]:.3g} m"
    limit = f"from {_FAR_M:,.0f} m on 32-bit floats lose a millimeter"
    if (distance >= _MAX_EXTENT_M).mean() < _STRAY_SHARE:
        return f": point {farthest} is {length} from the others, and {limit}: remove stray points"
    return (
        f" reaches {length} from its center, and {limit}: if it is in millimeters, export it in meters; else split it "
        "into smaller scenes, or remove stray points"
    )


def check_resolution(path: str, xyz: np.ndarray) -> list[str]:
    """Return a warning if the source's coordinates have a coarse resolution: float32 far from the origin."""
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


def find_remarks(kind: str, names: Sequence[str], headers: Sequence[SceneHeader]) -> list[str]:
    """Return warnings about scenes whose unit, origin or channels differ from what networks expect."""
    lacking = describe_lacking(names, headers)
    lines = [f"{where} has no {channel}, which other scenes have" for channel, where in lacking.items()]
    large = [pair for pair in zip(names, headers) if pair[1].looks_too_large]
    if large:
        name, header = large[0]
        lines.append(
            f"{len(large)} of {len(names)} scenes seem to be in millimeters or centimeters ({name} spans "
            f"{header.extent:,.0f} m and is {header.height:,.0f} m high, with {header.num_points:,} points); if they "
            "are, train and predict with DATA.UNIT_M 0.001 or 0.01; if a few stray points are so far away, remove them"
        )
    shifted = [pair for pair in zip(names, headers) if kind == "pth" and not pair[1].is_centered]
    if shifted:
        name, header = shifted[0]
        lines.append(
            f"{len(shifted)} of {len(names)} scenes are not centered on the origin, where PointGroup's preparation "
            f"puts them ({name} has x from {header.low[0]:.2f} to {header.high[0]:.2f} m); they stay unchanged: "
            "networks that use positions get other values than in centered scenes"
        )
    return lines
