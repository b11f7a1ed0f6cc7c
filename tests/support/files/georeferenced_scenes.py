"""A room near the origin or far from it, as a PLY file or a store."""

import numpy as np

from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.prepare.listing import RawScene

UTM = (500000.123, 5400000.456, 312.5)


def room(points=4000, seed=0):
    """float32 (points, 3) on the floor and two walls of a room with a corner at the origin, and colors."""
    generator = np.random.default_rng(seed)
    xyz = generator.uniform(0, (5.0, 4.0, 2.5), (points, 3))
    xyz[np.arange(points), np.arange(points) % 3] = 0.0
    xyz += generator.normal(0, 0.005, xyz.shape)
    return xyz.astype(np.float32), generator.integers(0, 256, (points, 3), dtype=np.uint8)


def write_ply(path, xyz, rgb, **more):
    columns = {**dict(zip("xyz", xyz.T)), **dict(zip(("red", "green", "blue"), rgb.T))}
    write_points(path, {**columns, "label": np.zeros(len(xyz), np.uint8), **more})
    return RawScene(path.stem, (str(path),), True)


def stray(value, number=1, scale=1.0, points=1000, height=1.0):
    xyz = room(points)[0].astype(np.float64) * scale * [1, 1, height]
    xyz[17 : 17 + number, 0] = value
    return xyz
