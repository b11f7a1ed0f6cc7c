"""Configuration keys of object detection, apart from those of its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from yacs.config import CfgNode

from ...config.key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE, Given, Key, Range, Setting, Table, optional
from ...errors import UserError
from ...registry import TABLES

SINGLE, EQUAL_SHAPES, PADDED = "single", "equal_shapes", "padded"
# Of ImageNet's pixels from 0 to 1, which all published backbones were trained on.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

_KEYS = (
    Key(
        "DETECTION.EVALUATE_AS",
        SINGLE,
        "text",
        "pictures of one forward pass of an evaluation: a single one; several of equal shapes; or padded to the "
        "largest, which changes the scores unless MODEL.MASK_PADDING keeps the padding at zero",
        choices=(SINGLE, EQUAL_SHAPES, PADDED),
    ),
    Key(
        "DETECTION.TIGHT_PADDING",
        True,
        "bool",
        "training: pictures are padded to the largest of their batch; False: to a square that holds any, so that no "
        "step depends on which pictures are together, for more memory and time",
    ),
    Key(
        "DETECTION.SHOWN_SCORE",
        0.5,
        "float",
        "least score of a box that predict lists and draws; results.json has all",
        SHARE,
    ),
    Key(
        "DETECTION.EXPORT_SIZE",
        None,
        "int",
        "export: height and width that pictures are resized to; None: a square of DATA.EVAL_SHORTEST_SIDE pixels",
        AT_LEAST_1,
        many=True,
        length=2,
        optional=True,
    ),
    Key(
        "MODEL.MASK_PADDING",
        False,
        "bool",
        "set what is beside a picture in its batch to zero after each layer of the backbone: a picture then gives the "
        "same boxes in any batch, which published weights were not trained for",
    ),
    optional(
        "MODEL.BACKBONE_PRETRAINED",
        "path",
        "weights of a classifier that a training's backbone starts from: a path, an address, or a published name",
    ),
    optional("MODEL.BACKBONE", "text", "DETR: the model whose feature map the transformer sees, such as resnet50"),
    optional("MODEL.DILATION", "bool", "DETR: the last stage of the backbone is dilated instead of halved (DC5)"),
    optional(
        "MODEL.FROZEN_STAGES",
        "int",
        "DETR: parts of the backbone that do not learn: 1 is the stem, 2 the stem and the first stage, ...",
        AT_LEAST_0,
    ),
    optional("MODEL.FROZEN_BATCH_NORM", "bool", "DETR: statistics, scale and shift of every batch norm are fixed"),
    optional("MODEL.NUM_QUERIES", "int", "DETR: the most objects that are found in a picture", AT_LEAST_1),
    optional("MODEL.ENCODER_LAYERS", "int", "DETR: layers of the encoder", AT_LEAST_0),
    optional("MODEL.DECODER_LAYERS", "int", "DETR: layers of the decoder", AT_LEAST_1),
    optional("MODEL.FEEDFORWARD", "int", "DETR: hidden width of the MLPs in the transformer", AT_LEAST_1),
    Key(
        "TRAIN.BACKBONE_LR_FACTOR",
        1.0,
        "float",
        "learning rate of the backbone to that of the rest; DETR's authors: 0.1",
        Range(low=0, high=1, low_open=True),
    ),
    Key(
        "TRAIN.DECAY_ALL",
        True,
        "bool",
        "weight decay of all parameters, as detection's authors have it; False: not of biases and norms",
    ),
    Key(
        "TRAIN.RANDOM_SAMPLES",
        True,
        "bool",
        "Mask R-CNN: the anchors and regions of a picture that learn are drawn at random; False: always the same",
    ),
    Key(
        "TRAIN.DETECTION_NORMALISER",
        "global",
        "text",
        "losses are divided by counts of all devices and micro-batches (global), or as the authors do (reference): "
        "DETR's boxes by that of all devices, its classes and all of Mask R-CNN's terms by that of each device",
        choices=("global", "reference"),
    ),
    Key(
        "TRAIN.CLASS_LOSS_WEIGHT",
        1.0,
        "float",
        "weight of the classes in the loss, and in DETR's matching too; the authors': 1",
        ABOVE_0,
    ),
)

# Keys of MODEL that set the option of the same name of a model.
OPTIONS = (
    "BACKBONE",
    "DILATION",
    "FROZEN_STAGES",
    "FROZEN_BATCH_NORM",
    "NUM_QUERIES",
    "ENCODER_LAYERS",
    "DECODER_LAYERS",
    "FEEDFORWARD",
)


def _complete(values: CfgNode, settings: Mapping[str, Setting], _: Sequence[Setting]) -> list[str]:
    """Pictures are normalised as ImageNet's are, and turned as their boxes ask for, unless somebody says otherwise."""
    if "DATA.EXIF_ROTATE" not in settings:
        values.DATA.EXIF_ROTATE = None
    if values.TASK not in TABLES:  # a user's task that reads the keys of all subjects
        return []
    for name, value in (("IMAGENET_MEAN", _MEAN), ("IMAGENET_STD", _STD)):
        if f"DATA.{name}" not in settings:
            values.DATA[name] = list(value)
    return []


def _check(given: Given) -> list[str]:
    values = given.values
    if values.DETECTION.EVALUATE_AS == PADDED and not values.MODEL.MASK_PADDING:
        raise UserError(
            f"{given['DETECTION.EVALUATE_AS']}: padding changes what the model finds, so that the score would depend "
            f"on the batches: expected {SINGLE} or {EQUAL_SHAPES}, or MODEL.MASK_PADDING true for weights trained so"
        )
    return []


TABLE = Table(
    _KEYS,
    training=(
        "TRAIN.",
        "DETECTION.TIGHT_PADDING",
    ),
    complete=_complete,
    check=_check,
)
