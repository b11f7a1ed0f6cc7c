"""Configuration keys of object detection and of images with boxes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from yacs.config import CfgNode

from ...runtime.errors import UserError
from ...settings.key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE, ConfigView, IgnoredKeys, KeySetting, KeyTable, Range
from ...settings.section import Pair, PathText, Section, key, rows
from ..settings import SIDE_PX, ObjectData, ObjectModel, ObjectSettings, ObjectTrain

PIXELS, EDGES = "pixels", "edges"
PILLOW, TORCHVISION = "pillow", "torchvision"
SINGLE, EQUAL_SHAPES, PADDED, ONE_SIZE = "single", "equal_shapes", "padded", "one_size"
_EVALUATED_SIDES = {"EVAL_SHORTEST_SIDE": 800, "EVAL_LONGEST_SIDE": 1333}  # pixels


class DetectionDataSection(ObjectData):
    SHORTEST_SIDES: list[int] = key(
        list(range(480, 801, 32)),
        "training: each image is resized so that its shorter side is one of these, in pixels",
        SIDE_PX,
    )
    RESIZE_TO_SQUARE: bool = key(
        False, "training: each image becomes a square of one of these sides, whatever its proportions, as RT-DETR's"
    )
    BATCH_SIDES: list[int] = key(
        [],
        "training: all images of an update, squares (RESIZE_TO_SQUARE), are resized to one of these sides, drawn "
        "from SEED and the number of the update; none: they stay as SHORTEST_SIDES has them",
        SIDE_PX,
    )
    LONGEST_SIDE: int = key(1333, "training: most pixels of the longer side, whatever the shorter one", SIDE_PX)
    CROP_PROBABILITY: float = key(0.5, "training: probability of an image that is cropped first", SHARE)
    CROP_SHORTEST_SIDES: list[int] = key(
        [400, 500, 600], "training: an image to be cropped is resized to one of these first", SIDE_PX
    )
    CROP_SIDES: Pair[int] = key([384, 600], "training: smallest and largest side of the crop", SIDE_PX)
    COLOR_JITTER: float = key(0.0, "training: range of brightness, contrast and saturation", AT_LEAST_0)
    SSD_AUGMENT: bool = key(
        False,
        "training: colors are distorted, images laid on a larger black one and cropped by the overlap with an object, "
        "as SSD's and RT-DETR's authors do",
    )
    NO_AUGMENT_EPOCHS: int = key(
        0, "training: so many last epochs are without SSD_AUGMENT and without BATCH_SIDES", AT_LEAST_0
    )
    EVAL_RESIZE: Literal["pillow", "torchvision"] = key(
        PILLOW,
        "evaluation and prediction: resize with Pillow's filter, to whole levels; or as torchvision's detectors do, "
        "whose weights then find the same boxes",
    )
    GROUP_BY_SHAPE: int = key(
        0,
        "training: so many images that follow one another have similar shapes, which saves padding; a multiple of "
        "BATCH_SIZE; 0: the order is free",
        AT_LEAST_0,
    )
    TRAIN_ANNOTATIONS: PathText | None = key(
        None,
        "coco: file of the training annotations, below DATA_PATH or absolute; voc: name of a list such as trainval",
    )
    VAL_ANNOTATIONS: PathText | None = key(None, "the same for validation")
    TRAIN_IMAGES: PathText | None = key(None, "coco: folder of the training images, below DATA_PATH or absolute")
    VAL_IMAGES: PathText | None = key(None, "coco: folder of the validation images")
    VOC_CORNERS: Literal["pixels", "edges"] = key(
        PIXELS,
        "voc: corners are numbers of pixels, from 1 and inside the box, as VOC has them; or distances from the "
        "image's edges, from 0, as some programs write them",
    )
    SEARCH_IMAGES_RECURSIVELY: bool = key(
        False, "coco: a file_name may lead out of DATA_PATH and the folder of images, as ../a.jpg or /a.jpg do"
    )
    KEEP_EMPTY_IMAGES: bool = key(True, "training: keep images in which there is nothing to learn")


class DetectionSection(Section):
    EVAL_BATCHING: Literal["single", "equal_shapes", "padded", "one_size"] = key(
        SINGLE,
        "images of one forward pass of an evaluation: a single one; several of equal shapes; padded to the largest, "
        "which changes the scores unless MODEL.MASK_PADDING keeps the padding at zero; or of one size, that of "
        "DETECTION.EXPORT_SIZE whatever their proportions, as an exported model takes them",
    )
    PAD_TO_BATCH_MAX: bool = key(
        True,
        "training: images are padded to the largest of their batch; False: to a square that holds any, so that no "
        "step depends on which images are together, for more memory and time",
    )
    SCORE_THRESHOLD: float = key(0.5, "least score of a box that predict lists and draws; results.json has all", SHARE)
    MAX_DETECTIONS: int | None = key(
        None,
        "detections of an image and category that count, best first (COCO's maxDets), and that results have; None: 100 "
        "count, and results have all; Mask R-CNN finds as many in an image if they are more than its own 100",
        Range(low=10),
    )
    EXPORT_SIZE: Pair[int] | None = key(
        None,
        "export, and an evaluation as one_size: height and width that images are resized to; None: a square of "
        "DATA.EVAL_SHORTEST_SIDE pixels",
        AT_LEAST_1,
    )


class DetectionModelSection(ObjectModel):
    MASK_PADDING: bool = key(
        False,
        "set what is beside an image in its batch to zero after each layer of the backbone: an image then gives the "
        "same boxes in any batch, which published weights were not trained for",
    )
    DILATION: bool | None = key(None, "DETR: the last stage of the backbone is dilated instead of halved (DC5)")
    NUM_QUERIES: int | None = key(None, "DETR: the most objects that are found in an image", AT_LEAST_1)
    ENCODER_LAYERS: int | None = key(None, "DETR: layers of the encoder", AT_LEAST_0)
    DECODER_LAYERS: int | None = key(None, "DETR: layers of the decoder", AT_LEAST_1)


class DetectionTrainSection(ObjectTrain):
    DECAY_ALL_PARAMETERS: bool = key(
        True, "weight decay of all parameters, as detection's authors have it; False: not of biases and norms"
    )
    RANDOM_SAMPLING: bool = key(
        True, "Mask R-CNN: the anchors and regions of an image that learn are drawn at random; False: always the same"
    )
    DETECTION_NORMALIZER: Literal["global", "reference"] = key(
        "global",
        "losses are divided by counts of all devices and micro-batches (global), or as the authors do (reference): "
        "DETR's boxes by that of all devices, its classes and all of Mask R-CNN's terms by that of each device",
    )
    CLASS_LOSS_WEIGHT: float = key(
        1.0, "weight of the classes in the loss, and in DETR's matching too; the authors': 1", ABOVE_0
    )


class DetectionSettings(ObjectSettings):
    DATA: DetectionDataSection
    DETECTION: DetectionSection
    MODEL: DetectionModelSection
    TRAIN: DetectionTrainSection


_KEYS = rows(DetectionSettings)
# Keys of MODEL that set the option of the same name of a model.
OPTIONS = tuple(
    row.name.removeprefix("MODEL.")
    for row in _KEYS
    if row.name.startswith("MODEL.") and row.name != "MODEL.MASK_PADDING"
)


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Images are evaluated in the size usual for COCO, and turned as their boxes ask for, unless somebody says
    otherwise."""
    for name, side in _EVALUATED_SIDES.items():
        if values.DATA[name] is None:
            values.DATA[name] = side
    if "DATA.EXIF_ROTATE" not in settings:
        values.DATA.EXIF_ROTATE = None
    return []


def _check(given: ConfigView[DetectionSettings]) -> list[str]:
    values = given.values
    if values.DETECTION.EVAL_BATCHING == PADDED and not values.MODEL.MASK_PADDING:
        raise UserError(
            f"{given['DETECTION.EVAL_BATCHING']}: padding changes what the model finds, so that the score would depend "
            f"on the batches: expected {SINGLE} or {EQUAL_SHAPES}, or MODEL.MASK_PADDING true for weights trained so"
        )
    data = given.values.DATA
    low, high = data.CROP_SIDES
    if low > high:
        raise UserError(f"{given['DATA.CROP_SIDES']}: expected the smaller number first, such as [{high}, {low}]")
    for name, several in (
        ("DATA.SHORTEST_SIDES", data.SHORTEST_SIDES),
        ("DATA.CROP_SHORTEST_SIDES", data.CROP_SHORTEST_SIDES),
    ):
        if not several:
            raise UserError(f"{given[name]}: expected one at least")
    if data.BATCH_SIDES and not (data.RESIZE_TO_SQUARE and len(data.SHORTEST_SIDES) == 1):
        raise UserError(
            f"{given['DATA.BATCH_SIDES']}: images are squares of one size before that: set DATA.RESIZE_TO_SQUARE "
            f"true and DATA.SHORTEST_SIDES [{max(data.BATCH_SIDES)}], for example"
        )
    group, batch = data.GROUP_BY_SHAPE, data.BATCH_SIZE
    if group and group % batch:
        raise UserError(
            f"{given['DATA.GROUP_BY_SHAPE']}: expected a multiple of DATA.BATCH_SIZE {batch}, or batches would be of "
            f"two groups: {-(-group // batch) * batch}, for example"
        )
    return []


def _find_unused(given: ConfigView[DetectionSettings]) -> Iterator[IgnoredKeys]:
    dataset = given.values.DATA.DATASET
    if dataset not in ("coco", "voc"):
        yield IgnoredKeys(
            ("DATA.TRAIN_ANNOTATIONS", "DATA.VAL_ANNOTATIONS"), "DATA.DATASET", "it is for coco and voc, and {}"
        )
    if dataset != "voc":
        yield IgnoredKeys(("DATA.VOC_CORNERS",), "DATA.DATASET", "it is for voc, and {}")
    if dataset != "coco":
        of_coco = ("DATA.TRAIN_IMAGES", "DATA.VAL_IMAGES", "DATA.SEARCH_IMAGES_RECURSIVELY")
        yield IgnoredKeys(of_coco, "DATA.DATASET", "it is for coco, and {}")
    data = given.values.DATA
    if data.VAL_FRACTION is None and data.VAL_FRACTION_IF_MISSING is None:
        yield IgnoredKeys(("DATA.VAL_SEED",), "DATA.VAL_FRACTION", "nothing is held out: {}")
    if data.RESIZE_TO_SQUARE:
        yield IgnoredKeys(("DATA.LONGEST_SIDE",), "DATA.RESIZE_TO_SQUARE", "both sides are of DATA.SHORTEST_SIDES: {}")
    if not data.SSD_AUGMENT and not data.BATCH_SIDES:
        yield IgnoredKeys(("DATA.NO_AUGMENT_EPOCHS",), "DATA.SSD_AUGMENT", "every epoch is plain: {}")
    elif data.NO_AUGMENT_EPOCHS >= given.values.TRAIN.NUM_EPOCHS:
        yield IgnoredKeys(
            ("DATA.SSD_AUGMENT", "DATA.BATCH_SIDES"), "DATA.NO_AUGMENT_EPOCHS", "every epoch is plain: {}"
        )
    if not data.CROP_PROBABILITY:
        yield IgnoredKeys(
            ("DATA.CROP_SHORTEST_SIDES", "DATA.CROP_SIDES"), "DATA.CROP_PROBABILITY", "no image is cropped: {}"
        )


_ONLY_TRAINING = tuple(row.name for row in _KEYS if row.meaning.startswith("training:"))
TABLE = KeyTable(
    _KEYS,
    effects={
        "training": ("DETECTION.PAD_TO_BATCH_MAX", "DETECTION.SCORE_THRESHOLD"),
        "score": ("DETECTION.EXPORT_SIZE", "DETECTION.MAX_DETECTIONS"),
    },
    training=(*_ONLY_TRAINING, "TRAIN."),
    resolve_defaults=_complete,
    check=_check,
    find_ignored=_find_unused,
)
