"""The configuration keys that only point clouds read."""

from __future__ import annotations

from ..config.key import Key, Range

_AT_LEAST_0 = Range(low=0)
_AT_LEAST_1 = Range(low=1)
_SHARE = Range(low=0, high=1)

KEYS = (
    Key("DATA.VOXEL_SIZE_M", 0.05, "float", "point clouds: edge of a voxel in metres", Range(low=1e-4, high=100)),
    Key(
        "POINTS.FEATURES",
        ["rgb"],
        "text",
        "what the network sees of a voxel: rgb (3 channels), height above the lowest point (1), ones (1)",
        choices=("rgb", "height", "ones"),
        many=True,
    ),
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
        _AT_LEAST_1,
        optional=True,
    ),
    Key("POINTS.MIX_PROB", 0.0, "float", "training: probability that a second scene is laid over (Mix3D)", _SHARE),
    Key("POINTS.LOVASZ_WEIGHT", 0.0, "float", "weight of the Lovasz loss beside the cross-entropy", _AT_LEAST_0),
    Key(
        "POINTS.TEST_ROTATIONS",
        1,
        "int",
        "evaluation: mean of the predictions for this many directions of the scene; 1: as it is",
        Range(low=1, high=36),
    ),
    Key("POINTS.AUGMENT.FLIP", 0.5, "float", "probability of mirroring, for x and for y", _SHARE),
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
    Key("POINTS.AUGMENT.JITTER_M", 0.0, "float", "standard deviation of each point's movement, metres", _AT_LEAST_0),
    Key("POINTS.AUGMENT.ELASTIC", 0.0, "float", "probability of an elastic distortion", _SHARE),
    Key("POINTS.AUGMENT.DROPOUT", 0.0, "float", "share of the points left out every other time", _SHARE),
    Key("POINTS.AUGMENT.COLOR_JITTER", 0.0, "float", "standard deviation of each point's colours, of 255", _AT_LEAST_0),
    Key("POINTS.AUGMENT.COLOR_SHIFT", 0.0, "float", "largest common shift of a channel, of 255", _AT_LEAST_0),
    Key("POINTS.AUGMENT.COLOR_CONTRAST", 0.0, "float", "probability of stretched colours", _SHARE),
    Key("POINTS.AUGMENT.COLOR_DROP", 0.0, "float", "probability of no colours", _SHARE),
    Key("POINTS.ROOMS.TRAIN", 400, "int", "synthetic_rooms: training rooms", _AT_LEAST_1),
    Key("POINTS.ROOMS.VAL", 40, "int", "synthetic_rooms: validation rooms", _AT_LEAST_1),
    Key(
        "POINTS.ROOMS.SPACING_M",
        0.04,
        "float",
        "synthetic_rooms: mean distance of neighbouring points",
        Range(low=0.01, high=0.2),
    ),
)
