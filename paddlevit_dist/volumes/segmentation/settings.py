"""Configuration keys of the segmentation of volumes, beside those of all tasks with volumes."""

from collections.abc import Iterator

from ...settings.key import AT_LEAST_0, SHARE, ConfigView, Key, Range, Table, Unused

AXES = ("depth", "height", "width")

_TRAINING = (
    Key(
        "VOLUMES.FOREGROUND_SHARE",
        0.33,
        "float",
        "training: share of the crops that are drawn around a voxel of a class other than the background",
        SHARE,
    ),
    Key("VOLUMES.DICE_WEIGHT", 1.0, "float", "training: weight of the Dice loss beside cross-entropy", AT_LEAST_0),
    Key(
        "VOLUMES.DEEP_SUPERVISION",
        False,
        "bool",
        "training: levels of lower resolution have a loss too, of half the weight for each half of the resolution",
    ),
)
_KEYS = (
    Key("VOLUMES.FOLD", 0, "int", "which of nnU-Net's five splits into train and val", Range(low=0, high=999)),
    Key(
        "VOLUMES.MIRROR_AXES",
        [],
        "text",
        "axes along which training crops are mirrored, each with a probability of one half; and with TEST_MIRROR "
        "windows of evaluations",
        choices=AXES,
        many=True,
    ),
    Key(
        "VOLUMES.TEST_MIRROR",
        False,
        "bool",
        "evaluation: mean of the outputs for each window and its mirror images along MIRROR_AXES",
    ),
    Key(
        "VOLUMES.SURFACE_DISTANCES",
        True,
        "bool",
        "evaluation: also average and 95 % distance between true and predicted surfaces, in mm; needs SciPy",
    ),
)


def _unused(given: ConfigView) -> Iterator[Unused]:
    if not given.values.VOLUMES.MIRROR_AXES:
        yield Unused(("VOLUMES.TEST_MIRROR",), "VOLUMES.MIRROR_AXES", "it names no axis: {}")


TABLE = Table(
    (*_TRAINING, *_KEYS),
    training=tuple(key.name for key in _TRAINING),
    effects={
        "network": ("VOLUMES.DEEP_SUPERVISION",),
        "training": tuple(key.name for key in _TRAINING[:2]),
        "neutral": ("VOLUMES.SURFACE_DISTANCES",),
    },
    unused=_unused,
)
