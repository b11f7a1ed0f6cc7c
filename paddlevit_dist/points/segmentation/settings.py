"""Configuration keys of semantic segmentation of point clouds."""

from collections.abc import Iterator
from typing import Literal

from ...core.losses.settings import OVERLAP, SMOOTHING, OverlapTrain, SmoothingTrain
from ...core.runtime.errors import UserError
from ...core.settings.key import ABOVE_0, AT_LEAST_0, SHARE, SHARE_BELOW_1, Key, Pair, Range, Section, key, rows
from ...core.settings.table import ConfigView, IgnoredKeys, KeyTable
from .. import settings


class AugmentSection(Section):
    """Keys of POINTS.AUGMENT."""

    FLIP: float = key(0.5, "probability of mirroring, for x and for y", SHARE, training_only=True)
    ROTATION_DEGREES: float = key(
        180.0, "maximum rotation around z, in either direction", Range(low=0, high=180), training_only=True
    )
    TILT_DEGREES: float = key(
        3.0, "maximum rotation around x and around y, in either direction", Range(low=0, high=90), training_only=True
    )
    SCALE: Pair[float] = key([0.9, 1.1], "range of the scale factor", Range(low=0.01), training_only=True)
    JITTER_M: float = key(
        0.0, "standard deviation of noise added to each point's coordinates, meters", AT_LEAST_0, training_only=True
    )
    ELASTIC: float = key(0.0, "probability of an elastic distortion", SHARE, training_only=True)
    DROPOUT: float = key(0.0, "fraction of points dropped", SHARE, training_only=True)
    DROPOUT_PROB: float = key(0.5, "probability of DROPOUT", SHARE, training_only=True)
    ROTATION_PROB: float = key(1.0, "probability of a rotation, for each axis", SHARE, training_only=True)
    COLOR_PROB: float = key(1.0, "probability of COLOR_JITTER with COLOR_SHIFT", SHARE, training_only=True)
    COLOR_JITTER: float = key(
        0.0, "standard deviation of noise added to each point's colors, out of 255", AT_LEAST_0, training_only=True
    )
    COLOR_SHIFT: float = key(
        0.0, "maximum shift of a color channel of all points, out of 255", AT_LEAST_0, training_only=True
    )
    COLOR_CONTRAST: float = key(0.0, "probability of stretching colors to the full range", SHARE, training_only=True)


class SegmentationPointSection(settings.PointSection):
    """Keys of POINTS."""

    MIX_PROB: float = key(0.0, "training: probability of adding a second scene (Mix3D)", SHARE, training_only=True)
    BLOCK_LR_FACTOR: float = key(
        1.0,
        "training: factor of the learning rate of the network's blocks, which TRAIN.LAYER_DECAY multiplies, too",
        ABOVE_0,
        training_only=True,
    )
    CLASS_WEIGHTS: list[float] | None = key(
        None, "training: weight of each class in the cross-entropy; None: all are 1", AT_LEAST_0, training_only=True
    )
    FOCAL_GAMMA: float = key(
        0.0,
        "training: exponent of the focal loss, which multiplies a point's cross-entropy by (1 - probability of its "
        "class) ** FOCAL_GAMMA; 0: off",
        Range(low=0, high=10),
        training_only=True,
    )
    TEST_ROTATIONS: int = key(
        1,
        "evaluation: number of rotations around z over which predictions are averaged; 1: no rotation",
        Range(low=1, high=36),
    )
    TEST_SCALES: list[float] = key(
        [1.0], "evaluation: scale factors of the scene over which predictions are averaged, too", Range(0.1, 10)
    )
    TEST_FLIPS: bool = key(False, "evaluation: also average over the mirror image of each rotation")
    TEST_VOTES: int = key(
        1,
        "evaluation: passes of the network over each view, at most, until each point of a voxel has been the one whose "
        "features the voxel has, and a point averages the probabilities of its passes; 1: one pass",
        Range(low=1, high=1000),
    )
    FRAGMENT_SIZE_M: float | None = key(
        None,
        "evaluation, prediction: edge of the square blocks in which the network processes a scene, meters; None: the "
        "whole scene at once",
        ABOVE_0,
    )
    FRAGMENT_OVERLAP_M: float = key(
        1.0,
        "FRAGMENT_SIZE_M: overlap of neighboring blocks, meters; logits are averaged where blocks overlap",
        AT_LEAST_0,
    )
    CROP: Literal["sphere", "block"] | None = key(
        None,
        "training: shape of a crop around a random labeled point; a block is unlimited in height; None: no crop",
        effect="training",  # but evaluations measure the features height and centered_xyz in blocks, too
    )
    CROP_SIZE_M: float = key(
        6.0, "CROP: diameter of the sphere, or edge of the block, meters", ABOVE_0, training_only=True
    )
    AUGMENT: AugmentSection


class SceneTrain(SmoothingTrain, OverlapTrain):
    """Section TRAIN of semantic segmentation of point clouds, whose own keys are in POINTS."""


class SceneSegmentationSettings(settings.PointSettings):
    """Settings of semantic segmentation of point clouds."""

    POINTS: SegmentationPointSection
    TRAIN: SceneTrain


def _check(view: ConfigView[SceneSegmentationSettings]) -> list[str]:
    points = view.values.POINTS
    if points.CLASS_WEIGHTS and not any(points.CLASS_WEIGHTS):
        raise UserError(f"{view['POINTS.CLASS_WEIGHTS']}: expected at least one weight above 0")
    if not points.TEST_SCALES:
        raise UserError(f"{view['POINTS.TEST_SCALES']}: expected at least one factor, such as [1.0]")
    if points.TEST_VOTES > 1 and points.VOXEL_FEATURES == "mean":
        raise UserError(
            f"{view['POINTS.TEST_VOTES']}: single points vote, but {view['POINTS.VOXEL_FEATURES']} gives the network "
            "means of all: set POINTS.TEST_VOTES 1"
        )
    origins = {
        "height": "heights are then above the lowest point",
        "centered_xyz": "positions are then from the middle",
    }
    relative = [name for name in origins if name in points.FEATURES and points.CROP == "block"]
    if relative and points.FRAGMENT_SIZE_M is None:
        raise UserError(
            f"{view['POINTS.CROP']}: {' and '.join(origins[name] for name in relative)} of a block, in evaluations, "
            f"too: set POINTS.FRAGMENT_SIZE_M {points.CROP_SIZE_M:g}, or leave {' and '.join(relative)} out of "
            "POINTS.FEATURES"
        )
    if points.FRAGMENT_SIZE_M is not None and points.FRAGMENT_OVERLAP_M >= points.FRAGMENT_SIZE_M:
        raise UserError(
            f"{view['POINTS.FRAGMENT_OVERLAP_M']}: expected less than {view['POINTS.FRAGMENT_SIZE_M']}, otherwise "
            "blocks do not advance"
        )
    notes = []
    if points.CROP is not None and "xyz" in points.FEATURES and (points.TEST_ROTATIONS > 1 or points.TEST_FLIPS):
        notes.append(
            f"{view['POINTS.CROP']}: training turns and mirrors crops around their own middle, evaluations scenes "
            "around the scene's: the feature xyz has other values in other views"
        )
    if points.FRAGMENT_SIZE_M is not None and points.FRAGMENT_SIZE_M != points.CROP_SIZE_M:
        sizes = f"{view['POINTS.FRAGMENT_SIZE_M']} differs from {view['POINTS.CROP_SIZE_M']}"
        effects = {
            "height": "on a slope, heights above a block's lowest point are then others",
            "centered_xyz": f"positions then reach {points.FRAGMENT_SIZE_M / 2:g} m from a block's middle, and "
            f"{points.CROP_SIZE_M / 2:g} m in training",
        }
        notes += [f"{sizes}: {effects[name]}" for name in relative]
    return notes


def _find_ignored(view: ConfigView[SceneSegmentationSettings]) -> Iterator[IgnoredKeys]:
    for choosing_key, ignored_key in (("FRAGMENT_SIZE_M", "FRAGMENT_OVERLAP_M"), ("CROP", "CROP_SIZE_M")):
        if view.values.POINTS[choosing_key] is None:
            yield IgnoredKeys((f"POINTS.{ignored_key}",), f"POINTS.{choosing_key}", "scenes stay whole: {}")
    if not view.values.POINTS.AUGMENT.DROPOUT:
        yield IgnoredKeys(("POINTS.AUGMENT.DROPOUT_PROB",), "POINTS.AUGMENT.DROPOUT", "no points are dropped: {}")


_FORMER = (
    Key("POINTS.LABEL_SMOOTHING", 0.0, "float", "label smoothing", SHARE_BELOW_1, training_only=True),
    Key("POINTS.DICE_WEIGHT", 0.0, "float", "weight of the Dice loss", AT_LEAST_0, training_only=True),
    Key("POINTS.LOVASZ_WEIGHT", 0.0, "float", "weight of the Lovasz loss", AT_LEAST_0, training_only=True),
)
TABLE = KeyTable(
    (*SMOOTHING, *OVERLAP, *rows(SceneSegmentationSettings)),
    check=_check,
    find_ignored=_find_ignored,
    former=_FORMER,
    renamed={
        "POINTS.LABEL_SMOOTHING": "TRAIN.SMOOTHING",
        "POINTS.DICE_WEIGHT": "TRAIN.DICE_WEIGHT",
        "POINTS.LOVASZ_WEIGHT": "TRAIN.LOVASZ_WEIGHT",
    },
)
