"""Configuration keys of image segmentation."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from yacs.config import CfgNode

from ...core.losses.settings import OVERLAP, OverlapTrain
from ...core.runtime.errors import UserError
from ...core.settings.key import (
    AT_LEAST_0,
    AT_LEAST_1,
    SHARE_ABOVE_0,
    SIZE,
    Flag,
    Key,
    Pair,
    PathText,
    Range,
    Section,
    key,
    rows,
)
from ...core.settings.table import COMMAND_LINE, ConfigView, IgnoredKeys, KeySetting, KeyTable
from ..settings import SIDE_PX, ObjectData, ObjectSettings, ObjectTrain


class SegmentationDataSection(ObjectData):
    """Keys of DATA for segmentation."""

    BASE_SHORTEST_SIDE: int | None = key(
        None, "training: shorter side in pixels of an image at scale 1; None: its own size", SIDE_PX, training_only=True
    )
    BASE_LONGEST_SIDE: int | None = key(
        None, "training: limit of the longer side in pixels at scale 1", SIDE_PX, training_only=True
    )
    SCALE_RANGE: Pair[float] = key(
        [0.5, 2.0],
        "training: smallest and largest scale of an image, drawn uniformly",
        Range(low=0.01, high=100),
        training_only=True,
    )
    RESIZE: Literal["pillow", "opencv"] = key(
        "pillow",
        "filter for resizing images: pillow, which averages when shrinking; or opencv, which interpolates between the "
        "four nearest pixels, as the published models require",
        effect="score",
    )
    CROP_SIZE: Pair[int] = key(
        [512, 512], "height and width of training crops, and of SEGMENTATION.CROP unless it is set", SIDE_PX
    )
    MAX_CLASS_FRACTION: float = key(
        0.75,
        "training: limit of one class's share of the labeled pixels in a crop; other crops are drawn again, ten times "
        "at most; 1: never",
        SHARE_ABOVE_0,
        training_only=True,
    )
    PHOTOMETRIC: bool = key(
        True, "training: change brightness, contrast, saturation and hue at random", training_only=True
    )
    TRANSFORMS: list[str] = key(
        [],
        "training: names of register_transform, applied in this order to image and labels before all others",
        training_only=True,
    )
    EVAL_DIVISOR: int = key(
        1,
        "evaluation and prediction: enlarge both sides to multiples of this number of pixels; SegFormer's authors: 32",
        AT_LEAST_1,
        effect="score",
    )
    CLASS_LIST: PathText | None = key(
        None,
        "file with the names of the classes, and their numbers or colors in label maps, below DATA_PATH or absolute; "
        "None: classes.txt, labelmap.txt, classes.csv, classes.json or similar, if there is one",
        effect="data",
    )
    REDUCE_ZERO_LABEL: bool | None = key(
        None,
        "treat 0 in label maps as unlabeled, and k as class k - 1; None: only for ADE20K and Pascal Context",
        effect="data",
    )
    UNLABELED_PIXELS: Literal["background", "ignored"] = key(
        "background",
        "label of pixels outside all outlines of Labelme, YOLO or COCO: class background, or ignored",
        effect="data",
    )


class SegmentationSection(Section):
    """Keys of SEGMENTATION: losses and evaluation."""

    CLASS_WEIGHTS: list[float] | None = key(
        None, "weight of each class in the loss; None: 1", AT_LEAST_0, training_only=True
    )
    OHEM_THRESHOLD: float | None = key(
        None,
        "probability below which pixels count in the cross-entropy of the main head, in addition to the OHEM_MIN_KEPT "
        "hardest of each image; None: all pixels count",
        SHARE_ABOVE_0,
        training_only=True,
    )
    OHEM_MIN_KEPT: int = key(
        100_000, "smallest number of pixels of an image that count, with OHEM_THRESHOLD", AT_LEAST_1, training_only=True
    )
    PROTOCOL: Literal["whole", "slide", "spread"] = key(
        "whole",
        "evaluation and prediction: run the network on whole images (whole), on sliding windows (slide), or on as few "
        "windows as cover the image, which overlap equally (spread), as for EoMT",
    )
    CROP: Pair[int] | None = key(
        None,
        "height and width of a window, and of an exported input; None: DATA.CROP_SIZE; -window also sets PROTOCOL "
        "slide and STRIDE None",
        SIDE_PX,
        flag=Flag(
            "window", SIZE, "prediction", 1, "detection, segmentation: windows of this size, pixels or HEIGHTxWIDTH"
        ),
    )
    STRIDE: Pair[int] | None = key(
        None, "rows and columns from one window to the next; None: two thirds of the window", SIDE_PX
    )
    SCALES: list[float] = key(
        [1.0], "evaluation and prediction: scales of the input; the results are averaged", Range(low=0.05, high=20)
    )
    FLIP: bool = key(False, "evaluation and prediction: average with the result for the mirrored image")
    RESIZE_LOGITS_VIA: Literal["input", "stored"] = key(
        "input",
        "steps of resizing logits: to the network's input, then to the stored image, as in mmsegmentation (input); or "
        "directly, as in transformers (stored)",
    )


class SegmentationTrain(ObjectTrain, OverlapTrain):
    """Section TRAIN of segmentation, whose own keys are in SEGMENTATION."""


class SegmentationSettings(ObjectSettings):
    """Keys of segmentation."""

    DATA: SegmentationDataSection
    SEGMENTATION: SegmentationSection
    TRAIN: SegmentationTrain


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Slide the windows of -window, and turn images if labels are outlines, which refer to turned images."""
    crop = settings.get("SEGMENTATION.CROP")
    if crop is not None and crop.origin == "-window":
        for name, value in (("PROTOCOL", "slide"), ("STRIDE", None)):
            given = settings.get(f"SEGMENTATION.{name}")
            if given is None or given.source != COMMAND_LINE:
                values.SEGMENTATION[name] = value
    if "DATA.EXIF_ROTATE" not in settings:
        values.DATA.EXIF_ROTATE = None
    return []


def _check(view: ConfigView[SegmentationSettings]) -> list[str]:
    data = view.values.DATA
    low, high = data.SCALE_RANGE
    if low > high:
        raise UserError(f"{view['DATA.SCALE_RANGE']}: expected the smaller number first, such as [{high}, {low}]")
    for stage in ("BASE", "EVAL"):
        longest, shortest = f"DATA.{stage}_LONGEST_SIDE", f"DATA.{stage}_SHORTEST_SIDE"
        if data[f"{stage}_LONGEST_SIDE"] is not None and data[f"{stage}_SHORTEST_SIDE"] is None:
            raise UserError(
                f"{view[longest]}: it limits {shortest}, which is not set; set {shortest} or remove {longest}"
            )
    keys = view.values.SEGMENTATION
    if keys.CLASS_WEIGHTS and not any(keys.CLASS_WEIGHTS):
        raise UserError(f"{view['SEGMENTATION.CLASS_WEIGHTS']}: expected at least one above 0, or nothing is learned")
    if not keys.SCALES:
        raise UserError(f"{view['SEGMENTATION.SCALES']}: expected at least one, such as [1.0]")
    crop = keys.CROP or data.CROP_SIZE
    if keys.STRIDE is not None and any(step > side for step, side in zip(keys.STRIDE, crop)):
        raise UserError(
            f"{view['SEGMENTATION.STRIDE']}: windows of {list(crop)} pixels (SEGMENTATION.CROP) would leave gaps"
        )
    return []


def _find_unused(view: ConfigView[SegmentationSettings]) -> Iterator[IgnoredKeys]:
    if view.values.SEGMENTATION.OHEM_THRESHOLD is None:
        yield IgnoredKeys(("SEGMENTATION.OHEM_MIN_KEPT",), "SEGMENTATION.OHEM_THRESHOLD", "all pixels count: {}")
    elif view.values.SEGMENTATION.OHEM_MIN_KEPT >= math.prod(view.values.DATA.CROP_SIZE):
        reason = "a crop has no more pixels than always count: {}"
        yield IgnoredKeys(("SEGMENTATION.OHEM_THRESHOLD",), "SEGMENTATION.OHEM_MIN_KEPT", reason)
    if view.values.DATA.DATASET == "coco_outlines":
        names = ("DATA.CLASS_LIST", "DATA.REDUCE_ZERO_LABEL")
        yield IgnoredKeys(names, "DATA.DATASET", "classes are the categories of the annotation file: {}")
    else:
        files = ("TRAIN_ANNOTATIONS", "VAL_ANNOTATIONS", "TRAIN_IMAGES", "VAL_IMAGES", "SEARCH_IMAGES_RECURSIVELY")
        yield IgnoredKeys(tuple(f"DATA.{name}" for name in files), "DATA.DATASET", "it is for coco_outlines, and {}")
    if view.values.SEGMENTATION.PROTOCOL == "whole":
        yield IgnoredKeys(("SEGMENTATION.STRIDE",), "SEGMENTATION.PROTOCOL", "there are no windows: {}")
    elif view.values.SEGMENTATION.PROTOCOL == "spread":
        yield IgnoredKeys(("SEGMENTATION.STRIDE",), "SEGMENTATION.PROTOCOL", "windows overlap equally: {}")


def require_no_pixel_losses(config: SegmentationSettings) -> None:
    """Refuse keys of losses that a network whose queries learn masks does not have, by a ``UserError``."""
    of_section = {"SEGMENTATION": ("CLASS_WEIGHTS", "OHEM_THRESHOLD"), "TRAIN": ("DICE_WEIGHT", "LOVASZ_WEIGHT")}
    for section, name in ((section, name) for section, names in of_section.items() for name in names):
        if value := config[section][name]:
            raise UserError(
                f"{section}.{name} {value}: {config.MODEL.NAME} has losses of queries, not of pixels; remove "
                f"{section}.{name}"
            )


TABLE = KeyTable(
    (*OVERLAP, *rows(SegmentationSettings)),
    resolve_defaults=_complete,
    check=_check,
    find_ignored=_find_unused,
    former=(
        Key("SEGMENTATION.DICE_WEIGHT", 0.0, "float", "weight of the Dice loss", AT_LEAST_0, training_only=True),
        Key("SEGMENTATION.LOVASZ_WEIGHT", 0.0, "float", "weight of the Lovasz loss", AT_LEAST_0, training_only=True),
    ),
    renamed={f"SEGMENTATION.{name}": f"TRAIN.{name}" for name in ("DICE_WEIGHT", "LOVASZ_WEIGHT")},
)
