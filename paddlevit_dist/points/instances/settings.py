"""Configuration keys specific to the instance task. Defaults are those of PointGroup's published program."""

from ...settings.key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE, ConfigView, Key, Table

_KEYS = (
    Key(
        "POINTS.INSTANCES.WIDTH",
        16,
        "int",
        "channels of the U-Net's first level; level i has i times as many",
        AT_LEAST_1,
    ),
    Key("POINTS.INSTANCES.BLOCKS", 2, "int", "residual blocks of a level on each way", AT_LEAST_1),
    Key("POINTS.INSTANCES.USE_POSITIONS", True, "bool", "voxels show positions beside colours"),
    Key(
        "POINTS.INSTANCES.FROZEN",
        [],
        "text",
        "parts of the network that are not trained",
        choices=(
            "input_conv",
            "unet",
            "output_layer",
            "linear",
            "offset",
            "offset_linear",
            "score_unet",
            "score_outputlayer",
            "score_linear",
        ),
        many=True,
    ),
    Key(
        "POINTS.INSTANCES.STUFF",
        ["wall", "floor"],
        "text",
        "classes that are not objects; names that the dataset does not have are ignored",
        many=True,
    ),
    Key("POINTS.INSTANCES.FULL_SCALE", 512, "int", "training: width in voxels of the box of the crop", AT_LEAST_1),
    Key(
        "POINTS.INSTANCES.DISTORTION",
        0.1,
        "float",
        "training: standard deviation of what is added to the matrix that maps the points",
        AT_LEAST_0,
    ),
    Key("POINTS.INSTANCES.FLIP", 0.5, "float", "training: probability of mirroring x", SHARE),
    Key("POINTS.INSTANCES.ROTATION", True, "bool", "training: turn around z by any angle"),
    Key("POINTS.INSTANCES.ELASTIC", True, "bool", "training: elastic distortion of the voxels, fine and coarse"),
    Key("POINTS.INSTANCES.PREPARE_EPOCHS", 128, "int", "epochs before clusters are formed and scored", AT_LEAST_0),
    Key(
        "POINTS.INSTANCES.RADIUS_M",
        0.03,
        "float",
        "points of a class that are closer belong together: about twice the distance of neighbouring points",
        ABOVE_0,
    ),
    Key("POINTS.INSTANCES.CLUSTER_POINTS", 50, "int", "minimum points of a cluster", AT_LEAST_1),
    Key("POINTS.INSTANCES.SCORE_GRID", 14, "int", "voxels along the cube in which a cluster is scored", AT_LEAST_1),
    Key("POINTS.INSTANCES.SCORE_SCALE", 50.0, "float", "most voxels per metre in that cube", ABOVE_0),
    Key("POINTS.INSTANCES.BACKGROUND_IOU", 0.25, "float", "target score 0 below this IoU with the truth", SHARE),
    Key("POINTS.INSTANCES.FOREGROUND_IOU", 0.75, "float", "target score 1 above this IoU with the truth", SHARE),
    Key(
        "POINTS.INSTANCES.LOSS_WEIGHTS",
        [1.0, 1.0, 1.0, 1.0],
        "float",
        "weights of the losses: classes, lengths of offsets, directions of offsets, scores",
        AT_LEAST_0,
        many=True,
        length=4,
    ),
    Key("POINTS.INSTANCES.SCORE_THRESHOLD", 0.09, "float", "keep only predictions with a higher score", SHARE),
    Key("POINTS.INSTANCES.SMALLEST_PREDICTION", 100, "int", "keep only predictions with more points", AT_LEAST_0),
    Key(
        "POINTS.INSTANCES.NMS_IOU",
        0.3,
        "float",
        "of predictions that overlap more, the one with the best score",
        SHARE,
    ),
)


def _check(given: ConfigView) -> list[str]:
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
TABLE = Table(
    _KEYS,
    training=tuple(f"POINTS.INSTANCES.{name}" for name in _TRAINING.split()),
    effects={"network": ("POINTS.INSTANCES.WIDTH", "POINTS.INSTANCES.BLOCKS")},
    check=_check,
    gone={"POINTS.INSTANCES.COLOR_NOISE": (0.1, "it is 0.1, as in the published program; leave it out")},
)
