"""Keys of losses that tasks of several kinds of data have in common, each in the tables of these tasks."""

from ..settings.every_run import RunSettings, TrainSection
from ..settings.key import AT_LEAST_0, SHARE_BELOW_1, key, rows


class SmoothingTrain(TrainSection):
    """Section TRAIN of tasks with a class for each image, shape or point."""

    SMOOTHING: float = key(
        0.0, "label smoothing: fraction of a label spread evenly over all classes, or over yes and no", SHARE_BELOW_1
    )


class OverlapTrain(TrainSection):
    """Section TRAIN of semantic segmentation."""

    DICE_WEIGHT: float = key(
        0.0, "weight of the Dice loss of each image or scene, added to the cross-entropy", AT_LEAST_0
    )
    LOVASZ_WEIGHT: float = key(
        0.0,
        "weight of the Lovasz loss, added to the cross-entropy; of each image, or of all points of a device's batch",
        AT_LEAST_0,
    )


class SmoothingSettings(RunSettings):
    """Settings of a run with smoothed labels."""

    TRAIN: SmoothingTrain


class OverlapSettings(RunSettings):
    """Settings of a run with losses of overlaps."""

    TRAIN: OverlapTrain


SMOOTHING = rows(SmoothingSettings)
OVERLAP = rows(OverlapSettings)
