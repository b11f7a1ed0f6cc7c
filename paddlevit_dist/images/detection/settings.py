"""Configuration keys of object detection and of images with boxes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from yacs.config import CfgNode

from ...core.runtime.errors import UserError
from ...core.settings.key import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    SHARE,
    SHARE_ABOVE_0,
    SHARE_BELOW_1,
    SIZE,
    Flag,
    Key,
    Pair,
    Range,
    Section,
    key,
    rows,
)
from ...core.settings.table import ConfigView, IgnoredKeys, KeySetting, KeyTable
from ..settings import COLORS, SIDE_PX, ColorTrain, ObjectData, ObjectModel, ObjectSettings, ObjectTrain

PIXELS, EDGES = "pixels", "edges"
PILLOW, TORCHVISION = "pillow", "torchvision"
SINGLE, EQUAL_SHAPES, PADDED, ONE_SIZE = "single", "equal_shapes", "padded", "one_size"
_COCO = ("coco", "coco_keypoints", "keypoint_table")  # datasets whose annotations are a file for each split
_EVALUATED_SIDES = {"EVAL_SHORTEST_SIDE": 800, "EVAL_LONGEST_SIDE": 1333}  # pixels


class DetectionDataSection(ObjectData):
    """Keys below DATA of images with boxes."""

    SHORTEST_SIDES: list[int] = key(
        list(range(480, 801, 32)),
        "training: sizes in pixels of the shorter side; each image is resized to a random one",
        SIDE_PX,
        training_only=True,
    )
    RESIZE_TO_SQUARE: bool = key(
        False, "training: resize each image to a square with one of these sides, as for RT-DETR", training_only=True
    )
    BATCH_SIDES: list[int] = key(
        [],
        "training: sides to which all images of an update, squares (RESIZE_TO_SQUARE), are resized; one is drawn from "
        "SEED and the number of the update; none: the sizes of SHORTEST_SIDES are kept",
        SIDE_PX,
        training_only=True,
    )
    LONGEST_SIDE: int = key(
        1333,
        "training: limit of the longer side in pixels, with precedence over the shorter side",
        SIDE_PX,
        training_only=True,
    )
    CROP_PROBABILITY: float = key(
        0.5, "training: probability that an image is cropped before resizing", SHARE, training_only=True
    )
    CROP_SHORTEST_SIDES: list[int] = key(
        [400, 500, 600], "training: sizes of the shorter side before a crop; one is drawn", SIDE_PX, training_only=True
    )
    CROP_SIDES: Pair[int] = key(
        [384, 600], "training: smallest and largest side of the crop", SIDE_PX, training_only=True
    )
    SCALE_JITTER: Pair[float] | None = key(
        None,
        "training: smallest and largest scale, drawn uniformly, of an image that would fit a square of SHORTEST_SIDES; "
        "it is padded or cropped to the square; another part is drawn if it has no object; None: other sizes, as above",
        Range(low=0.01, high=100),
        training_only=True,
    )
    SSD_AUGMENT: bool = key(
        False,
        "training: augmentation of SSD's and RT-DETR's authors: distort colors, place images on a larger black one, "
        "and crop them by the overlap with an object",
        training_only=True,
    )
    MOSAIC: float = key(
        0.0,
        "training: probability that four images are joined to a square with the largest of SHORTEST_SIDES, as in "
        "YOLOv4",
        SHARE,
        training_only=True,
    )
    COPY_PASTE: float = key(
        0.0,
        "training: probability that objects of another image are pasted; for data with masks",
        SHARE,
        training_only=True,
    )
    NO_AUGMENT_EPOCHS: int = key(
        0,
        "training: number of last epochs without SSD_AUGMENT, BATCH_SIDES, MOSAIC and COPY_PASTE",
        AT_LEAST_0,
        training_only=True,
        counts="epochs",
    )
    EVAL_RESIZE: Literal["pillow", "torchvision"] = key(
        PILLOW,
        "evaluation and prediction: resizing method: pillow (its filter, integer levels), or torchvision (its "
        "detectors' method, so that their weights give the same boxes)",
    )
    GROUP_BY_SHAPE: int = key(
        0,
        "training: number of consecutive images with similar shapes, which saves padding; a multiple of BATCH_SIZE; 0: "
        "random order",
        AT_LEAST_0,
        training_only=True,
    )
    VOC_CORNERS: Literal["pixels", "edges"] = key(
        PIXELS,
        "voc: meaning of corners: pixels (VOC's: numbers of pixels from 1, inside the box), or edges (distances from "
        "the image's edges, from 0, as some programs write them)",
    )
    KEEP_EMPTY_IMAGES: bool = key(True, "training: keep images without objects to learn", training_only=True)


class DetectionSection(Section):
    """Keys below DETECTION."""

    EVAL_BATCHING: Literal["single", "equal_shapes", "padded", "one_size"] = key(
        SINGLE,
        "images per forward pass of an evaluation: single (one image); equal_shapes (several images of equal shape); "
        "padded (to the largest, which changes scores unless MODEL.MASK_PADDING keeps the padding at zero); one_size "
        "(resized to DETECTION.EXPORT_SIZE, changing their aspect ratio, as for an exported model)",
    )
    PAD_TO_BATCH_MAX: bool = key(
        True,
        "training: pad images to the largest of their batch; False: to a square that fits all images, so that steps "
        "do not depend on the batch's other images, but take more memory and time",
        training_only=True,
    )
    WINDOW: Pair[int] | None = key(
        None,
        "evaluation and prediction: height and width of windows in pixels of the stored image, which the network sees "
        "in addition to the whole image, each resized as an image; None: no windows",
        SIDE_PX,
        flag=Flag(
            "window", SIZE, "prediction", 1, "detection, segmentation: windows of this size, pixels or HEIGHTxWIDTH"
        ),
    )
    WINDOW_OVERLAP: float = key(
        0.2, "smallest share of its sides by which a window overlaps the next; objects should fit in it", SHARE_BELOW_1
    )
    FLIP: bool = key(False, "evaluation and prediction: add the detections in the mirrored image or windows")
    MERGE_IOU: float = key(
        0.5,
        "IoU above which detections of a class in different windows, or in the mirrored image, are one object",
        SHARE,
    )
    SCORE_THRESHOLD: float = key(
        0.5,
        "lowest score of the boxes that predict lists and draws; results.json contains all",
        SHARE,
        effect="training",
        flag=Flag("least_score", "SHARE", "prediction", 2, "detection: lowest score of a box that is listed and drawn"),
    )
    WISHED_PRECISION: float | None = key(
        None,
        "evaluation: also find, for each category, the lowest score from which on this share of the boxes is right at "
        "an IoU of 0.5",
        SHARE_ABOVE_0,
        effect="neutral",
    )
    WISHED_RECALL: float | None = key(
        None,
        "evaluation: also find, for each category, the highest score from which on this share of the annotations is "
        "found at an IoU of 0.5",
        SHARE_ABOVE_0,
        effect="neutral",
    )
    MAX_DETECTIONS: int | None = key(
        None,
        "number of best detections per image and category that count (COCO's maxDets) and that results contain; None: "
        "100 count, and results contain all; also raises Mask R-CNN's limit of 100 per image",
        Range(low=10),
        flag=Flag("max_detections", "N", "data", 6, "detections per image and category; default 100"),
    )
    EXPORT_SIZE: Pair[int] | None = key(
        None,
        "height and width to which images are resized for export and for one_size evaluation; None: a square of "
        "DATA.EVAL_SHORTEST_SIDE pixels",
        AT_LEAST_1,
    )


class DetectionModelSection(ObjectModel):
    """Keys below MODEL of detectors."""

    MASK_PADDING: bool = key(
        False,
        "set the padding of images to zero after each layer of the backbone, so that an image gives the same boxes in "
        "any batch; published weights were not trained with it",
    )
    NUM_QUERIES: int | None = key(None, "DETR: largest number of objects detected in an image", AT_LEAST_1)


class DetectionTrainSection(ObjectTrain, ColorTrain):
    """Keys below TRAIN of detection."""

    DETECTION_NORMALIZER: Literal["global", "reference"] = key(
        "global",
        "normalization of losses: global (counts of all devices and micro-batches), or reference (the authors': DETR's "
        "boxes by the count of all devices, its classes and all terms of Mask R-CNN by the count of each device)",
    )
    CLASS_LOSS_WEIGHT: float = key(
        1.0, "weight of the classification loss, also in DETR's matching; the authors use 1", ABOVE_0
    )


class DetectionSettings(ObjectSettings):
    """All keys of object detection."""

    DATA: DetectionDataSection
    DETECTION: DetectionSection
    MODEL: DetectionModelSection
    TRAIN: DetectionTrainSection


_KEYS = rows(DetectionSettings)
# Keys of MODEL that set a model's option of this name.
OPTIONS = tuple(
    row.name.removeprefix("MODEL.")
    for row in _KEYS
    if row.name.startswith("MODEL.") and row.name != "MODEL.MASK_PADDING"
)


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Set the evaluation size usual for COCO, decay of all, and EXIF rotation by the annotations, unless configured."""
    for name, side in _EVALUATED_SIDES.items():
        if values.DATA[name] is None:
            values.DATA[name] = side
    if values.TRAIN.DECAY_ALL_PARAMETERS is None:
        values.TRAIN.DECAY_ALL_PARAMETERS = True
    if "DATA.EXIF_ROTATE" not in settings:
        values.DATA.EXIF_ROTATE = None
    return []


def _check(config: ConfigView[DetectionSettings]) -> list[str]:
    values = config.values
    if values.DETECTION.EVAL_BATCHING == PADDED and not values.MODEL.MASK_PADDING:
        raise UserError(
            f"{config['DETECTION.EVAL_BATCHING']}: padding changes detections, so that scores would depend on the "
            f"batches: set it to {SINGLE} or {EQUAL_SHAPES}, or set MODEL.MASK_PADDING true if weights were trained "
            "with it"
        )
    data = config.values.DATA
    low, high = data.CROP_SIDES
    if low > high:
        raise UserError(f"{config['DATA.CROP_SIDES']}: expected the smaller number first, such as [{high}, {low}]")
    smallest, largest = data.SCALE_JITTER or (1, 1)
    if smallest > largest:
        raise UserError(
            f"{config['DATA.SCALE_JITTER']}: expected the smaller number first, such as [{largest}, {smallest}]"
        )
    for name, sides in (
        ("DATA.SHORTEST_SIDES", data.SHORTEST_SIDES),
        ("DATA.CROP_SHORTEST_SIDES", data.CROP_SHORTEST_SIDES),
    ):
        if not sides:
            raise UserError(f"{config[name]}: expected at least one")
    if data.BATCH_SIDES and not (data.RESIZE_TO_SQUARE and len(data.SHORTEST_SIDES) == 1):
        raise UserError(
            f"{config['DATA.BATCH_SIDES']}: images must be squares of one size first: set DATA.RESIZE_TO_SQUARE "
            f"true and DATA.SHORTEST_SIDES [{max(data.BATCH_SIDES)}], for example"
        )
    group, batch = data.GROUP_BY_SHAPE, data.BATCH_SIZE
    if group and group % batch:
        raise UserError(
            f"{config['DATA.GROUP_BY_SHAPE']}: expected a multiple of DATA.BATCH_SIZE {batch}, so that no batch "
            f"contains two groups: {-(-group // batch) * batch}, for example"
        )
    return []


def _find_ignored(config: ConfigView[DetectionSettings]) -> Iterator[IgnoredKeys]:
    dataset = config.values.DATA.DATASET
    if dataset not in (*_COCO, "voc", "box_table"):
        yield IgnoredKeys(
            ("DATA.TRAIN_ANNOTATIONS", "DATA.VAL_ANNOTATIONS"), "DATA.DATASET", "it is for coco and voc, and {}"
        )
    if dataset != "voc":
        yield IgnoredKeys(("DATA.VOC_CORNERS",), "DATA.DATASET", "it is for voc, and {}")
    if dataset not in _COCO:
        coco_keys = ("DATA.TRAIN_IMAGES", "DATA.VAL_IMAGES", "DATA.SEARCH_IMAGES_RECURSIVELY")
        yield IgnoredKeys(coco_keys, "DATA.DATASET", "it is for coco, and {}")
    data = config.values.DATA
    if data.SCALE_JITTER:
        replaced = ("LONGEST_SIDE", "RESIZE_TO_SQUARE", "CROP_PROBABILITY", "CROP_SHORTEST_SIDES", "CROP_SIDES")
        yield IgnoredKeys(
            tuple(f"DATA.{name}" for name in replaced), "DATA.SCALE_JITTER", "images are scaled to a square: {}"
        )
    elif data.RESIZE_TO_SQUARE:
        yield IgnoredKeys(("DATA.LONGEST_SIDE",), "DATA.RESIZE_TO_SQUARE", "both sides are of DATA.SHORTEST_SIDES: {}")
    ended = ("SSD_AUGMENT", "BATCH_SIDES", "MOSAIC", "COPY_PASTE")
    if not any(data[name] for name in ended):
        yield IgnoredKeys(("DATA.NO_AUGMENT_EPOCHS",), "DATA.SSD_AUGMENT", "every epoch is plain: {}")
    elif data.NO_AUGMENT_EPOCHS >= config.values.TRAIN.NUM_EPOCHS:
        names = tuple(f"DATA.{name}" for name in ended)
        yield IgnoredKeys(names, "DATA.NO_AUGMENT_EPOCHS", "every epoch is plain: {}")
    detection = config.values.DETECTION
    if detection.EVAL_BATCHING == ONE_SIZE:
        names = ("DATA.EVAL_LONGEST_SIDE", *(["DATA.EVAL_SHORTEST_SIDE"] if detection.EXPORT_SIZE else []))
        yield IgnoredKeys(names, "DETECTION.EVAL_BATCHING", "all images get one size: {}")
    if detection.WINDOW is None:
        yield IgnoredKeys(("DETECTION.WINDOW_OVERLAP",), "DETECTION.WINDOW", "there are no windows: {}")
        if not detection.FLIP:
            yield IgnoredKeys(("DETECTION.MERGE_IOU",), "DETECTION.WINDOW", "nothing is merged: {}")
    if not data.CROP_PROBABILITY and not data.SCALE_JITTER:
        yield IgnoredKeys(
            ("DATA.CROP_SHORTEST_SIDES", "DATA.CROP_SIDES"), "DATA.CROP_PROBABILITY", "no image is cropped: {}"
        )


TABLE = KeyTable(
    (*COLORS, *_KEYS),
    resolve_defaults=_complete,
    check=_check,
    find_ignored=_find_ignored,
    former=(
        Key("MODEL.ENCODER_LAYERS", None, "int", "layers of the encoder", optional=True),
        Key("MODEL.DECODER_LAYERS", None, "int", "layers of the decoder", optional=True),
        Key("DATA.COLOR_JITTER", 0.0, "float", "largest change of colors", AT_LEAST_0, training_only=True),
    ),
    renamed={
        "MODEL.ENCODER_LAYERS": "MODEL.OPTIONS.encoder_layers",
        "MODEL.DECODER_LAYERS": "MODEL.OPTIONS.decoder_layers",
        "DATA.COLOR_JITTER": "TRAIN.COLOR_JITTER",
    },
)
