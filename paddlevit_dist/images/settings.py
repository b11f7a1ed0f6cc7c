"""Keys that all image tasks read: how images are opened and normalized, and the dimensions of their models.

None means "not set": the dataset, the variant MODEL.NAME, or the rule in the key's help decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from yacs.config import CfgNode

from ..core.registry.model_sources import find_weights_address
from ..core.runtime.errors import UserError
from ..core.settings import every_run
from ..core.settings.key import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    SEEDS,
    SHARE,
    SHARE_BELOW_1,
    Pair,
    PathText,
    Range,
    Section,
    key,
    rows,
)
from ..core.settings.recipes import is_recipe_file
from ..core.settings.table import COMMAND_LINE, ConfigView, IgnoredKeys, KeySetting, KeyTable, find_key
from ..core.settings.values import InvalidValue

if TYPE_CHECKING:
    from .expected_input import InputOfWeights

Category = Literal["circle", "square", "triangle", "cross", "ring", "bar"]  # shapes that can be drawn
CATEGORIES: tuple[Category, ...] = get_args(Category)
SIDE_PX = Range(low=1, high=65_535)  # no common image format has longer sides
RGB = 3  # channels
_DRAWN = ("synthetic_shapes", "segmentation_shapes", "panoptic_shapes", "drawn_figures")  # datasets of drawn images
_OF_COLUMNS = ("hub", "hub_boxes", "hub_label_maps")  # datasets in columns of data files
_OF_TABLES = ("DATA.TABLE.IMAGES", "DATA.TABLE.FOLD", "DATA.TABLE.EMPTY", "DATA.TABLE.BOXES")
_INSIDE = Range(low=0, high=1, low_open=True, high_open=True)
_SIZE = Range(low=1, high=1_000_000)
_FACTOR = Range(low=0, high=1000, low_open=True)


def _dimension(meaning: str, within: Range = _SIZE) -> Any:
    return key(None, f"{meaning}; None: the variant's", within)


class LabelTableSection(Section):
    """Keys of DATA.TABLE: tables of labels, and the columns of Parquet and Arrow files."""

    IMAGES: PathText | None = key(None, "folder of the images; None: that of the table", effect="place")
    IMAGE: str | None = key(
        None, "column with the images' paths, or the images; None: found by its type, heading and content"
    )
    LABELS: list[str] = key(
        [], "column of labels, boxes or label maps, or columns of classes; empty: found by types, headings and content"
    )
    BOXES: Literal["xyxy", "xywh", "cxcywh"] | None = key(
        None, "box_table: the numbers of a box: two corners, corner and sides, or center and sides; None: by headings"
    )
    FOLD: str | None = key(None, "value of the column fold that is validation; None: the first one")
    EMPTY: Literal["unknown", "absent"] = key(
        "unknown", "several labels: what an empty cell in a column of a class means; -1 is always unknown"
    )
    CONFIGURATION: str | None = key(None, "hub: configuration of the data; None: the default or only one")


class ImageDataSection(every_run.DataSection):
    """Keys of DATA for all image tasks."""

    IMAGENET_MEAN: list[float] = key(
        [0.5] * 3, "mean per channel, for pixels from 0 to 1; unset: the mean that the weights expect", SHARE
    )
    IMAGENET_STD: list[float] = key([0.5] * 3, "standard deviation per channel", ABOVE_0)
    HORIZONTAL_FLIP: float = key(0.5, "training: probability of a mirrored image", SHARE, training_only=True)
    VAL_FRACTION: float | None = key(
        None,
        "hold out this share of each training class, or of images with boxes, for validation",
        _INSIDE,
    )
    VAL_FRACTION_IF_MISSING: float | None = key(
        None, "VAL_FRACTION for folders, tar files and tables of images that have no validation split", _INSIDE
    )
    VAL_SEED: int = key(0, "seed of the split by VAL_FRACTION; not SEED, so that runs can be compared", SEEDS)
    ON_INVALID_SAMPLE: Literal["stop", "skip"] = key(
        "stop",
        "training: an unreadable image ends the run (stop), or is listed and replaced by the next readable one (skip)",
        training_only=True,
        effect="neutral",
    )
    ALLOW_SKIPPED_FILES: bool = key(
        False,
        "evaluate without the images that cannot be opened, and print their number with the score; otherwise they end "
        "the run, also in training",
        effect="neutral",
    )
    ALBUMENTATIONS: PathText | None = key(
        None,
        "training: file of transforms that albumentations.save wrote (YAML or JSON), applied to the stored image with "
        "its labels, boxes and masks before all other augmentation",
        training_only=True,
    )
    EXIF_ROTATE: bool | None = key(
        False,
        "turn images by their EXIF orientation; None (default for detection): only if the boxes refer to turned "
        "images, as with yolo, and with files that contain no image sizes or the sizes of turned images",
        effect="data",
    )
    MAX_PIXELS: int = key(
        89_478_485, "largest number of pixels of an image; larger ones are unreadable", AT_LEAST_1, effect="neutral"
    )
    TABLE: LabelTableSection


class ImageModelSection(every_run.ModelSection):
    """Keys of MODEL for all image tasks: regularization and dimensions."""

    DROPOUT: float = key(0.0, "probability, after dense layers", SHARE_BELOW_1, training_only=True)
    ATTENTION_DROPOUT: float = key(0.0, "probability, on attention weights", SHARE_BELOW_1, training_only=True)
    DROPPATH: float = key(0.0, "probability of skipping the last residual branch", SHARE_BELOW_1, training_only=True)
    PATCH_SIZE: int | None = _dimension("height and width of a patch in pixels")
    EMBED_DIM: int | list[int] | None = _dimension("width of a token")
    NUM_HEADS: int | list[int] | None = _dimension("attention heads")
    ATTN_HEAD_SIZE: int | None = _dimension("width of a head, else EMBED_DIM / NUM_HEADS")
    DEPTH: int | None = _dimension("blocks")
    DEPTHS: int | list[int] | None = _dimension("blocks of each stage")
    DIMS: int | list[int] | None = _dimension("channels of each stage")
    WINDOW_SIZE: int | None = _dimension("side of a window of attention, in patches")
    SR_RATIO: int | list[int] | None = _dimension("reduction of keys and values in each stage")
    DEPTH_TOKEN_ONLY: int | None = _dimension("blocks in which only the class token changes")
    MLP_RATIO: float | list[float] | None = _dimension("hidden width of a block's MLP to EMBED_DIM", _FACTOR)
    INIT_VALUES: float | None = _dimension("first value of the scale of each residual branch", _FACTOR)
    QKV_BIAS: bool | None = key(None, "bias of queries, keys and values; None: the variant's")
    LINEAR: bool | None = key(None, "attention to pooled keys; None: the variant's")


class ColorTrain(every_run.TrainSection):
    """Section TRAIN of classification and detection."""

    COLOR_JITTER: float = key(
        0.0,
        "largest relative change of brightness, contrast and saturation; classification: without RAND_AUGMENT and "
        "AUTO_AUGMENT, or with 3a",
        AT_LEAST_0,
    )


class ColorSettings(every_run.RunSettings):
    """Settings of a run with images whose colors change."""

    TRAIN: ColorTrain


COLORS = rows(ColorSettings)


class ImageSettings(every_run.RunSettings):
    """Keys of all image tasks."""

    DATA: ImageDataSection
    MODEL: ImageModelSection


# PaddleViT's files of 2021 have dimensions in a section of MODEL, and other names.
_SECTIONS = ("TRANS.", "MIXER.")
_NAMES = {"STAGE_DEPTHS": "DEPTHS", "STAGE_DEPTH": "DEPTHS", "EMBED_DIMS": "EMBED_DIM"}
_NAMES |= {"HIDDEN_SIZE": "EMBED_DIM", "NUM_LAYERS": "DEPTH"}
MODEL_KEYS = {row.name: row for row in rows(ImageModelSection)}  # each sets an option of the model


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Set mean and deviation to what the weights expect, or extend the default to the number of channels."""
    notices = [] if values.MODEL.PRETRAINED is None else _pair_model_and_weights(values, settings)
    data = values.DATA
    names = [key for key in ("IMAGENET_MEAN", "IMAGENET_STD") if f"DATA.{key}" not in settings]
    for name in names:
        data[name] = data[name][:1] * get_channels(values)
    if get_channels(values) != RGB or "CROP_PCT" not in data:  # of detectors and segmenters: ``_complete_objects``
        return notices
    from .expected_input import format_unknown_input

    match = adopt_expected_input(values, settings, ("IMAGENET_MEAN", "IMAGENET_STD"))
    return [*notices, *(filter(None, [format_unknown_input(values, match)]) if names else [])]


def adopt_expected_input(
    values: CfgNode, settings: Mapping[str, KeySetting], names: Sequence[str], is_kept: bool = False
) -> "InputOfWeights | None":
    """Set keys of DATA to what the weights expect, if that is known; return what was found.

    A key that somebody has set keeps its value. A recipe of this package sets some for the weights that it is meant
    for: described weights that somebody names instead of these have precedence over it, unless ``is_kept``.

    Raises:
        UserError: as ``find_expected_input``; or a key cannot have the value that the weights expect.
    """
    from .expected_input import find_expected_input  # it imports the tables of all weights

    weights = settings.get("MODEL.PRETRAINED")
    is_replaced = not is_kept and weights is not None and not is_recipe_file(weights.source)
    given = {name: settings.get(f"DATA.{name}") for name in names}
    unset = [name for name, setting in given.items() if setting is None]
    of_recipe = [name for name, setting in given.items() if is_replaced and setting and is_recipe_file(setting.source)]
    match = find_expected_input(values, is_hub_asked=bool(unset or of_recipe))
    if match is None:
        return None
    for name in [*unset, *(of_recipe if match.is_described else [])]:
        field = {"IMAGENET_MEAN": "mean", "IMAGENET_STD": "std"}.get(name, name.lower())
        value, row = getattr(match.expected, field), find_key(f"DATA.{name}", values.TASK)
        assert row is not None  # all tasks with these weights have it
        try:
            values.DATA[name] = row.parse(list(value) if isinstance(value, tuple) else value)
        except InvalidValue:
            advice = f"set {row.name} to {row.expected()}, or correct it (of a checkpoint by an args.yaml)"
            raise UserError(f"{match.source}: {field} {value}: {advice}") from None
    return match


def get_channels(values: CfgNode) -> int:
    """Return the channels of the input: a key of classification; 3 for other tasks."""
    return values.DATA.get("IMAGE_CHANNELS", RGB)


def _pair_model_and_weights(values: CfgNode, settings: Mapping[str, KeySetting]) -> list[str]:
    """Set the matching weights or model if the command line replaces a recipe's model or its published weights."""
    from ..core.checkpoint.published import find_published, find_published_for

    name, weights, model = settings.get("MODEL.NAME"), settings.get("MODEL.PRETRAINED"), values.MODEL
    row = find_published(model.PRETRAINED)
    is_optional = not model.PRETRAINED_REQUIRED
    if is_optional and weights and weights.source != COMMAND_LINE and row and name and name.value != row.model:
        model.PRETRAINED = None
        return [f"MODEL.PRETRAINED null: {row.name} ({weights.origin}) is for another model than {name.value}"]
    if not model.PRETRAINED_REQUIRED or row is None or name is None or weights is None or name.value == row.model:
        return []
    if weights.source == COMMAND_LINE and name.source != COMMAND_LINE:
        model.NAME = row.model
        return [f"MODEL.NAME {row.model}: the model of {weights.origin} {weights.value}, instead of {name.value}"]
    if name.source == COMMAND_LINE and weights.source != COMMAND_LINE:
        published = find_published_for(name.value)
        address = find_weights_address(name.value) and name.value
        if published is None and address is None:
            raise UserError(
                f"{name.origin}: MODEL.NAME {name.value}: {weights.value} ({weights.origin}) are weights of another "
                "model; add -pretrained=PATH with its weights, or MODEL.PRETRAINED_REQUIRED false for random ones"
            )
        model.PRETRAINED = published.name if published is not None else address
        return [
            f"MODEL.PRETRAINED {model.PRETRAINED}: the weights of MODEL.NAME {name.value}, instead of {weights.value}"
        ]
    return []


def _check(view: ConfigView[ImageSettings]) -> list[str]:
    data = view.values.DATA
    channels = get_channels(view.values)
    for name in ("IMAGENET_MEAN", "IMAGENET_STD"):
        if len(data[name]) != channels:
            number = f"{channels} number{'s' if channels > 1 else ''}"
            key_of_it = view["DATA.IMAGE_CHANNELS"] if data.get("IMAGE_CHANNELS") else "images have channels"
            raise UserError(f"{view[f'DATA.{name}']}: expected {number}, as many as {key_of_it}")
    return []


def _find_unused(view: ConfigView[ImageSettings]) -> Iterator[IgnoredKeys]:
    data = view.values.DATA
    if data.VAL_FRACTION is not None:
        yield IgnoredKeys(("DATA.VAL_FRACTION_IF_MISSING",), "DATA.VAL_FRACTION", "{} is for all data")
    elif data.VAL_FRACTION_IF_MISSING is None:
        yield IgnoredKeys(("DATA.VAL_SEED",), "DATA.VAL_FRACTION", "nothing is held out: {}")
    if data.DATASET in _OF_COLUMNS:
        yield IgnoredKeys(_OF_TABLES, "DATA.DATASET", "it is for table, and {}")
    elif data.DATASET == "table":
        yield IgnoredKeys(("DATA.TABLE.CONFIGURATION",), "DATA.DATASET", "it is for hub, and {}")
        yield IgnoredKeys(("DATA.TABLE.BOXES",), "DATA.DATASET", "it is for box_table, and {}")
    elif data.DATASET == "box_table":
        yield IgnoredKeys(("DATA.TABLE.CONFIGURATION", "DATA.TABLE.EMPTY"), "DATA.DATASET", "it is for others, and {}")
    else:
        yield IgnoredKeys(("DATA.TABLE.",), "DATA.DATASET", "it is for table and hub, and {}")


IMAGES = KeyTable(
    keys=rows(ImageSettings),
    resolve_defaults=_complete,
    check=_check,
    find_ignored=_find_unused,
    renamed={
        **{f"MODEL.{section}{name}": f"MODEL.{name}" for section in _SECTIONS for name in MODEL_KEYS},
        **{f"MODEL.{section}{name}": f"MODEL.{ours}" for section in ("", *_SECTIONS) for name, ours in _NAMES.items()},
        "MODEL.DROP_PATH": "MODEL.DROPPATH",
    },
)


class ShapeImageSection(Section):
    """Keys of DATA.SHAPES: synthetic images of drawn shapes."""

    TRAIN: int = key(2000, "drawn shapes: training images", AT_LEAST_1)
    VAL: int = key(200, "drawn shapes: validation images", AT_LEAST_1)
    SIDES: Pair[int] = key(
        [64, 64], "drawn shapes: smallest and largest height and width of an image", Range(low=16, high=4096)
    )
    OBJECTS_PER_IMAGE: Pair[int] = key(
        [1, 4], "drawn shapes: fewest and most shapes of an image", Range(low=0, high=100)
    )
    CATEGORIES: list[Category] = key(list(CATEGORIES[:3]), "drawn shapes: kinds of shapes")


class ObjectData(ImageDataSection):
    """Keys of DATA for detection and segmentation."""

    SHAPES: ShapeImageSection
    EVAL_SHORTEST_SIDE: int | None = key(
        None,
        "evaluation and prediction: shorter side in pixels; None: 800 for detection, as stored for segmentation",
        SIDE_PX,
    )
    EVAL_LONGEST_SIDE: int | None = key(
        None,
        "evaluation and prediction: limit of the longer side in pixels; None: 1333 for detection, any for segmentation",
        SIDE_PX,
    )
    TRAIN_ANNOTATIONS: PathText | None = key(
        None,
        "coco: file of the training annotations, relative to DATA_PATH or absolute; voc: name of a list such as "
        "trainval",
    )
    VAL_ANNOTATIONS: PathText | None = key(
        None,
        "coco: file of the validation annotations, relative to DATA_PATH or absolute; voc: name of a list such as test",
    )
    TRAIN_IMAGES: PathText | None = key(None, "coco: folder of the training images, relative to DATA_PATH or absolute")
    VAL_IMAGES: PathText | None = key(None, "coco: folder of the validation images, relative to DATA_PATH or absolute")
    SEARCH_IMAGES_RECURSIVELY: bool = key(
        False, "coco: allow a file_name outside of DATA_PATH and the folder of images, such as ../a.jpg or /a.jpg"
    )


class ObjectModel(ImageModelSection):
    """Keys of MODEL for detection and segmentation."""

    BACKBONE: str | None = key(
        None, "classifier whose feature maps the network reads, such as resnet50 or timm:resnet50"
    )
    BACKBONE_PRETRAINED: PathText | None = key(
        None,
        "classifier weights that the backbone starts from in training: a path, an address, or a published name",
        effect="start",
    )


class ObjectTrain(every_run.TrainSection):
    """Keys of TRAIN for detection and segmentation."""

    BACKBONE_LR_FACTOR: float = key(
        1.0,
        "learning rate of the backbone relative to the rest; DETR's and SegFormer's authors: 0.1",
        Range(low=0, high=1, low_open=True),
    )
    DECAY_ALL_PARAMETERS: bool | None = key(
        None,
        "weight decay on all parameters, as the authors of detectors and of EoMT do; False: except biases and norms; "
        "None: on all for detection, else except these",
        training_only=True,
    )
    BACKBONE_WARMUP_STEPS: int | None = key(
        None,
        "updates in which the backbone's rate rises from 0 after the warm-up of the rest, for which it waits; None: it "
        "has the warm-up of the rest",
        AT_LEAST_1,
        training_only=True,
        counts="updates",
    )
    RANDOM_SAMPLING: bool = key(
        True,
        "Mask R-CNN, RF-DETR Seg, EoMT: sample the anchors and regions, or the points of masks, for the losses at "
        "random; False: deterministically",
        training_only=True,
    )


class ObjectSettings(ImageSettings):
    """Keys of detection and segmentation."""

    DATA: ObjectData
    MODEL: ObjectModel
    TRAIN: ObjectTrain


def _complete_objects(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Set mean and deviation to what the weights expect, else to ImageNet's, unless they are configured."""
    from .expected_input import find_object_input  # it imports the tables of all weights

    names = [key for key in ("IMAGENET_MEAN", "IMAGENET_STD") if f"DATA.{key}" not in settings]
    expected = find_object_input(values, is_hub_asked=bool(names))
    for name in names:
        values.DATA[name] = expected.mean if name == "IMAGENET_MEAN" else expected.std
    return []


def _check_objects(view: ConfigView[ObjectSettings]) -> list[str]:
    shapes = view.values.DATA.SHAPES
    for name in ("SIDES", "OBJECTS_PER_IMAGE"):
        low, high = shapes[name]
        if low > high:
            raise UserError(
                f"{view[f'DATA.SHAPES.{name}']}: expected the smaller number first, such as [{high}, {low}]"
            )
    if not shapes.CATEGORIES or len(set(shapes.CATEGORIES)) < len(shapes.CATEGORIES):
        raise UserError(f"{view['DATA.SHAPES.CATEGORIES']}: expected at least one category, each only once")
    from .expected_input import format_object_input

    is_hub_asked = any(f"DATA.{key}" not in view for key in ("IMAGENET_MEAN", "IMAGENET_STD"))
    return format_object_input(view.values, is_hub_asked)


def _find_unused_objects(view: ConfigView[ObjectSettings]) -> Iterator[IgnoredKeys]:
    if view.values.DATA.DATASET not in _DRAWN:
        yield IgnoredKeys(("DATA.SHAPES.",), "DATA.DATASET", f"it is for {', '.join(_DRAWN)}, and {{}}")
    if view.values.MODEL.PRETRAINED is not None and not view.values.EVAL:
        reason = "these weights are of the whole network: {}"
        yield IgnoredKeys(("MODEL.BACKBONE_PRETRAINED",), "MODEL.PRETRAINED", reason)


# Keys of detection and segmentation.
OBJECTS = KeyTable(
    keys=rows(ObjectSettings),
    resolve_defaults=_complete_objects,
    check=_check_objects,
    find_ignored=_find_unused_objects,
)
