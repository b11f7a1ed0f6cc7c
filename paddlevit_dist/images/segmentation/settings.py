"""Configuration keys of segmentation of images."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from yacs.config import CfgNode

from ...registry import TABLES
from ...runtime.errors import UserError
from ...settings.key import AT_LEAST_0, AT_LEAST_1, SHARE_ABOVE_0, ConfigView, IgnoredKeys, KeySetting, KeyTable, Range
from ...settings.section import Pair, PathText, Section, key, rows
from ..settings import SIDE_PX, ObjectData, ObjectSettings


class SegmentationDataSection(ObjectData):
    BASE_SHORTEST_SIDE: int | None = key(
        None, "training: an image whose scale is 1 has a shorter side of so many pixels; None: its own size", SIDE_PX
    )
    BASE_LONGEST_SIDE: int | None = key(None, "training: most pixels of the longer side at scale 1", SIDE_PX)
    SCALE_RANGE: Pair[float] = key(
        [0.5, 2.0], "training: smallest and largest scale of an image, drawn evenly", Range(low=0.01, high=100)
    )
    RESIZE: Literal["pillow", "opencv"] = key(
        "pillow",
        "images are resized with Pillow's filter, which averages over what becomes smaller; or between the four "
        "nearest pixels, as the published models were trained and evaluated",
    )
    CROP_SIZE: Pair[int] = key(
        [512, 512], "crop in training, and SEGMENTATION.CROP unless it is set: height and width", SIDE_PX
    )
    MAX_CLASS_FRACTION: float = key(
        0.75,
        "training: a crop of which one class has more than this share of the labeled pixels is drawn again, ten times "
        "at most; 1: never",
        SHARE_ABOVE_0,
    )
    PHOTOMETRIC: bool = key(True, "training: brightness, contrast, saturation and hue change at random")
    TRANSFORMS: list[str] = key(
        [], "training: names of register_transform, applied in this order to image and labels before all else"
    )
    EVAL_DIVISOR: int = key(
        1,
        "evaluation and prediction: both sides are enlarged to multiples of so many pixels; SegFormer's authors: 32",
        AT_LEAST_1,
    )
    CLASS_LIST: PathText | None = key(
        None,
        "file with the names of the classes, and their numbers or colors in label maps, below DATA_PATH or absolute; "
        "None: classes.txt, labelmap.txt, classes.csv, classes.json or the like, where there is one",
    )
    REDUCE_ZERO_LABEL: bool | None = key(
        None, "0 in label maps is no class, and k is class k - 1; None: so for ADE20K and Pascal Context only"
    )
    UNLABELED_PIXELS: Literal["background", "ignored"] = key(
        "background", "pixels outside of all outlines of Labelme or YOLO: class background, or ignored"
    )


class SegmentationSection(Section):
    CLASS_WEIGHTS: list[float] | None = key(None, "of each class in the loss; None: 1", AT_LEAST_0)
    DICE_WEIGHT: float = key(0.0, "weight of the Dice loss beside the cross-entropy", AT_LEAST_0)
    LOVASZ_WEIGHT: float = key(0.0, "weight of the Lovasz loss beside the cross-entropy", AT_LEAST_0)
    OHEM_THRESHOLD: float | None = key(
        None,
        "only pixels whose class has a smaller probability than this count in the cross-entropy of the main head, and "
        "the OHEM_MIN_KEPT hardest of each image; None: all",
        SHARE_ABOVE_0,
    )
    OHEM_MIN_KEPT: int = key(100_000, "OHEM_THRESHOLD: fewest pixels of an image that count", AT_LEAST_1)
    PROTOCOL: Literal["whole", "slide"] = key(
        "whole", "evaluation and prediction: the network sees images whole, or by windows that slide over them"
    )
    CROP: Pair[int] | None = key(
        None, "height and width of a window, and of an exported input; None: of DATA.CROP_SIZE", SIDE_PX
    )
    STRIDE: Pair[int] | None = key(
        None, "rows and columns from one window to the next; None: two thirds of the window", SIDE_PX
    )
    SCALES: list[float] = key(
        [1.0], "evaluation and prediction: mean over these scales of what the network sees", Range(low=0.05, high=20)
    )
    FLIP: bool = key(False, "evaluation and prediction: mean with what it finds in mirrored images")
    RESIZE_LOGITS_VIA: Literal["input", "stored"] = key(
        "input",
        "logits become as large as the network's input, then as the stored image, as mmsegmentation has it; stored: "
        "in one step, as transformers",
    )


class SegmentationSettings(ObjectSettings):
    DATA: SegmentationDataSection
    SEGMENTATION: SegmentationSection


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Images are turned as their labels ask for, unless somebody says otherwise: outlines were drawn on turned ones,
    label maps were not."""
    if values.TASK in TABLES and "DATA.EXIF_ROTATE" not in settings:  # no user's task that reads all subjects' keys
        values.DATA.EXIF_ROTATE = None
    return []


def _check(given: ConfigView[SegmentationSettings]) -> list[str]:
    data = given.values.DATA
    low, high = data.SCALE_RANGE
    if low > high:
        raise UserError(f"{given['DATA.SCALE_RANGE']}: expected the smaller number first, such as [{high}, {low}]")
    for stage in ("BASE", "EVAL"):
        longest, shortest = f"DATA.{stage}_LONGEST_SIDE", f"DATA.{stage}_SHORTEST_SIDE"
        if data[f"{stage}_LONGEST_SIDE"] is not None and data[f"{stage}_SHORTEST_SIDE"] is None:
            raise UserError(f"{given[longest]}: it limits {shortest}, which is not set: set that, or leave this out")
    own = given.values.SEGMENTATION
    if own.CLASS_WEIGHTS and not any(own.CLASS_WEIGHTS):
        raise UserError(f"{given['SEGMENTATION.CLASS_WEIGHTS']}: expected one above 0, or nothing is learned")
    if not own.SCALES:
        raise UserError(f"{given['SEGMENTATION.SCALES']}: expected at least one, such as [1.0]")
    crop = own.CROP or data.CROP_SIZE
    if own.STRIDE is not None and any(step > side for step, side in zip(own.STRIDE, crop)):
        raise UserError(
            f"{given['SEGMENTATION.STRIDE']}: windows of {list(crop)} pixels (SEGMENTATION.CROP) would leave gaps"
        )
    return []


def _find_unused(given: ConfigView[SegmentationSettings]) -> Iterator[IgnoredKeys]:
    if given.values.SEGMENTATION.OHEM_THRESHOLD is None:
        yield IgnoredKeys(("SEGMENTATION.OHEM_MIN_KEPT",), "SEGMENTATION.OHEM_THRESHOLD", "all pixels count: {}")
    elif given.values.SEGMENTATION.OHEM_MIN_KEPT >= math.prod(given.values.DATA.CROP_SIZE):
        why = "a crop has no more pixels than always count: {}"
        yield IgnoredKeys(("SEGMENTATION.OHEM_THRESHOLD",), "SEGMENTATION.OHEM_MIN_KEPT", why)
    if given.values.SEGMENTATION.PROTOCOL == "whole":
        yield IgnoredKeys(("SEGMENTATION.STRIDE",), "SEGMENTATION.PROTOCOL", "there are no windows: {}")
    if given.values.DATA.VAL_FRACTION is None:
        yield IgnoredKeys(("DATA.VAL_SEED",), "DATA.VAL_FRACTION", "nothing is held out: {}")


_KEYS = rows(SegmentationSettings)
_LOSSES = ("CLASS_WEIGHTS", "DICE_WEIGHT", "LOVASZ_WEIGHT", "OHEM_THRESHOLD", "OHEM_MIN_KEPT")
_OF_LOSSES = tuple(f"SEGMENTATION.{name}" for name in _LOSSES)
TABLE = KeyTable(
    _KEYS,
    effects={
        "score": ("DATA.RESIZE", "DATA.EVAL_DIVISOR"),
        "training": _OF_LOSSES,
        "data": ("DATA.CLASS_LIST", "DATA.REDUCE_ZERO_LABEL", "DATA.UNLABELED_PIXELS"),
    },
    training=(*_OF_LOSSES, *(row.name for row in _KEYS if row.meaning.startswith("training:"))),
    resolve_defaults=_complete,
    check=_check,
    find_ignored=_find_unused,
)
