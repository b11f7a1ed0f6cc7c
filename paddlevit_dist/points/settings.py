"""Configuration keys shared by all point cloud tasks."""

from collections.abc import Iterator

from ..config.key import AT_LEAST_1, Given, Key, Range, Table, Unused
from ..runtime.errors import UserError

_KEYS = (
    Key("DATA.VOXEL_SIZE_M", 0.05, "float", "point clouds: edge of a voxel in metres", Range(low=1e-4, high=100)),
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


def _check(given: Given) -> list[str]:
    low, high = given.values.POINTS.COLOR_RANGE
    if low >= high:
        raise UserError(f"{given['POINTS.COLOR_RANGE']}: expected the smaller number first, such as [-0.5, 0.5]")
    return []


def _unused(given: Given) -> Iterator[Unused]:
    if given.values.DATA.DATASET != "synthetic_rooms":
        yield Unused(("POINTS.ROOMS.",), "DATA.DATASET", "it is for synthetic_rooms, and {}")


TABLE = Table(
    _KEYS, training=("POINTS.MAX_POINTS",), effects={"training": ("POINTS.ROOMS.",)}, check=_check, unused=_unused
)
