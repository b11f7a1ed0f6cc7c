"""Synthetic solids generated from a seed, so that a first training run on shapes needs no download."""

from pathlib import Path

import numpy as np

from ...core.tasks.dataset import require_split
from ..data.augment import rotation
from .data import SampledShape, ShapeDataset, sample_mesh
from .settings import ShapeSettings

_SPLITS = {"train": 0, "val": 1}  # part of each solid's seed
_POINTS, _NOISE = 2048, 0.01
_ARC = np.linspace(-np.pi / 2, np.pi / 2, 13)
_CIRCLE = np.linspace(0, 2 * np.pi, 17)

#: profile (distance from the axis and height), which is revolved around the axis, and number of sides seen from above
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
    """Solids of eight classes with random proportions, upright and rotated about their axis."""

    class_names = list(SOLIDS)
    num_classes = len(SOLIDS)
    labels: np.ndarray

    def __init__(self, number: int, split: str) -> None:
        self.split = require_split(split, list(_SPLITS), "synthetic_solids")
        self.labels = np.arange(number) % self.num_classes

    @classmethod
    def open(cls, config: ShapeSettings, split: str, cache_folder: Path) -> "SyntheticSolids":
        """Return the solids of ``split`` with the settings of SHAPES.SOLIDS."""
        solids = config.SHAPES.SOLIDS
        return cls(solids.TRAIN if split == "train" else solids.VAL, split)

    def __len__(self) -> int:
        return len(self.labels)

    def describe(self, index: int) -> str:
        """Return split, class and number of a solid."""
        return f"{self.split} {self.class_names[self.labels[index]]} {index}"

    def read(self, index: int) -> SampledShape:
        """Return solid ``index``."""
        generator = np.random.default_rng([_SPLITS[self.split], index])
        profile, sides = SOLIDS[self.class_names[self.labels[index]]]
        vertices, triangles = revolve_profile(profile, sides)
        vertices = vertices * generator.uniform(0.6, 1.4, 3) @ rotation(2, generator.uniform(0, 2 * np.pi))
        xyz, normals = sample_mesh(vertices, triangles, _POINTS, generator)
        return SampledShape(xyz + _NOISE * generator.standard_normal(xyz.shape), normals, int(self.labels[index]))


def revolve_profile(profile: np.ndarray, sides: int) -> tuple[np.ndarray, np.ndarray]:
    """Revolve a profile (points, 2), distance from the axis and height, around the z axis in ``sides`` copies.

    Returns vertices (points x sides, 3) and triangles (T, 3), some without area.
    """
    angles = np.arange(sides) * 2 * np.pi / sides
    ring = np.stack([np.cos(angles), np.sin(angles), np.ones(sides)], 1)
    vertices = (profile[:, [0, 0, 1]][:, None] * ring).reshape(-1, 3)
    lower = (np.arange(len(profile) - 1)[:, None] * sides + np.arange(sides)).ravel()
    following = np.arange(len(lower)) // sides * sides + (np.arange(len(lower)) + 1) % sides
    first = np.stack([lower, following, lower + sides], 1)
    return vertices, np.concatenate([first, np.stack([following, following + sides, lower + sides], 1)])
