"""Configuration keys of the classification of shapes."""

from collections.abc import Iterator

from ...settings.key import AT_LEAST_1, SHARE_BELOW_1, ConfigView, Key, Range, Table, Unused

_KEYS = (
    Key(
        "SHAPES.VOXEL_SIZE",
        0.05,
        "float",
        "edge of a voxel; a shape is scaled so that its farthest point is at 1 from its middle",
        Range(low=1e-3, high=1),
    ),
    Key(
        "SHAPES.FEATURES",
        ["xyz"],
        "text",
        "what the network sees of a voxel: place and normal of its first point (3 channels each), ones (1)",
        choices=("xyz", "normals", "ones"),
        many=True,
    ),
    Key(
        "SHAPES.POINTS",
        2048,
        "int",
        "points of a shape: other random ones in each epoch of a training, else always the same",
        AT_LEAST_1,
    ),
    Key("SHAPES.LABEL_SMOOTHING", 0.0, "float", "training: share of a label that all classes get alike", SHARE_BELOW_1),
    Key(
        "SHAPES.UP",
        "z",
        "text",
        "axis of ROTATION_DEGREES, upright in images; y for modelnet40_normal_resampled",
        choices=("x", "y", "z"),
    ),
    Key("SHAPES.ROTATION_DEGREES", 0.0, "float", "training: largest angle around the axis UP", Range(low=0, high=180)),
    Key("SHAPES.SOLIDS.TRAIN", 640, "int", "synthetic_solids: training shapes", AT_LEAST_1),
    Key("SHAPES.SOLIDS.VAL", 160, "int", "synthetic_solids: validation shapes", AT_LEAST_1),
)
_TRAINING = ("LABEL_SMOOTHING", "UP", "ROTATION_DEGREES")


def _unused(given: ConfigView) -> Iterator[Unused]:
    if given.values.DATA.DATASET != "synthetic_solids":
        yield Unused(("SHAPES.SOLIDS.",), "DATA.DATASET", "it is for synthetic_solids, and {}")


TABLE = Table(
    _KEYS,
    training=tuple(f"SHAPES.{name}" for name in _TRAINING),
    effects={"training": ("SHAPES.SOLIDS.",)},
    unused=_unused,
    gone={
        "SHAPES.SCALE": ([0.8, 1.25], "it is [0.8, 1.25], as PointNet++'s program has it; leave it out"),
        "SHAPES.SHIFT": (0.1, "it is 0.1, as PointNet++'s program has it; leave it out"),
        "SHAPES.JITTER": (0.01, "it is 0.01, as PointNet++'s program has it; leave it out"),
    },
)
