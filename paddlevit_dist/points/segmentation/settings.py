"""Configuration keys specific to semantic segmentation of point clouds."""

from collections.abc import Iterator
from typing import Literal

from ...runtime.errors import UserError
from ...settings.key import ABOVE_0, AT_LEAST_0, SHARE, SHARE_BELOW_1, ConfigView, IgnoredKeys, KeyTable, Range
from ...settings.section import Pair, Section, key, rows
from .. import settings


class AugmentSection(Section):
    FLIP: float = key(0.5, "probability of mirroring, for x and for y", SHARE)
    ROTATION_DEGREES: float = key(180.0, "largest angle around z", Range(low=0, high=180))
    TILT_DEGREES: float = key(3.0, "largest angle around x and around y", Range(low=0, high=90))
    SCALE: Pair[float] = key([0.9, 1.1], "range of the factor of all lengths", Range(low=0.01))
    JITTER_M: float = key(0.0, "standard deviation of each point's movement, meters", AT_LEAST_0)
    ELASTIC: float = key(0.0, "probability of an elastic distortion", SHARE)
    DROPOUT: float = key(0.0, "share of the points left out every other time", SHARE)
    COLOR_JITTER: float = key(0.0, "standard deviation of each point's colors, of 255", AT_LEAST_0)
    COLOR_SHIFT: float = key(0.0, "largest common shift of a channel, of 255", AT_LEAST_0)
    COLOR_CONTRAST: float = key(0.0, "probability of stretched colors", SHARE)
    COLOR_DROP: float = key(0.0, "probability of no colors", SHARE)


class SegmentationPointSection(settings.PointSection):
    MIX_PROB: float = key(0.0, "training: probability that a second scene is laid over (Mix3D)", SHARE)
    LOVASZ_WEIGHT: float = key(0.0, "weight of the Lovasz loss beside the cross-entropy", AT_LEAST_0)
    DICE_WEIGHT: float = key(0.0, "weight of the Dice loss beside the cross-entropy", AT_LEAST_0)
    CLASS_WEIGHTS: list[float] | None = key(
        None, "training: weight of each class in the cross-entropy; None: all are 1", AT_LEAST_0
    )
    LABEL_SMOOTHING: float = key(
        0.0, "training: share of a point's label that the cross-entropy gives to all classes alike", SHARE_BELOW_1
    )
    FOCAL_GAMMA: float = key(
        0.0,
        "training: a point's cross-entropy is multiplied by (1 - probability of its class) to this power (focal loss); "
        "0: it is not",
        Range(low=0, high=10),
    )
    TEST_ROTATIONS: int = key(
        1,
        "evaluation: mean of the predictions for this many directions of the scene; 1: as it is",
        Range(low=1, high=36),
    )
    TEST_FLIPS: bool = key(False, "evaluation: each of these directions is also seen mirrored")
    FRAGMENT_SIZE_M: float | None = key(
        None,
        "evaluation, prediction: a scene goes through the network in square blocks of this edge, meters; None: as a "
        "whole",
        ABOVE_0,
    )
    FRAGMENT_OVERLAP_M: float = key(
        1.0,
        "FRAGMENT_SIZE_M: how far neighboring blocks overlap, meters; there a point has the mean of their logits",
        AT_LEAST_0,
    )
    CROP: Literal["sphere", "block"] | None = key(
        None, "training: a scene is cut to a sphere, or a block over all heights, around a random labeled point"
    )
    CROP_SIZE_M: float = key(6.0, "CROP: diameter of a sphere, edge of a block, meters", ABOVE_0)
    AUGMENT: AugmentSection


class SceneSegmentationSettings(settings.PointSettings):
    POINTS: SegmentationPointSection


_LOSSES = tuple(
    f"POINTS.{name}" for name in ("LOVASZ_WEIGHT", "DICE_WEIGHT", "CLASS_WEIGHTS", "LABEL_SMOOTHING", "FOCAL_GAMMA")
)


def _check(given: ConfigView[SceneSegmentationSettings]) -> list[str]:
    points = given.values.POINTS
    if points.CLASS_WEIGHTS and not any(points.CLASS_WEIGHTS):
        raise UserError(f"{given['POINTS.CLASS_WEIGHTS']}: expected one above 0, or nothing is learned")
    if points.FRAGMENT_SIZE_M is not None and points.FRAGMENT_OVERLAP_M >= points.FRAGMENT_SIZE_M:
        raise UserError(
            f"{given['POINTS.FRAGMENT_OVERLAP_M']}: expected less than {given['POINTS.FRAGMENT_SIZE_M']}, or blocks "
            "never come to an end"
        )
    if points.CROP == "sphere" and "height" in points.FEATURES:
        return [
            f"{given['POINTS.CROP']}: height in POINTS.FEATURES is above the lowest point of a sphere in the training "
            "and of the whole scene in evaluations; block reaches down to the floor"
        ]
    return []


def _find_unused(given: ConfigView[SceneSegmentationSettings]) -> Iterator[IgnoredKeys]:
    for chooser, chosen in (("FRAGMENT_SIZE_M", "FRAGMENT_OVERLAP_M"), ("CROP", "CROP_SIZE_M")):
        if given.values.POINTS[chooser] is None:
            yield IgnoredKeys((f"POINTS.{chosen}",), f"POINTS.{chooser}", "scenes stay whole: {}")


TABLE = KeyTable(
    rows(SceneSegmentationSettings),
    training=("POINTS.MIX_PROB", "POINTS.CROP", "POINTS.CROP_SIZE_M", "POINTS.AUGMENT.", *_LOSSES),
    check=_check,
    find_ignored=_find_unused,
)
