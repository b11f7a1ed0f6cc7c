"""Configuration keys shared by all point cloud tasks."""

import re
from collections.abc import Iterator
from typing import Literal

from ..runtime.errors import UserError
from ..settings import every_run
from ..settings.key import AT_LEAST_1, ConfigView, IgnoredKeys, KeyTable, Range
from ..settings.section import Pair, Section, key, rows

_FEATURE = re.compile(r"[^/,\[\]()]+(/([1-9][0-9]*\.?[0-9]*|0\.0*[1-9][0-9]*))?")  # perhaps divided by a number


class SceneDataSection(every_run.DataSection):
    VOXEL_SIZE_M: float = key(0.05, "point clouds: edge of a voxel in meters", Range(low=1e-4, high=100))
    UNIT_M: float = key(
        1.0,
        "point clouds: meters in a unit of the scenes' coordinates; 0.001 for millimeters, 0.3048 for feet",
        Range(low=1e-9, high=1e6),
    )


class RoomSection(Section):
    TRAIN: int = key(400, "synthetic_rooms: training rooms", AT_LEAST_1)
    VAL: int = key(40, "synthetic_rooms: validation rooms", AT_LEAST_1)
    SPACING_M: float = key(0.04, "synthetic_rooms: mean distance of neighboring points", Range(low=0.01, high=0.2))


class PointSection(Section):
    FEATURES: list[str] = key(
        ["rgb"],
        "what the network sees of a voxel: rgb (3 channels), xyz (3, meters), height above the lowest point (1), ones "
        "(1), and channels of the scenes by name: normal (3), any other (1), such as intensity/255, divided by 255",
    )
    COLOR_RANGE: Pair[float] = key(
        [-1.0, 1.0],
        "what colors of 0 and 255 become for the network; [-0.5, 0.5] for MinkowskiEngine's published weights",
        Range(low=-1e6, high=1e6),
    )
    VOXEL_FEATURES: Literal["first", "mean"] | None = key(
        None,
        "a voxel shows its first point, or the mean over its points, which MinkowskiEngine's published weights expect; "
        "None: first for semantic_segmentation, mean for pointgroup",
    )
    MAX_POINTS: int | None = key(
        None, "training: a larger scene is cut down to this many points around a random one; None: never", AT_LEAST_1
    )
    ROOMS: RoomSection


class PointSettings(every_run.RunSettings):
    DATA: SceneDataSection
    POINTS: PointSection


def _check(given: ConfigView[PointSettings]) -> list[str]:
    features = given.values.POINTS.FEATURES
    distinct = {name.partition("/")[0] for name in features}
    if not features or len(distinct) < len(features) or not all(map(_FEATURE.fullmatch, features)):
        raise UserError(
            f"{given['POINTS.FEATURES']}: expected names, each once, such as [rgb, normal, height]; a channel of the "
            "scenes may be divided by a number, as in intensity/255"
        )
    low, high = given.values.POINTS.COLOR_RANGE
    if low >= high:
        raise UserError(f"{given['POINTS.COLOR_RANGE']}: expected the smaller number first, such as [-0.5, 0.5]")
    return []


def _find_unused(given: ConfigView[PointSettings]) -> Iterator[IgnoredKeys]:
    if given.values.DATA.DATASET != "synthetic_rooms":
        yield IgnoredKeys(("POINTS.ROOMS.",), "DATA.DATASET", "it is for synthetic_rooms, and {}")


TABLE = KeyTable(
    rows(PointSettings),
    training=("POINTS.MAX_POINTS",),
    effects={"training": ("POINTS.ROOMS.",)},
    check=_check,
    find_ignored=_find_unused,
)
