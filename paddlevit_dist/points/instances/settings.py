"""Configuration keys specific to the instance task. Defaults are those of PointGroup's published program."""

from typing import Annotated, Literal

from ...settings.key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE, ConfigView, KeyTable
from ...settings.section import Section, key, rows
from .. import settings


class InstanceSection(Section):
    WIDTH: int = key(16, "channels of the U-Net's first level; level i has i times as many", AT_LEAST_1)
    BLOCKS: int = key(2, "residual blocks of a level on each way", AT_LEAST_1)
    USE_POSITIONS: bool = key(True, "voxels show positions beside colors")
    FROZEN_MODULES: list[
        Literal[
            "input_conv",
            "unet",
            "output_layer",
            "linear",
            "offset",
            "offset_linear",
            "score_unet",
            "score_outputlayer",
            "score_linear",
        ]
    ] = key([], "parts of the network that are not trained")
    STUFF_CLASSES: list[str] = key(
        ["wall", "floor"], "classes that are not objects; names that the dataset does not have are ignored"
    )
    FULL_SCALE: int = key(512, "training: width in voxels of the box of the crop", AT_LEAST_1)
    DISTORTION: float = key(
        0.1, "training: standard deviation of what is added to the matrix that maps the points", AT_LEAST_0
    )
    FLIP: float = key(0.5, "training: probability of mirroring x", SHARE)
    ROTATION: bool = key(True, "training: turn around z by any angle")
    ELASTIC: bool = key(True, "training: elastic distortion of the voxels, fine and coarse")
    PREPARE_EPOCHS: int = key(128, "epochs before clusters are formed and scored", AT_LEAST_0)
    RADIUS_M: float = key(
        0.03,
        "points of a class that are closer belong together: about twice the distance of neighboring points",
        ABOVE_0,
    )
    CLUSTER_POINTS: int = key(50, "minimum points of a cluster", AT_LEAST_1)
    SCORE_GRID: int = key(14, "voxels along the cube in which a cluster is scored", AT_LEAST_1)
    SCORE_SCALE: float = key(50.0, "most voxels per meter in that cube", ABOVE_0)
    BACKGROUND_IOU: float = key(0.25, "target score 0 below this IoU with the truth", SHARE)
    FOREGROUND_IOU: float = key(0.75, "target score 1 above this IoU with the truth", SHARE)
    LOSS_WEIGHTS: Annotated[list[float], 4] = key(
        [1.0, 1.0, 1.0, 1.0],
        "weights of the losses: classes, lengths of offsets, directions of offsets, scores",
        AT_LEAST_0,
    )
    SCORE_THRESHOLD: float = key(0.09, "keep only predictions with a higher score", SHARE)
    MIN_PREDICTION_POINTS: int = key(100, "keep only predictions with more points", AT_LEAST_0)
    NMS_IOU: float = key(0.3, "of predictions that overlap more, the one with the best score", SHARE)


class InstancePointSection(settings.PointSection):
    INSTANCES: InstanceSection


class InstanceSettings(settings.PointSettings):
    POINTS: InstancePointSection


def _check(given: ConfigView[InstanceSettings]) -> list[str]:
    preparing = given.values.POINTS.INSTANCES.PREPARE_EPOCHS
    if given.values.EVAL or given.values.TRAIN.NUM_EPOCHS > preparing:
        return []
    return [
        f"{given['POINTS.INSTANCES.PREPARE_EPOCHS']}: the network that scores clusters is never trained in "
        f"{given['TRAIN.NUM_EPOCHS']}: set it lower, or train longer"
    ]


_TRAINING = """
FROZEN FULL_SCALE DISTORTION FLIP ROTATION ELASTIC PREPARE_EPOCHS BACKGROUND_IOU FOREGROUND_IOU LOSS_WEIGHTS
"""
TABLE = KeyTable(
    rows(InstanceSettings),
    training=tuple(f"POINTS.INSTANCES.{name}" for name in _TRAINING.split()),
    effects={"network": ("POINTS.INSTANCES.WIDTH", "POINTS.INSTANCES.BLOCKS")},
    check=_check,
)
