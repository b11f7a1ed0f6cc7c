"""Draw the first view of a point set as an image: for paper, and for browsers in which the viewer does not run."""

import math
import zlib
from typing import Any

import numpy as np

from ...core.runtime.thumbnails import encode
from .store import MOST

_WIDTH, _HEIGHT = 800, 500  # pixels
_MOST_POINTS = 60_000  # more would hide one another
_YAW, _TILT, _DISTANCE = 0.7, 0.8, 1.3  # as in viewer.js
_BACKGROUND = (32, 38, 45)
_STEPS = 65_535


def draw_still(points: dict[str, Any]) -> dict[str, Any]:
    """Return the image of a stored point set with its first layer, for its macro in ``parts.html.j2``."""
    xyz, colors = unpack(points["content"], int(points["number"]))
    step = -(-len(xyz) // _MOST_POINTS)
    suffix, content, size = encode(project(xyz[::step], colors[::step]), _WIDTH)
    return {"image": content, "suffix": suffix, "size": size, "caption": [points["title"], points["layers"][0]]}


def unpack(content: bytes, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions from -0.5 to 0.5, float32 (points, 3), and the first layer's colors, uint8 (points, 3).

    See ``store`` for the format. Raises ValueError if the content has fewer points.
    """
    if not 0 < number <= MOST:
        raise ValueError(f"a set of {number} points")
    planes = np.frombuffer(zlib.decompressobj().decompress(content, 9 * number), np.uint8).reshape(9, number)
    differences = planes[0:6:2].astype(np.int64) + 256 * planes[1:6:2].astype(np.int64)
    positions = (np.cumsum(differences, axis=1) & _STEPS) / _STEPS - 0.5
    return positions.T.astype(np.float32), planes[6:9].T


def project(xyz: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Draw points as squares in perspective, the nearest in front; uint8 (height, width, 3)."""
    c, s, a, b = math.cos(_YAW), math.sin(_YAW), math.cos(_TILT), math.sin(_TILT)
    x, y, z = xyz.T
    depth = _DISTANCE - s * a * x + c * a * y - b * z
    order = np.argsort(-depth, kind="stable")  # later ones cover earlier ones
    order = order[depth[order] > 0.01]
    x, y, z, depth = x[order], y[order], z[order], depth[order]
    side = min(max(1100 / math.sqrt(len(xyz)), 1.2), 12) * _WIDTH / 480
    size = np.clip(np.rint(side / depth), 1, 24).astype(np.int64)
    zoom = 0.8 * _HEIGHT / depth
    left = np.rint(_WIDTH / 2 + (c * x + s * y) * zoom - size / 2).astype(np.int64)
    top = np.rint(_HEIGHT / 2 - (c * b * y - s * b * x + a * z) * zoom - size / 2).astype(np.int64)
    owner = np.repeat(np.arange(len(order)), size**2)  # of each pixel of each square
    place = np.arange(len(owner)) - np.repeat(np.cumsum(size**2) - size**2, size**2)
    row, column = top[owner] + place // size[owner], left[owner] + place % size[owner]
    is_inside = (row >= 0) & (row < _HEIGHT) & (column >= 0) & (column < _WIDTH)
    image = np.full((_HEIGHT, _WIDTH, 3), _BACKGROUND, np.uint8)
    image[row[is_inside], column[is_inside]] = colors[order][owner[is_inside]]
    return image
