"""Configuration keys of volume segmentation, in addition to the keys of all tasks with volumes."""

from collections.abc import Iterator
from typing import Literal, get_args

from ...core.settings.key import SHARE, Flag, Range, key, rows
from ...core.settings.table import ConfigView, IgnoredKeys, KeyTable
from .. import settings

Axis = Literal["depth", "height", "width"]
AXES = get_args(Axis)


class SegmentationVolumeSection(settings.VolumeSection):
    """Section VOLUMES of volume segmentation."""

    FOREGROUND_FRACTION: float = key(
        0.33,
        "training: fraction of crops that contain a drawn voxel of a class other than the background",
        SHARE,
        training_only=True,
    )
    DEEP_SUPERVISION: bool = key(
        False,
        "training: add losses of the lower resolutions; each halving of the resolution halves the weight",
        training_only=True,
        effect="network",
    )
    FOLD: int = key(
        0, "index of the fold: split into train and val, by default one of nnU-Net's five", Range(low=0, high=999)
    )
    MIRROR_AXES: list[Axis] = key(
        [],
        "axes along which training crops are mirrored, each with a probability of one half; with TEST_MIRROR also "
        "evaluation windows",
    )
    TEST_MIRROR: bool = key(
        False, "evaluation: average the outputs of each window and its mirror images along MIRROR_AXES"
    )
    LARGEST_COMPONENT: list[str] = key(
        [],
        "evaluation and prediction: classes or regions that keep only their largest component, one after another; "
        "foreground: all classes together; needs SciPy",
        flag=Flag(
            "largest_component",
            "NAMES",
            "prediction",
            3,
            "label maps of volumes: classes that keep only their largest component, or foreground",
        ),
    )
    SURFACE_DISTANCES: bool = key(
        True,
        "evaluation: also compute average and 95 % distances between true and predicted surfaces, in mm; needs SciPy",
        effect="neutral",
    )


class VolumeSegmentationSettings(settings.VolumeSettings):
    """Settings of volume segmentation."""

    VOLUMES: SegmentationVolumeSection


def _find_unused(config: ConfigView[VolumeSegmentationSettings]) -> Iterator[IgnoredKeys]:
    if not config.values.VOLUMES.MIRROR_AXES:
        yield IgnoredKeys(("VOLUMES.TEST_MIRROR",), "VOLUMES.MIRROR_AXES", "it names no axis: {}")
    yield IgnoredKeys(("VOLUMES.HEATMAP",), "TASK", "it is for landmarks, and {}")


TABLE = KeyTable(rows(VolumeSegmentationSettings), find_ignored=_find_unused)
