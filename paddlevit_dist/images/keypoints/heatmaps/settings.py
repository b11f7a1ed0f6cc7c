"""Keys of keypoints by heatmaps: crops of objects, where their boxes are from, and the network's maps."""

from collections.abc import Iterator
from typing import Literal

from ....core.runtime.errors import UserError
from ....core.settings.key import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    SHARE,
    Flag,
    Key,
    Pair,
    PathText,
    Range,
    Section,
    key,
    rows,
)
from ....core.settings.table import ConfigView, IgnoredKeys, KeyTable
from ...settings import SIDE_PX
from ..settings import KeypointSettings

_SCALE = Range(low=0, high=0.9)
# Keys of detection that concern whole images.
_OF_DETECTION = (
    *("SHORTEST_SIDES", "RESIZE_TO_SQUARE", "BATCH_SIDES", "LONGEST_SIDE", "CROP_PROBABILITY", "CROP_SHORTEST_SIDES"),
    *("CROP_SIDES", "SSD_AUGMENT", "MOSAIC", "COPY_PASTE", "NO_AUGMENT_EPOCHS", "EVAL_RESIZE", "GROUP_BY_SHAPE"),
    *("KEEP_EMPTY_IMAGES", "EVAL_SHORTEST_SIDE", "EVAL_LONGEST_SIDE"),
)


class HeatmapKeys(Section):
    """Keys of HEATMAPS."""

    CROP_SIZE: Pair[int] = key(
        [256, 192], "height and width of an object's crop, multiples of the backbone's stride", SIDE_PX
    )
    STRIDE: int = key(4, "pixels of a crop from one cell of a heatmap to the next", AT_LEAST_1, effect="network")
    SIGMA: float = key(
        2.0, "training: standard deviation of a target around its point, in cells", ABOVE_0, training_only=True
    )
    KERNEL: int = key(
        11, "cells of the smoothing before a peak is refined, an odd number; for SIGMA 3, 17 is usual", AT_LEAST_1
    )
    BOX_SCALE: float = key(1.25, "size of a crop relative to the box that it fits", ABOVE_0)
    SHIFT: float = key(
        0.16, "training: standard deviation of a crop's shift, as a share of its sides", SHARE, training_only=True
    )
    SCALE: float = key(0.5, "training: largest relative change of a crop's size", _SCALE, training_only=True)
    ROTATION: float = key(
        40.0, "training: standard deviation of a crop's rotation in degrees", AT_LEAST_0, training_only=True
    )
    FLIP: bool = key(True, "evaluation and prediction: average with the heatmaps of the mirrored crop")
    BOXES: Literal["truth", "image"] = key(
        "truth",
        "boxes of the objects: truth (of the annotations), or image (the whole image, for one object each); "
        "prediction has no annotations and takes whole images without DETECTOR",
        effect="score",
    )
    BOX_FILE: PathText | None = key(
        None, "evaluation: file of detections in COCO's result format, with the boxes in place of BOXES", effect="score"
    )
    DETECTOR: PathText | None = key(
        None,
        "evaluation and prediction: run of a detector that finds the boxes, in place of BOXES",
        effect="score",
        flag=Flag("detector", "RUN", "prediction", 4, "keypoints by heatmaps: run of a detector that finds the boxes"),
    )
    BOX_SCORE: float = key(0.05, "lowest score of a detected box whose keypoints are predicted", SHARE)
    POINT_SCORE: float = key(
        0.2, "score above which a point counts in the score of its object, the mean times that of the box", SHARE
    )
    NMS_OKS: float = key(0.9, "similarity above which the worse of two detected objects is removed", SHARE)


class HeatmapSettings(KeypointSettings):
    """Keys of keypoints by heatmaps."""

    HEATMAPS: HeatmapKeys


def _check(view: ConfigView[HeatmapSettings]) -> list[str]:
    keys = view.values.HEATMAPS
    if keys.KERNEL % 2 == 0:
        raise UserError(f"{view['HEATMAPS.KERNEL']}: expected an odd number, such as {keys.KERNEL + 1}")
    if min(keys.CROP_SIZE) // keys.STRIDE < 2:
        raise UserError(f"{view['HEATMAPS.CROP_SIZE']}: expected at least two cells of HEATMAPS.STRIDE {keys.STRIDE}")
    return []


def _find_ignored(view: ConfigView[HeatmapSettings]) -> Iterator[IgnoredKeys]:
    keys = view.values.HEATMAPS
    names = (*(f"DATA.{name}" for name in _OF_DETECTION), "DETECTION.EVAL_BATCHING", "DETECTION.WINDOW")
    yield IgnoredKeys(names, "TASK", "objects are cropped to HEATMAPS.CROP_SIZE: {}")
    if keys.DETECTOR is not None:
        yield IgnoredKeys(("HEATMAPS.BOX_FILE",), "HEATMAPS.DETECTOR", "the detector finds the boxes: {}")
    elif keys.BOX_FILE is None:
        scored = ("HEATMAPS.BOX_SCORE", "HEATMAPS.NMS_OKS")
        yield IgnoredKeys(scored, "HEATMAPS.DETECTOR", "boxes have no scores without detections: {}")


TABLE = KeyTable(
    keys=rows(HeatmapSettings),
    check=_check,
    find_ignored=_find_ignored,
    former=(Key("HEATMAPS.DECODER", None, "text", "decoder of the network", optional=True, effect="network"),),
    renamed={"HEATMAPS.DECODER": "MODEL.OPTIONS.decoder"},
)
