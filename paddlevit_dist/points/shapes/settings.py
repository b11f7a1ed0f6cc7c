"""Configuration keys of the classification of shapes."""

from collections.abc import Iterator
from typing import Literal

from ...settings.every_run import RunSettings
from ...settings.key import AT_LEAST_1, SHARE_BELOW_1, ConfigView, IgnoredKeys, KeyTable, Range
from ...settings.section import Section, key, rows


class SolidSection(Section):
    TRAIN: int = key(640, "synthetic_solids: training shapes", AT_LEAST_1)
    VAL: int = key(160, "synthetic_solids: validation shapes", AT_LEAST_1)


class ShapeSection(Section):
    VOXEL_SIZE: float = key(
        0.05,
        "edge of a voxel; a shape is scaled so that its farthest point is at 1 from its middle",
        Range(low=1e-3, high=1),
    )
    FEATURES: list[Literal["xyz", "normals", "ones"]] = key(
        ["xyz"], "what the network sees of a voxel: place and normal of its first point (3 channels each), ones (1)"
    )
    POINTS: int = key(
        2048, "points of a shape: other random ones in each epoch of a training, else always the same", AT_LEAST_1
    )
    LABEL_SMOOTHING: float = key(0.0, "training: share of a label that all classes get alike", SHARE_BELOW_1)
    UP_AXIS: Literal["x", "y", "z"] = key(
        "z", "axis of ROTATION_DEGREES, upright in images; y for modelnet40_normal_resampled"
    )
    ROTATION_DEGREES: float = key(0.0, "training: largest angle around UP_AXIS", Range(low=0, high=180))
    SOLIDS: SolidSection


class ShapeSettings(RunSettings):
    SHAPES: ShapeSection


_TRAINING = ("LABEL_SMOOTHING", "UP_AXIS", "ROTATION_DEGREES")


def _find_unused(given: ConfigView[ShapeSettings]) -> Iterator[IgnoredKeys]:
    if given.values.DATA.DATASET != "synthetic_solids":
        yield IgnoredKeys(("SHAPES.SOLIDS.",), "DATA.DATASET", "it is for synthetic_solids, and {}")


TABLE = KeyTable(
    rows(ShapeSettings),
    training=tuple(f"SHAPES.{name}" for name in _TRAINING),
    effects={"training": ("SHAPES.SOLIDS.",)},
    find_ignored=_find_unused,
)
