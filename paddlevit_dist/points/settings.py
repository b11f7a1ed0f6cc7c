"""Configuration keys shared by all point cloud tasks."""

import re
from collections.abc import Iterator

from ..runtime.errors import UserError
from ..settings.key import AT_LEAST_1, ConfigView, Key, Range, Table, Unused

_FEATURE = re.compile(r"[^/,\[\]()]+(/([1-9][0-9]*\.?[0-9]*|0\.0*[1-9][0-9]*))?")  # perhaps divided by a number

_KEYS = (
    Key("DATA.VOXEL_SIZE_M", 0.05, "float", "point clouds: edge of a voxel in metres", Range(low=1e-4, high=100)),
    Key(
        "DATA.UNIT_M",
        1.0,
        "float",
        "point clouds: metres in a unit of the scenes' coordinates; 0.001 for millimetres, 0.3048 for feet",
        Range(low=1e-9, high=1e6),
    ),
    Key(
        "POINTS.FEATURES",
        ["rgb"],
        "text",
        "what the network sees of a voxel: rgb (3 channels), xyz (3, metres), height above the lowest point (1), ones "
        "(1), and channels of the scenes by name: normal (3), any other (1), such as intensity/255, divided by 255",
        many=True,
    ),
    Key(
        "POINTS.COLOR_RANGE",
        [-1.0, 1.0],
        "float",
        "what colours of 0 and 255 become for the network; [-0.5, 0.5] for MinkowskiEngine's published weights",
        Range(low=-1e6, high=1e6),
        None,
        True,
        2,
    ),
    Key(
        "POINTS.VOXEL_FEATURES",
        None,
        "text",
        "a voxel shows its first point, or the mean over its points, which MinkowskiEngine's published weights expect; "
        "None: first for semantic_segmentation, mean for pointgroup",
        choices=("first", "mean"),
        optional=True,
    ),
    Key(
        "POINTS.MAX_POINTS",
        None,
        "int",
        "training: a larger scene is cut down to this many points around a random one; None: never",
        AT_LEAST_1,
        optional=True,
    ),
    Key("POINTS.ROOMS.TRAIN", 400, "int", "synthetic_rooms: training rooms", AT_LEAST_1),
    Key("POINTS.ROOMS.VAL", 40, "int", "synthetic_rooms: validation rooms", AT_LEAST_1),
    Key(
        "POINTS.ROOMS.SPACING_M",
        0.04,
        "float",
        "synthetic_rooms: mean distance of neighbouring points",
        Range(low=0.01, high=0.2),
    ),
)


def _check(given: ConfigView) -> list[str]:
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


def _unused(given: ConfigView) -> Iterator[Unused]:
    if given.values.DATA.DATASET != "synthetic_rooms":
        yield Unused(("POINTS.ROOMS.",), "DATA.DATASET", "it is for synthetic_rooms, and {}")


TABLE = Table(
    _KEYS, training=("POINTS.MAX_POINTS",), effects={"training": ("POINTS.ROOMS.",)}, check=_check, unused=_unused
)
