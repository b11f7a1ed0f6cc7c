"""Semantic segmentation's input from a scene: augmentation and point features."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.errors import UserError
from ..data import augment
from ..data.augment import Sometimes, Step, Turn
from ..data.features import point_features
from ..data.samples import PointSample, SceneSamples, View
from ..data.scene import Scene
from ..data.scenes import SceneDataset
from ..data.voxels import discretize

_ELASTIC_M = ((0.1, 0.4), (0.4, 1.6))  # granularity and magnitude of each pass, metres
_DROPOUT = 0.5  # probability of dropping points


class WholeScene(PointSample):
    """A scene that the network sees in fragments."""


@dataclass(frozen=True)
class PointSamples(SceneSamples):
    """Scenes as segmentation input.

    Args:
        voxel_size_m: edge of a voxel.
        color_range: what 0 and 255 are mapped to.
        rotations: number of rotations about z in which a scene is seen.
        notices: lines for the log.
        flips: each rotation is seen a second time, mirrored along x.
        in_fragments: a scene goes through the network in parts, so its batch has no plan of the whole.
    """

    voxel_size_m: float
    color_range: tuple[float, float]
    rotations: int
    notices: Sequence[str] = ()
    flips: bool = False
    in_fragments: bool = False
    protocol: str = ""

    def voxelized(self, scene: Scene) -> PointSample:
        directions = [2 * math.pi * turn / self.rotations for turn in range(self.rotations)]
        views = [
            self._seen_from(scene, angle, flip) for angle in directions for flip in (False, True)[: 1 + self.flips]
        ]
        return (WholeScene if self.in_fragments else PointSample)(scene, views)

    def _seen_from(self, scene: Scene, angle: float, is_flipped: bool) -> View:
        matrix = augment.rotation(2, angle)
        if is_flipped:
            matrix = matrix * np.array([-1.0, 1.0, 1.0])  # of x, once it is turned
        if angle != 0.0 or is_flipped:
            scene = augment.with_turned_normals(scene._replace(xyz=scene.xyz @ matrix.astype(np.float32)), matrix)
        voxels = discretize(scene.xyz, self.voxel_size_m)  # (P, 3)
        return self.view(voxels, lambda points: point_features(scene, points, self.features, self.color_range))


def training_steps(points: Any, dataset: SceneDataset, unit_m: float = 1.0) -> tuple[Step, ...]:
    """The steps configured under POINTS for a training scene, and for scenes of ``dataset`` overlaid on it.

    Args:
        unit_m: metres per unit of the scenes' coordinates.

    Raises:
        UserError: the scale range is reversed.
    """
    keys = points.AUGMENT
    if keys.SCALE[0] > keys.SCALE[1]:
        raise UserError(f"POINTS.AUGMENT.SCALE is {list(keys.SCALE)}: expected the smaller factor first")
    tilt = math.radians(keys.TILT_DEGREES)
    turns = Turn(0, tilt), Turn(1, tilt), Turn(2, math.radians(keys.ROTATION_DEGREES))
    # This distortion has no key; its numbers are still drawn so that a seed gives the same scenes as ever.
    parts = (augment.Distortion(0.0), augment.Flips(keys.FLIP, axes=2), *turns, augment.Scale(*keys.SCALE))
    wanted = [
        (True, augment.Affine(parts)),
        (keys.ELASTIC, Sometimes(keys.ELASTIC, augment.Elastic(_ELASTIC_M))),
        (keys.JITTER_M, augment.Jitter(keys.JITTER_M)),
        (keys.DROPOUT, Sometimes(_DROPOUT, augment.Dropout(keys.DROPOUT))),
        (keys.COLOR_CONTRAST, Sometimes(keys.COLOR_CONTRAST, augment.ColorContrast())),
        (keys.COLOR_JITTER or keys.COLOR_SHIFT, augment.ColorJitter(keys.COLOR_JITTER, keys.COLOR_SHIFT)),
        (keys.COLOR_DROP, Sometimes(keys.COLOR_DROP, augment.ColorDrop())),
    ]
    # First, so that a large scene is not turned and distorted as a whole.
    around = () if points.CROP is None else (augment.Crop(points.CROP, points.CROP_SIZE_M),)
    changes = (*augment.to_metres(unit_m), *around, *(step for is_wanted, step in wanted if is_wanted))
    crop = () if points.MAX_POINTS is None else (augment.CropToBudget(points.MAX_POINTS),)
    return (*changes, augment.Mix(dataset, changes, points.MIX_PROB), *crop)
