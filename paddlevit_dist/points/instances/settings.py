"""Configuration keys of the instance task. Defaults are PointGroup's, from its published program."""

from collections.abc import Iterator

from ...core.settings.key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE, Key, Section, key, rows
from ...core.settings.table import ConfigView, IgnoredKeys, KeyTable
from .. import settings


class InstanceSection(Section):
    """Keys of POINTS.INSTANCES."""

    STUFF_CLASSES: list[str] | None = key(
        None,
        "classes without instances; []: all have instances; None: nuScenes's and SemanticKITTI's own for their "
        "classes, else wall and floor",
    )
    FULL_SCALE: int = key(512, "training: width of the crop's box in voxels", AT_LEAST_1, training_only=True)
    DISTORTION: float = key(
        0.1,
        "training: standard deviation of noise added to the matrix that maps the points",
        AT_LEAST_0,
        training_only=True,
    )
    ROTATION: bool = key(True, "training: random rotation around z by any angle", training_only=True)
    ELASTIC: bool = key(True, "training: elastic distortion of the voxels, fine and coarse", training_only=True)
    PREPARE_EPOCHS: int = key(
        128, "training epochs before clusters are formed and scored", AT_LEAST_0, training_only=True, counts="epochs"
    )
    RADIUS_M: float = key(
        0.03,
        "distance below which two points of a class are connected, meters; about twice the point spacing",
        ABOVE_0,
    )
    CLUSTER_POINTS: int = key(50, "minimum points of a cluster", AT_LEAST_1)
    SCORE_SCALE: float = key(50.0, "maximum voxels per meter in the cube in which a cluster is scored", ABOVE_0)
    SCORE_THRESHOLD: float = key(0.09, "score that a prediction must exceed", SHARE)
    MIN_PREDICTION_POINTS: int = key(100, "points that a prediction must exceed", AT_LEAST_0)
    AP_MIN_POINTS: int = key(
        100,
        "evaluation: points of the smallest instance, true or predicted, that AP counts, in ScanNet's benchmark 100",
        AT_LEAST_1,
    )
    PANOPTIC_MIN_POINTS: int | None = key(
        None,
        "evaluation: compute panoptic quality; a segment without a match is an error if it has at least this number of "
        "points (SemanticKITTI 50, nuScenes 15); None: do not compute it",
        AT_LEAST_1,
    )
    NMS_IOU: float = key(0.3, "IoU above which only the better of two overlapping predictions is kept", SHARE)


class InstancePointSection(settings.PointSection):
    """Keys of POINTS."""

    INSTANCES: InstanceSection


class InstanceSettings(settings.PointSettings):
    """Settings of the instance task."""

    POINTS: InstancePointSection


def _check(view: ConfigView[InstanceSettings]) -> list[str]:
    notes: list[str] = []
    keys = view.values.POINTS.INSTANCES
    if keys.AP_MIN_POINTS < keys.MIN_PREDICTION_POINTS:
        notes.append(
            f"{view['POINTS.INSTANCES.AP_MIN_POINTS']}: instances of up to {keys.MIN_PREDICTION_POINTS} points are "
            "never predicted: set POINTS.INSTANCES.MIN_PREDICTION_POINTS lower"
        )
    if view.values.EVAL or view.values.TRAIN.NUM_EPOCHS > keys.PREPARE_EPOCHS:
        return notes
    return [
        *notes,
        f"{view['POINTS.INSTANCES.PREPARE_EPOCHS']}: the score network is never trained in "
        f"{view['TRAIN.NUM_EPOCHS']}: set PREPARE_EPOCHS lower, or train longer",
    ]


def _find_ignored(view: ConfigView[InstanceSettings]) -> Iterator[IgnoredKeys]:
    if view.values.POINTS.MAX_POINTS is None:
        yield IgnoredKeys(("POINTS.INSTANCES.FULL_SCALE",), "POINTS.MAX_POINTS", "no scene is cropped: {}")


TABLE = KeyTable(
    rows(InstanceSettings),
    check=_check,
    find_ignored=_find_ignored,
    former=(
        Key("POINTS.INSTANCES.WIDTH", 16, "int", "channels of the U-Net's first level", effect="network"),
        Key("POINTS.INSTANCES.BLOCKS", 2, "int", "residual blocks of each level", effect="network"),
    ),
    renamed={
        "POINTS.INSTANCES.WIDTH": "MODEL.OPTIONS.width",
        "POINTS.INSTANCES.BLOCKS": "MODEL.OPTIONS.repeats",
    },
)
