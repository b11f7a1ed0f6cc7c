"""Configuration keys of shape classification."""

from collections.abc import Iterator
from typing import Literal

from ...core.losses.settings import SMOOTHING, SmoothingSettings
from ...core.settings.key import AT_LEAST_1, SHARE_BELOW_1, Key, Range, Section, key, rows
from ...core.settings.table import ConfigView, IgnoredKeys, KeyTable


class SolidSection(Section):
    """Keys of SHAPES.SOLIDS."""

    TRAIN: int = key(640, "synthetic_solids: training shapes", AT_LEAST_1, effect="training")
    VAL: int = key(160, "synthetic_solids: validation shapes", AT_LEAST_1, effect="training")


class ShapeSection(Section):
    """Keys of SHAPES."""

    VOXEL_SIZE: float = key(
        0.05,
        "edge of a voxel; shapes are centered and scaled to radius 1",
        Range(low=1e-3, high=1),
    )
    FEATURES: list[Literal["xyz", "normals", "ones"]] = key(
        ["xyz"], "input features of a voxel: position and normal of its first point (3 channels each), ones (1)"
    )
    POINTS: int = key(
        2048, "points of a shape: a new random sample in each training epoch, otherwise a fixed sample", AT_LEAST_1
    )
    UP_AXIS: Literal["x", "y", "z"] = key(
        "z", "axis of ROTATION_DEGREES, vertical in images; y for modelnet40_normal_resampled", training_only=True
    )
    ROTATION_DEGREES: float = key(
        0.0,
        "training: maximum rotation around UP_AXIS, in either direction",
        Range(low=0, high=180),
        training_only=True,
    )
    SOLIDS: SolidSection


class ShapeSettings(SmoothingSettings):
    """Settings of shape classification."""

    SHAPES: ShapeSection


def _find_ignored(view: ConfigView[ShapeSettings]) -> Iterator[IgnoredKeys]:
    if view.values.DATA.DATASET != "synthetic_solids":
        yield IgnoredKeys(("SHAPES.SOLIDS.",), "DATA.DATASET", "it is for synthetic_solids, and {}")


TABLE = KeyTable(
    (*SMOOTHING, *rows(ShapeSettings)),
    find_ignored=_find_ignored,
    former=(Key("SHAPES.LABEL_SMOOTHING", 0.0, "float", "label smoothing", SHARE_BELOW_1, training_only=True),),
    renamed={"SHAPES.LABEL_SMOOTHING": "TRAIN.SMOOTHING"},
)
