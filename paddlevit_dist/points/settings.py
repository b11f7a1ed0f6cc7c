"""Configuration keys shared by all point cloud tasks."""

import re
from collections.abc import Iterator
from typing import Literal

from ..core.runtime.errors import UserError
from ..core.settings import every_run
from ..core.settings.key import AT_LEAST_1, Pair, Range, Section, key, rows
from ..core.settings.table import ConfigView, IgnoredKeys, KeyTable

_FEATURE = re.compile(r"[^/,\[\]()]+(/([1-9][0-9]*(\.[0-9]*)?|0\.0*[1-9][0-9]*))?")  # optionally divided by a number


class SceneDataSection(every_run.DataSection):
    """Keys of DATA for scenes."""

    VOXEL_SIZE_M: float = key(0.05, "point clouds: edge of a voxel in meters", Range(low=1e-4, high=100))
    UNIT_M: float = key(
        1.0,
        "point clouds: meters in a unit of the scenes' coordinates; 0.001 for millimeters, 0.3048 for feet",
        Range(low=1e-9, high=1e6),
    )


class RoomSection(Section):
    """Keys of POINTS.ROOMS."""

    TRAIN: int = key(400, "synthetic_rooms: training rooms", AT_LEAST_1, effect="training")
    VAL: int = key(40, "synthetic_rooms: validation rooms", AT_LEAST_1, effect="training")
    SPACING_M: float = key(
        0.04, "synthetic_rooms: mean distance of neighboring points", Range(low=0.01, high=0.2), effect="training"
    )


class PointSection(Section):
    """Keys of POINTS."""

    FEATURES: list[str] = key(
        ["rgb"],
        "input features of a voxel: rgb (3 channels), xyz (3, meters), centered_xyz (3, from the middle of the floor "
        "of the scene, or of a crop or block of it), height above the lowest point of the scene, or of a block with "
        "CROP block (1), ones (1), and channels of the scenes by name: normal (3), any other (1), such as "
        "intensity/255, divided by 255",
    )
    COLOR_RANGE: Pair[float] = key(
        [-1.0, 1.0],
        "network input for colors of 0 and 255; [-0.5, 0.5] for MinkowskiEngine's published weights",
        Range(low=-1e6, high=1e6),
    )
    VOXEL_FEATURES: Literal["first", "mean"] | None = key(
        None,
        "features of a voxel: the features of its first point (first), or the mean over its points (mean), which "
        "MinkowskiEngine's published weights expect; None: first for semantic_segmentation, mean for pointgroup",
    )
    MAX_POINTS: int | None = key(
        None,
        "training: maximum points of a scene; a larger one is cropped around a random point; None: no limit",
        AT_LEAST_1,
        effect="training",  # but evaluations in blocks measure the feature centered_xyz as training does
    )
    ROOMS: RoomSection


class PointSettings(every_run.RunSettings):
    """Settings shared by all point cloud tasks."""

    DATA: SceneDataSection
    POINTS: PointSection


def _check(view: ConfigView[PointSettings]) -> list[str]:
    features = view.values.POINTS.FEATURES
    channel_names = {name.partition("/")[0] for name in features}
    if not features or len(channel_names) < len(features) or not all(map(_FEATURE.fullmatch, features)):
        raise UserError(
            f"{view['POINTS.FEATURES']}: expected names without repetition, such as [rgb, normal, height]; a channel "
            "of the scenes may be divided by a number, as in intensity/255"
        )
    low, high = view.values.POINTS.COLOR_RANGE
    if low >= high:
        raise UserError(f"{view['POINTS.COLOR_RANGE']}: expected the smaller number first, such as [-0.5, 0.5]")
    return []


def _find_ignored(view: ConfigView[PointSettings]) -> Iterator[IgnoredKeys]:
    if view.values.DATA.DATASET != "synthetic_rooms":
        yield IgnoredKeys(("POINTS.ROOMS.",), "DATA.DATASET", "it is for synthetic_rooms, and {}")
    if "rgb" not in view.values.POINTS.FEATURES:
        colors = ("JITTER", "SHIFT", "CONTRAST", "DROP")
        names = ("POINTS.COLOR_RANGE", *(f"POINTS.AUGMENT.COLOR_{name}" for name in colors))
        yield IgnoredKeys(names, "POINTS.FEATURES", "the network sees no colors: {}")


TABLE = KeyTable(rows(PointSettings), check=_check, find_ignored=_find_ignored)
