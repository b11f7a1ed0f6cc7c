"""Solids made up from a seed, so that a first training on shapes needs no download."""

from pathlib import Path

import numpy as np

from ...tasks.dataset import require_split
from ..data.augment import rotation
from .data import SampledShape, ShapeDataset, sample_mesh
from .settings import ShapeSettings

_SPLITS = {"train": 0, "val": 1}  # part of each solid's seed
_POINTS, _NOISE = 2048, 0.01
_ARC = np.linspace(-np.pi / 2, np.pi / 2, 13)
_CIRCLE = np.linspace(0, 2 * np.pi, 17)

#: distance from the axis and height along a line that turns around it, and corners of the solid seen from above
SOLIDS: dict[str, tuple[np.ndarray, int]] = {
    "ball": (np.stack([np.cos(_ARC), np.sin(_ARC)], 1), 32),
    "box": (np.array([(0, -1), (1, -1), (1, 1), (0, 1)]), 4),
    "cone": (np.array([(0, -1), (1, -1), (0, 1)]), 32),
    "cylinder": (np.array([(0, -1), (1, -1), (1, 1), (0, 1)]), 32),
    "prism": (np.array([(0, -1), (1, -1), (1, 1), (0, 1)]), 3),
    "pyramid": (np.array([(0, -1), (1, -1), (0, 1)]), 4),
    "torus": (np.stack([1 + 0.4 * np.cos(_CIRCLE), 0.4 * np.sin(_CIRCLE)], 1), 32),
    "tube": (np.array([(0.7, -1), (1, -1), (1, 1), (0.7, 1), (0.7, -1)]), 32),
}


class SyntheticSolids(ShapeDataset):
    """Solids of eight classes with random proportions, upright and turned about their axis."""

    class_names = list(SOLIDS)
    num_classes = len(SOLIDS)

    def __init__(self, number: int, split: str) -> None:
        self.split = require_split(split, list(_SPLITS), "synthetic_solids")
        self.labels = np.arange(number) % self.num_classes

    @classmethod
    def open(cls, config: ShapeSettings, split: str, cache_folder: Path) -> "SyntheticSolids":
        solids = config.SHAPES.SOLIDS
        return cls(solids.TRAIN if split == "train" else solids.VAL, split)

    def __len__(self) -> int:
        return len(self.labels)

    def describe(self, index: int) -> str:
        return f"{self.split} {self.class_names[self.labels[index]]} {index}"

    def read(self, index: int) -> SampledShape:
        generator = np.random.default_rng([_SPLITS[self.split], index])
        profile, sides = SOLIDS[self.class_names[self.labels[index]]]
        vertices, triangles = turn_line(profile, sides)
        vertices = vertices * generator.uniform(0.6, 1.4, 3) @ rotation(2, generator.uniform(0, 2 * np.pi))
        xyz, normals = sample_mesh(vertices, triangles, _POINTS, generator)
        return SampledShape(xyz + _NOISE * generator.standard_normal(xyz.shape), normals, int(self.labels[index]))


def turn_line(profile: np.ndarray, sides: int) -> tuple[np.ndarray, np.ndarray]:
    """A mesh from a line that turns around the z axis: vertices (points x sides, 3) and triangles (T, 3), some of which
    have no area.

    Args:
        profile: (points, 2), distance from the axis and height.
    """
    angles = np.arange(sides) * 2 * np.pi / sides
    ring = np.stack([np.cos(angles), np.sin(angles), np.ones(sides)], 1)
    vertices = (profile[:, [0, 0, 1]][:, None] * ring).reshape(-1, 3)
    lower = (np.arange(len(profile) - 1)[:, None] * sides + np.arange(sides)).ravel()
    following = np.arange(len(lower)) // sides * sides + (np.arange(len(lower)) + 1) % sides
    first = np.stack([lower, following, lower + sides], 1)
    return vertices, np.concatenate([first, np.stack([following, following + sides, lower + sides], 1)])
