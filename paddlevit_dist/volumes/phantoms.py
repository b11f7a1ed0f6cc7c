"""CT-like phantoms of a head with known landmarks, generated from a seed: a dataset for first trials."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.tasks.dataset import Dataset, require_split
from .dataset import DEFAULT_OPTIONS, VolumeDataset, VolumeOptions
from .geometry import VolumeGeometry, rotation
from .store import DecodedVolume, extremes, moments

NAMES = ["chin", "ear_left", "ear_right", "eye_left", "eye_right", "nose_tip", "occiput", "sella"]
MIRROR_PAIRS = ["ear_left:ear_right", "eye_left:eye_right"]

_SHAPE = (40, 48, 48)  # depth, height, width
SPACING_MM = (4.0, 3.0, 3.0)
SIZES = {"train": 96, "val": 24}
_STREAMS = {"train": 1, "val": 2}
_MISSING = 0.04  # fraction of landmarks left unmarked
_NOISE_HU = 25.0

# Hounsfield units (HU), roughly
_AIR, _FAT, _TISSUE, _BRAIN, _EYE, _BONE = -1000.0, -80.0, 45.0, 35.0, 12.0, 850.0

ORGANS = ["background", "soft tissue", "bone", "brain", "eyes"]  # eyes include the fat around them
_EYES = 4
_ORGANS_BY_INTENSITY = {_AIR: 0, _FAT: 1, _TISSUE: 1, _BONE: 2, _BRAIN: 3, _EYE: _EYES}


class _PhantomPart(NamedTuple):
    """An ellipsoid in the head's frame (right, front, up)."""

    center: tuple[float, float, float]  # millimeters (x, y, z)
    radii: tuple[float, float, float]  # millimeters (x, y, z)
    intensity: float  # Hounsfield units
    organ: int | None = None  # class of its voxels; None: determined by the intensity


class PhantomVolume(NamedTuple):
    """A rendered phantom; ``world`` is float64 (landmarks, 3), millimeters x, y, z, NaN where unmarked."""

    voxels: np.ndarray
    geometry: VolumeGeometry
    world: np.ndarray

    @property
    def decoded(self) -> DecodedVolume:
        """The volume in the form that a store returns."""
        window = (-1000.0, 1000.0)
        return DecodedVolume(self.voxels, self.geometry, window, moments(self.voxels), extremes(self.voxels))


class PhantomHead(NamedTuple):
    """Random parameters of a phantom."""

    parts: list[_PhantomPart]
    pose: np.ndarray  # float64 (3, 3), from the head's frame to the volume's, about its middle
    shift: np.ndarray  # (3,), millimeters
    geometry: VolumeGeometry
    middle: np.ndarray
    noise: np.ndarray  # float64 of the volume's shape, HU
    world: np.ndarray  # landmarks as in ``PhantomVolume``


def render_phantom(head: PhantomHead) -> tuple[PhantomVolume, np.ndarray]:
    """Render a phantom, and the class in ``ORGANS`` of each voxel, uint8 (depth, height, width).

    It is the class of the last part that covers at least half of the voxel.
    """
    inverse = np.linalg.inv(head.pose)
    grid = np.stack(np.meshgrid(*(np.arange(n, dtype=np.float32) for n in _SHAPE), indexing="ij"), axis=-1)
    head_grid = (
        head.geometry.world(grid) - head.middle - head.shift
    ) @ inverse.T  # (depth, height, width, 3), mm, head's frame
    head_grid = head_grid.astype(np.float32)
    voxels, organs = np.full(_SHAPE, _AIR, dtype=np.float32), np.zeros(_SHAPE, np.uint8)
    for part in head.parts:
        share = _share_inside(head_grid, part)
        voxels += share * (part.intensity - voxels)
        organs[share >= 0.5] = _ORGANS_BY_INTENSITY[part.intensity] if part.organ is None else part.organ
    voxels += head.noise.astype(np.float32)
    return PhantomVolume(np.rint(voxels).clip(-1024, 3071).astype(np.int16), head.geometry, head.world), organs


def create_generator(split: str, index: int) -> np.random.Generator:
    """Create the random generator of phantom ``index`` of a split."""
    return np.random.default_rng([20_240_601, _STREAMS[split], index])


def draw_head(generator: np.random.Generator) -> PhantomHead:
    """Draw a head in a random pose, rotated up to 12 degrees about each axis and shifted up to 8 mm.

    It is up to 10 % larger or smaller. Each part is displaced by about a millimeter, and noise is added. The order of
    the draws determines every phantom.
    """
    parts, landmarks = _anatomy(generator)
    pose = rotation(np.deg2rad(generator.uniform(-12, 12, 3))) * generator.uniform(0.9, 1.1)
    shift = generator.uniform(-8, 8, 3)
    geometry = _place(generator)
    middle = geometry.world((np.array(_SHAPE) - 1) / 2)
    noise = generator.normal(0, _NOISE_HU, _SHAPE)
    world = np.stack([landmarks[name] for name in NAMES]) @ pose.T + shift + middle
    world[generator.random(len(NAMES)) < _MISSING] = np.nan
    return PhantomHead(parts, pose, shift, geometry, middle, noise, world)


def _anatomy(generator: np.random.Generator) -> tuple[list[_PhantomPart], dict[str, np.ndarray]]:
    """Draw the parts, later ones over earlier ones, and the landmarks in the head's frame."""

    def near(x: float, y: float, z: float) -> np.ndarray:
        return np.array([x, y, z]) + generator.normal(0, 1.2, 3)

    marks = {
        "eye_right": near(17, 38, 4),
        "eye_left": near(-17, 38, 4),
        "ear_right": near(30, 0, -10),
        "ear_left": near(-30, 0, -10),
        "nose_tip": near(0, 58, -10),
        "chin": near(0, 44, -42),
        "sella": near(0, 8, -6),
        "occiput": near(0, -54, -8),
    }
    parts = [
        _PhantomPart((0, 0, 0), (50, 58, 52), _FAT),
        _PhantomPart((0, 0, 0), (48, 56, 50), _TISSUE),
        _PhantomPart((0, 20, -36), (30, 30, 22), _TISSUE),  # jaw
        _PhantomPart((0, -2, 4), (44, 51, 46), _BONE),
        _PhantomPart((0, -2, 4), (39, 46, 41), _BRAIN),
        _PhantomPart(tuple(marks["occiput"]), (6, 4, 6), _BONE),
        _PhantomPart(tuple(marks["chin"]), (11, 5, 5), _BONE),
        _PhantomPart(tuple(marks["nose_tip"] - [0, 7, 0]), (6, 7, 6), _TISSUE),  # the landmark is its front end
        _PhantomPart(tuple(marks["sella"]), (6, 5, 5), _BONE),
        _PhantomPart(tuple(marks["sella"]), (3.5, 3, 3), _BRAIN),
    ]
    for side in ("right", "left"):
        outwards = 1.0 if side == "right" else -1.0
        parts.append(_PhantomPart(tuple(marks[f"eye_{side}"]), (11, 10, 10), _FAT, _EYES))
        parts.append(_PhantomPart(tuple(marks[f"eye_{side}"]), (8, 8, 8), _EYE))
        # An air-filled canal from the landmark outwards.
        parts.append(_PhantomPart(tuple(marks[f"ear_{side}"] + [outwards * 10, 0, 0]), (10, 4, 4), _AIR))
    return parts, marks


def _share_inside(head_grid: np.ndarray, part: _PhantomPart) -> np.ndarray:
    """Compute the share of each voxel inside an ellipsoid, by its distance from the surface, with soft edges."""
    scaled = (head_grid - np.array(part.center, dtype=np.float32)) / np.array(part.radii, dtype=np.float32)
    distance_mm = (np.sqrt(np.einsum("zyxc,zyxc->zyx", scaled, scaled)) - 1.0) * min(part.radii)
    return np.clip(0.5 - distance_mm / np.mean(SPACING_MM), 0.0, 1.0)


def _place(generator: np.random.Generator) -> VolumeGeometry:
    affine = np.diag([*SPACING_MM[::-1], 1.0])
    affine[:3, 3] = generator.uniform(-100, 100, 3)
    return VolumeGeometry(_SHAPE, affine)


class PhantomDataset(Dataset):
    """Dataset of 96 training and 24 validation phantoms, identical on every machine and in every run.

    Phantoms are drawn on first access and then kept in memory (180 kB each; 270 kB with labels).
    """

    split: str
    _drawn: dict[int, Any]

    def __len__(self) -> int:
        return SIZES[self.split]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_drawn": {}}

    def case(self, index: int) -> str:
        """Return the name of volume ``index``."""
        return f"phantom_{self.split}_{index:03d}"

    def describe(self, index: int) -> str:
        """Return a name of phantom ``index``, for messages."""
        return f"drawn phantom {self.split} {index}"

    def _get_drawn(self, index: int) -> Any:
        if index not in self._drawn:
            self._drawn[index] = render_phantom(draw_head(create_generator(self.split, index)))
        return self._drawn[index]


class SyntheticLandmarks(PhantomDataset, VolumeDataset):
    """Phantoms with the positions of their landmarks."""

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path | None,
        options: VolumeOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.split = require_split(split, tuple(SIZES), "synthetic_landmarks")
        self.names = list(NAMES)
        self.spacing = np.array(SPACING_MM)
        self._convention = "ras" if options.coordinate_system == "file" else options.coordinate_system
        self._drawn = {}

    def read(self, index: int) -> tuple[DecodedVolume, np.ndarray]:
        """Return a phantom with geometry, and its landmarks' voxels z, y, x, float64 (landmarks, 3)."""
        phantom = self._get_drawn(index)[0]
        return phantom.decoded, phantom.decoded.geometry.voxels(phantom.world)

    def world(self, index: int) -> np.ndarray:
        """Return the landmarks without rendering voxels, which takes most of the time: 2 ms for a phantom."""
        return draw_head(create_generator(self.split, index)).world

    def placed(self) -> list[int]:
        """Count the phantoms in which each landmark is marked."""
        worlds = map(self.world, range(len(self)))
        return sum((~np.isnan(world).any(axis=1)).astype(int) for world in worlds).tolist()

    def convention(self, index: int) -> str:
        """Return the convention of predictions for volume ``index``: "ras" or "lps"."""
        return self._convention
