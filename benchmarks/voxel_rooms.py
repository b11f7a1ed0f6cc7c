"""Voxels of a synthetic room for benchmarks: floor, three walls and boxes, about 12 of 27 neighbors present."""

import numpy as np

_POINTS_PER_VOXEL_FACE = 2.7
_NOISE_VOXELS = 0.2
_BOXES = 8
_VOXELS_PER_SQUARE = 4.2  # of a room with this furniture, by the square of its side; a little less than there are


def room(num_voxels: int, seed: int = 0) -> np.ndarray:
    """Coordinates int32 (num_voxels, 4) with scene number 0, in lexicographic order.

    Surfaces are sampled with noise and stand at an angle to the grid, as those of a scan do.
    """
    generator = np.random.default_rng(seed)
    side = (num_voxels / _VOXELS_PER_SQUARE) ** 0.5 * 1.15
    height = 0.6 * side
    faces = [
        _face(generator, 2, (0, 0, 0), (side, side, 0)),
        _face(generator, 0, (0, 0, 0), (0, side, height)),
        _face(generator, 1, (0, 0, 0), (side, 0, height)),
        _face(generator, 0, (side, 0, 0), (side, side, height)),
    ]
    for _ in range(_BOXES):
        faces += _box(generator, side)
    points = np.concatenate(faces)  # (P, 3) in voxels
    cosine, sine = np.cos(0.5), np.sin(0.5)
    points[:, :2] = points[:, :2] @ np.array([[cosine, sine], [-sine, cosine]])
    voxels = np.unique(np.floor(points).astype(np.int32), axis=0)
    if len(voxels) < num_voxels:
        raise SystemExit(f"the room has only {len(voxels)} of {num_voxels} voxels")
    return np.insert(voxels[:num_voxels], 0, 0, axis=1)  # what lies beyond one plane is left away


def _box(generator: np.random.Generator, side: float) -> list[np.ndarray]:
    x, y = generator.uniform(0.1, 0.7, 2) * side
    width, depth, height = generator.uniform(0.1, 0.25, 3) * side
    return [
        _face(generator, 2, (x, y, height), (x + width, y + depth, height)),
        _face(generator, 0, (x, y, 0), (x, y + depth, height)),
        _face(generator, 0, (x + width, y, 0), (x + width, y + depth, height)),
        _face(generator, 1, (x, y, 0), (x + width, y, height)),
        _face(generator, 1, (x, y + depth, 0), (x + width, y + depth, height)),
    ]


def _face(generator: np.random.Generator, axis: int, low: tuple, high: tuple) -> np.ndarray:
    low, high = np.array(low, float), np.array(high, float)
    area = np.prod(np.delete(high - low, axis))
    points = generator.uniform(low, np.where(high > low, high, low + 1e-9), (int(area * _POINTS_PER_VOXEL_FACE), 3))
    points[:, axis] = low[axis] + 0.5 + generator.normal(0.0, _NOISE_VOXELS, len(points))
    return points
