"""The keys that all tasks on images read: how images are opened and normalised, and the dimensions of their models.

None means "not set": the dataset, the variant named by MODEL.NAME, or the rule named in the meaning decides.
"""

from collections.abc import Iterator, Mapping, Sequence

from yacs.config import CfgNode

from ..checkpoint.published import published, published_for
from ..registry import TABLES
from ..runtime.errors import UserError
from ..settings.key import (
    ABOVE_0,
    AT_LEAST_1,
    COMMAND_LINE,
    SEEDS,
    SHARE,
    SHARE_BELOW_1,
    ConfigView,
    Key,
    Range,
    Setting,
    Table,
    Unused,
    optional,
)
from .expected_input import input_of, not_known
from .models.variants import IMAGENET_MEAN, IMAGENET_STD

CATEGORIES = ("circle", "square", "triangle", "cross", "ring", "bar")  # of shapes that can be drawn
SIDE_PX = Range(low=1, high=65_535)  # no image format that is common has longer sides
_DRAWN = ("synthetic_shapes", "segmentation_shapes")  # data sets of drawn shapes


def _dimension(name: str, kind: str, meaning: str, or_many: bool = False) -> Key:
    within = Range(low=1, high=1_000_000) if kind == "int" else Range(low=0, high=1000, low_open=True)
    return Key(name, None, kind, f"{meaning}; None: the variant's", within, optional=True, or_many=or_many)


_DATA = (
    Key(
        "DATA.IMAGENET_MEAN",
        [0.5] * 3,
        "float",
        "mean per channel, of pixels from 0 to 1; unset: what the weights expect",
        SHARE,
        many=True,
    ),
    Key("DATA.IMAGENET_STD", [0.5] * 3, "float", "standard deviation per channel", ABOVE_0, many=True),
    Key("DATA.HORIZONTAL_FLIP", 0.5, "float", "training: probability of a mirrored image", SHARE),
    optional(
        "DATA.VAL_FRACTION",
        "float",
        "hold out this share of each training class, or of images with boxes, for validation",
        Range(low=0, high=1, low_open=True, high_open=True),
    ),
    Key(
        "DATA.VAL_SEED", 0, "int", "seed of what VAL_FRACTION holds out: not SEED, so that runs can be compared", SEEDS
    ),
    Key(
        "DATA.ON_BAD_SAMPLE",
        "stop",
        "text",
        "training: an unreadable image ends the run, or the next readable one takes its place and it is listed",
        choices=("stop", "skip"),
    ),
    Key(
        "DATA.ALLOW_LEFT_OUT",
        False,
        "bool",
        "evaluate without the images that cannot be opened here, and say beside the score how many they are; else "
        "they end the run, a training's as well",
    ),
    Key(
        "DATA.EXIF_ROTATE",
        False,
        "bool",
        "turn images as their EXIF orientation says; None, which is the default for detection: only where boxes were "
        "drawn on turned images, as those of yolo and of files that do not say how large images are",
        optional=True,
    ),
    Key("DATA.MAX_PIXELS", 89_478_485, "int", "a larger image counts as unreadable", AT_LEAST_1),
)

_MODEL = (
    Key("MODEL.DROPOUT", 0.0, "float", "probability, after dense layers", SHARE_BELOW_1),
    Key("MODEL.ATTENTION_DROPOUT", 0.0, "float", "probability, on attention weights", SHARE_BELOW_1),
    Key("MODEL.DROPPATH", 0.0, "float", "probability of skipping the last residual branch", SHARE_BELOW_1),
    _dimension("MODEL.PATCH_SIZE", "int", "height and width of a patch in pixels"),
    _dimension("MODEL.EMBED_DIM", "int", "width of a token", or_many=True),
    _dimension("MODEL.NUM_HEADS", "int", "attention heads", or_many=True),
    _dimension("MODEL.ATTN_HEAD_SIZE", "int", "width of a head, else EMBED_DIM / NUM_HEADS"),
    _dimension("MODEL.DEPTH", "int", "blocks"),
    _dimension("MODEL.DEPTHS", "int", "blocks of each stage", or_many=True),
    _dimension("MODEL.DIMS", "int", "channels of each stage", or_many=True),
    _dimension("MODEL.WINDOW_SIZE", "int", "side of a window of attention, in patches"),
    _dimension("MODEL.SR_RATIO", "int", "reduction of keys and values in each stage", or_many=True),
    _dimension("MODEL.DEPTH_TOKEN_ONLY", "int", "blocks in which only the class token changes"),
    _dimension("MODEL.MLP_RATIO", "float", "hidden width of a block's MLP to EMBED_DIM", or_many=True),
    _dimension("MODEL.INIT_VALUES", "float", "first value of the scale of each residual branch"),
    optional("MODEL.QKV_BIAS", "bool", "bias of queries, keys and values; None: the variant's"),
    optional("MODEL.LINEAR", "bool", "attention to pooled keys; None: the variant's"),
)


def _complete(values: CfgNode, settings: Mapping[str, Setting], _: Sequence[Setting]) -> list[str]:
    """Mean and deviation are those that the weights expect, and otherwise fit any number of channels."""
    notices = _pair_model_and_weights(values, settings)
    names = ("DATA.IMAGENET_MEAN", "DATA.IMAGENET_STD")
    is_said = all(name in settings for name in names)
    found = input_of(values, is_hub_asked=not is_said)
    of_weights = {} if found is None else dict(zip(names, (found[0].mean, found[0].std)))
    notices += [] if is_said else filter(None, [not_known(values, found)])
    for key in _DATA:
        section, name = key.name.split(".")
        if key.name in names and key.name not in settings:
            values[section][name] = list(of_weights.get(key.name) or key.default[:1] * values.DATA.IMAGE_CHANNELS)
    return notices


def _pair_model_and_weights(values: CfgNode, settings: Mapping[str, Setting]) -> list[str]:
    """Where a recipe names a model and its published weights, one that the command line names brings the other."""
    name, weights, model = settings.get("MODEL.NAME"), settings.get("MODEL.PRETRAINED"), values.MODEL
    row = published(model.PRETRAINED)
    if not model.PRETRAINED_REQUIRED or row is None or name is None or weights is None or name.value == row.model:
        return []
    if weights.source == COMMAND_LINE and name.source != COMMAND_LINE:
        model.NAME = row.model
        return [f"MODEL.NAME {row.model}: it is what {weights.place} {weights.value} is for, instead of {name.value}"]
    if name.source == COMMAND_LINE and weights.source != COMMAND_LINE:
        own = published_for(name.value)
        if own is None:
            raise UserError(
                f"{name.place}: MODEL.NAME {name.value}: {weights.value} ({weights.place}) are weights of another "
                "model: add -pretrained=PATH with weights of this one"
            )
        model.PRETRAINED = own.name
        return [f"MODEL.PRETRAINED {own.name}: the weights of MODEL.NAME {name.value}, instead of {weights.value}"]
    return []


def _check(given: ConfigView) -> list[str]:
    data = given.values.DATA
    for name in ("IMAGENET_MEAN", "IMAGENET_STD"):
        if len(data[name]) != data.IMAGE_CHANNELS:
            number = f"{data.IMAGE_CHANNELS} number{'s' if data.IMAGE_CHANNELS > 1 else ''}"
            raise UserError(f"{given[f'DATA.{name}']}: expected {number}, as many as {given['DATA.IMAGE_CHANNELS']}")
    return []


IMAGES = Table(
    keys=(*_DATA, *_MODEL),
    effects={
        "data": ("DATA.EXIF_ROTATE",),
        "neutral": ("DATA.ON_BAD_SAMPLE", "DATA.ALLOW_LEFT_OUT", "DATA.MAX_PIXELS"),
    },
    training=(
        *("DATA.HORIZONTAL_FLIP", "DATA.ON_BAD_SAMPLE"),
        *("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"),
    ),
    complete=_complete,
    check=_check,
    renamed={
        "MODEL.STAGE_DEPTHS": "MODEL.DEPTHS",
        "MODEL.STAGE_DEPTH": "MODEL.DEPTHS",
        "MODEL.MIXER.PATCH_SIZE": "MODEL.PATCH_SIZE",
        "MODEL.MIXER.EMBED_DIM": "MODEL.EMBED_DIM",
        "MODEL.MIXER.DEPTH": "MODEL.DEPTH",
    },
)

_SHAPES = (
    Key("DATA.SHAPES.TRAIN", 2000, "int", "drawn shapes: training images", AT_LEAST_1),
    Key("DATA.SHAPES.VAL", 200, "int", "drawn shapes: validation images", AT_LEAST_1),
    Key(
        "DATA.SHAPES.SIDES",
        [64, 64],
        "int",
        "drawn shapes: smallest and largest height and width of an image",
        Range(low=16, high=4096),
        None,
        True,
        2,
    ),
    Key(
        "DATA.SHAPES.PER_PICTURE",
        [1, 4],
        "int",
        "drawn shapes: fewest and most shapes of an image",
        Range(low=0, high=100),
        None,
        True,
        2,
    ),
    Key(
        "DATA.SHAPES.CATEGORIES",
        list(CATEGORIES[:3]),
        "text",
        "drawn shapes: what is drawn",
        choices=CATEGORIES,
        many=True,
    ),
)

_WITH_BACKBONE = (
    optional(
        "DATA.EVAL_SHORTEST_SIDE",
        "int",
        "evaluation and prediction: the shorter side in pixels; None: 800 for detection, as stored for segmentation",
        SIDE_PX,
    ),
    optional(
        "DATA.EVAL_LONGEST_SIDE",
        "int",
        "evaluation and prediction: most pixels of the longer side; None: 1333 for detection, any for segmentation",
        SIDE_PX,
    ),
    optional(
        "MODEL.BACKBONE_PRETRAINED",
        "path",
        "weights of a classifier that a training's backbone starts from: a path, an address, or a published name",
    ),
    Key(
        "TRAIN.BACKBONE_LR_FACTOR",
        1.0,
        "float",
        "learning rate of the backbone to that of the rest; DETR's and SegFormer's authors: 0.1",
        Range(low=0, high=1, low_open=True),
    ),
)


def _complete_objects(values: CfgNode, settings: Mapping[str, Setting], _: Sequence[Setting]) -> list[str]:
    """Images are normalised as ImageNet's are, unless somebody says otherwise."""
    if values.TASK in TABLES:  # not a user's task that reads the keys of all subjects
        for name, value in (("IMAGENET_MEAN", IMAGENET_MEAN), ("IMAGENET_STD", IMAGENET_STD)):
            if f"DATA.{name}" not in settings:
                values.DATA[name] = list(value)
    return []


def _check_objects(given: ConfigView) -> list[str]:
    shapes = given.values.DATA.SHAPES
    for name in ("SIDES", "PER_PICTURE"):
        low, high = shapes[name]
        if low > high:
            raise UserError(
                f"{given[f'DATA.SHAPES.{name}']}: expected the smaller number first, such as [{high}, {low}]"
            )
    if not shapes.CATEGORIES or len(set(shapes.CATEGORIES)) < len(shapes.CATEGORIES):
        raise UserError(f"{given['DATA.SHAPES.CATEGORIES']}: expected each one once, and one at least")
    return []


def _unused_objects(given: ConfigView) -> Iterator[Unused]:
    if given.values.DATA.DATASET not in _DRAWN:
        yield Unused(("DATA.SHAPES.",), "DATA.DATASET", f"it is for {' and '.join(_DRAWN)}, and {{}}")


# Of the tasks that say where things are in an image: detection and segmentation.
OBJECTS = Table(
    keys=(*_SHAPES, *_WITH_BACKBONE),
    effects={"start": ("MODEL.BACKBONE_PRETRAINED",)},
    training=("TRAIN.",),
    complete=_complete_objects,
    check=_check_objects,
    unused=_unused_objects,
)
