"""Configuration keys of the segmentation of volumes, beside those of all tasks with volumes."""

from collections.abc import Iterator
from typing import Literal, get_args

from ...settings.key import AT_LEAST_0, SHARE, ConfigView, IgnoredKeys, KeyTable, Range
from ...settings.section import key, rows
from .. import settings

Axis = Literal["depth", "height", "width"]
AXES = get_args(Axis)


class SegmentationVolumeSection(settings.VolumeSection):
    FOREGROUND_FRACTION: float = key(
        0.33, "training: share of the crops that are drawn around a voxel of a class other than the background", SHARE
    )
    DICE_WEIGHT: float = key(1.0, "training: weight of the Dice loss beside cross-entropy", AT_LEAST_0)
    DEEP_SUPERVISION: bool = key(
        False,
        "training: levels of lower resolution have a loss too, of half the weight for each half of the resolution",
    )
    FOLD: int = key(0, "which of nnU-Net's five splits into train and val", Range(low=0, high=999))
    MIRROR_AXES: list[Axis] = key(
        [],
        "axes along which training crops are mirrored, each with a probability of one half; and with TEST_MIRROR "
        "windows of evaluations",
    )
    TEST_MIRROR: bool = key(
        False, "evaluation: mean of the outputs for each window and its mirror images along MIRROR_AXES"
    )
    SURFACE_DISTANCES: bool = key(
        True, "evaluation: also average and 95 % distance between true and predicted surfaces, in mm; needs SciPy"
    )


class VolumeSegmentationSettings(settings.VolumeSettings):
    VOLUMES: SegmentationVolumeSection


def _find_unused(given: ConfigView[VolumeSegmentationSettings]) -> Iterator[IgnoredKeys]:
    if not given.values.VOLUMES.MIRROR_AXES:
        yield IgnoredKeys(("VOLUMES.TEST_MIRROR",), "VOLUMES.MIRROR_AXES", "it names no axis: {}")


TABLE = KeyTable(
    rows(VolumeSegmentationSettings),
    training=("VOLUMES.FOREGROUND_FRACTION", "VOLUMES.DICE_WEIGHT", "VOLUMES.DEEP_SUPERVISION"),
    effects={
        "network": ("VOLUMES.DEEP_SUPERVISION",),
        "training": ("VOLUMES.FOREGROUND_FRACTION", "VOLUMES.DICE_WEIGHT"),
        "neutral": ("VOLUMES.SURFACE_DISTANCES",),
    },
    find_ignored=_find_unused,
)
