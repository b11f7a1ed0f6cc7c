"""Keys of keypoints of several objects in one step: the losses of DETRPose."""

from collections.abc import Iterator
from typing import Literal

from ....core.settings.key import AT_LEAST_0, Key, Section, key, rows
from ....core.settings.table import ConfigView, IgnoredKeys, KeyTable
from ..settings import KeypointSettings

VFL, MAL = "vfl", "mal"
# Keys of detection that are for other networks, for boxes, or for parts of images.
_OF_BOXES = (
    *("DETECTION.WINDOW", "DETECTION.WINDOW_OVERLAP", "DETECTION.FLIP", "DETECTION.MERGE_IOU"),
    *("DETECTION.WISHED_PRECISION", "DETECTION.WISHED_RECALL"),
    *("MODEL.MASK_PADDING", "TRAIN.RANDOM_SAMPLING"),
)


class PoseKeys(Section):
    """Keys of POSES."""

    CLASS_LOSS: Literal["vfl", "mal"] = key(
        VFL,
        "loss of an object's score, which learns its similarity: vfl (varifocal loss), or mal (matchability-aware)",
        training_only=True,
    )
    DISTILL_LOSS_WEIGHT: float = key(
        0.0,
        "weight of the divergence of each decoder layer's distributions from the last one's, as in D-FINE",
        AT_LEAST_0,
        training_only=True,
    )


class PoseSettings(KeypointSettings):
    """Keys of keypoints of several objects in one step."""

    POSES: PoseKeys


def _find_ignored(view: ConfigView[PoseSettings]) -> Iterator[IgnoredKeys]:
    yield IgnoredKeys(_OF_BOXES, "TASK", "whole images have one pass each, and no boxes: {}")


TABLE = KeyTable(
    keys=rows(PoseSettings),
    find_ignored=_find_ignored,
    former=(
        Key("POSES.KEYPOINT_LOSS_WEIGHT", 10.0, "float", "it is 10, as the authors'; remove it", training_only=True),
        Key("POSES.OKS_LOSS_WEIGHT", 4.0, "float", "it is 4, as the authors'; remove it", training_only=True),
        Key("POSES.DENOISING", None, "int", "queries that restore objects with noise", optional=True, effect="network"),
    ),
    renamed={"POSES.DENOISING": "MODEL.OPTIONS.denoising"},
)
