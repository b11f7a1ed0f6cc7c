"""Configuration keys specific to semantic segmentation of point clouds."""

from collections.abc import Iterator

from ...runtime.errors import UserError
from ...settings.key import ABOVE_0, AT_LEAST_0, SHARE, SHARE_BELOW_1, ConfigView, Key, Range, Table, Unused

_KEYS = (
    Key("POINTS.MIX_PROB", 0.0, "float", "training: probability that a second scene is laid over (Mix3D)", SHARE),
    Key("POINTS.LOVASZ_WEIGHT", 0.0, "float", "weight of the Lovasz loss beside the cross-entropy", AT_LEAST_0),
    Key("POINTS.DICE_WEIGHT", 0.0, "float", "weight of the Dice loss beside the cross-entropy", AT_LEAST_0),
    Key(
        "POINTS.CLASS_WEIGHTS",
        None,
        "float",
        "training: weight of each class in the cross-entropy; None: all are 1",
        AT_LEAST_0,
        many=True,
        optional=True,
    ),
    Key(
        "POINTS.LABEL_SMOOTHING",
        0.0,
        "float",
        "training: share of a point's label that the cross-entropy gives to all classes alike",
        SHARE_BELOW_1,
    ),
    Key(
        "POINTS.FOCAL_GAMMA",
        0.0,
        "float",
        "training: a point's cross-entropy is multiplied by (1 - probability of its class) to this power (focal loss); "
        "0: it is not",
        Range(low=0, high=10),
    ),
    Key(
        "POINTS.TEST_ROTATIONS",
        1,
        "int",
        "evaluation: mean of the predictions for this many directions of the scene; 1: as it is",
        Range(low=1, high=36),
    ),
    Key("POINTS.TEST_FLIPS", False, "bool", "evaluation: each of these directions is also seen mirrored"),
    Key(
        "POINTS.FRAGMENT_SIZE_M",
        None,
        "float",
        "evaluation, prediction: a scene goes through the network in square blocks of this edge, metres; None: as a "
        "whole",
        ABOVE_0,
        optional=True,
    ),
    Key(
        "POINTS.FRAGMENT_OVERLAP_M",
        1.0,
        "float",
        "FRAGMENT_SIZE_M: how far neighbouring blocks overlap, metres; there a point has the mean of their logits",
        AT_LEAST_0,
    ),
    Key(
        "POINTS.CROP",
        None,
        "text",
        "training: a scene is cut to a sphere, or a block over all heights, around a random labelled point",
        choices=("sphere", "block"),
        optional=True,
    ),
    Key("POINTS.CROP_SIZE_M", 6.0, "float", "CROP: diameter of a sphere, edge of a block, metres", ABOVE_0),
    Key("POINTS.AUGMENT.FLIP", 0.5, "float", "probability of mirroring, for x and for y", SHARE),
    Key("POINTS.AUGMENT.ROTATION_DEGREES", 180.0, "float", "largest angle around z", Range(low=0, high=180)),
    Key("POINTS.AUGMENT.TILT_DEGREES", 3.0, "float", "largest angle around x and around y", Range(low=0, high=90)),
    Key(
        "POINTS.AUGMENT.SCALE",
        [0.9, 1.1],
        "float",
        "range of the factor of all lengths",
        Range(low=0.01),
        None,
        True,
        2,
    ),
    Key("POINTS.AUGMENT.JITTER_M", 0.0, "float", "standard deviation of each point's movement, metres", AT_LEAST_0),
    Key("POINTS.AUGMENT.ELASTIC", 0.0, "float", "probability of an elastic distortion", SHARE),
    Key("POINTS.AUGMENT.DROPOUT", 0.0, "float", "share of the points left out every other time", SHARE),
    Key("POINTS.AUGMENT.COLOR_JITTER", 0.0, "float", "standard deviation of each point's colours, of 255", AT_LEAST_0),
    Key("POINTS.AUGMENT.COLOR_SHIFT", 0.0, "float", "largest common shift of a channel, of 255", AT_LEAST_0),
    Key("POINTS.AUGMENT.COLOR_CONTRAST", 0.0, "float", "probability of stretched colours", SHARE),
    Key("POINTS.AUGMENT.COLOR_DROP", 0.0, "float", "probability of no colours", SHARE),
)

_LOSSES = tuple(
    f"POINTS.{name}" for name in ("LOVASZ_WEIGHT", "DICE_WEIGHT", "CLASS_WEIGHTS", "LABEL_SMOOTHING", "FOCAL_GAMMA")
)


def _check(given: ConfigView) -> list[str]:
    points = given.values.POINTS
    if points.CLASS_WEIGHTS and not any(points.CLASS_WEIGHTS):
        raise UserError(f"{given['POINTS.CLASS_WEIGHTS']}: expected one above 0, or nothing is learnt")
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


def _unused(given: ConfigView) -> Iterator[Unused]:
    for chooser, key in (("FRAGMENT_SIZE_M", "FRAGMENT_OVERLAP_M"), ("CROP", "CROP_SIZE_M")):
        if given.values.POINTS[chooser] is None:
            yield Unused((f"POINTS.{key}",), f"POINTS.{chooser}", "scenes stay whole: {}")


TABLE = Table(
    _KEYS,
    training=("POINTS.MIX_PROB", "POINTS.CROP", "POINTS.CROP_SIZE_M", "POINTS.AUGMENT.", *_LOSSES),
    check=_check,
    unused=_unused,
)
