"""Keys that only image classification reads: crops, augmentation, mixing, labels and teachers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from yacs.config import CfgNode

from ...core.losses.settings import SMOOTHING, SmoothingTrain
from ...core.registry.lookup import find_built_in, find_package, list_names
from ...core.registry.manifest import NO_LABELS
from ...core.registry.model_sources import refuse_clone_model
from ...core.runtime.errors import UserError
from ...core.runtime.files import is_address
from ...core.settings.key import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    OPTIONS,
    SHARE,
    SHARE_ABOVE_0,
    SIZE,
    Flag,
    Pair,
    PathText,
    Range,
    Section,
    key,
    rows,
    show,
)
from ...core.settings.recipes import is_recipe_file
from ...core.settings.table import (
    COMMAND_LINE,
    ConfigView,
    IgnoredKeys,
    ImpliedValues,
    KeySetting,
    KeyTable,
)
from .. import settings
from ..image_size import format_size
from ..settings import IMAGES, RGB, adopt_expected_input, get_channels

_GLYPHS = ("digits", "mnist", "fashion_mnist", "multi_digits")  # datasets of whole glyphs
_VIEWS = ("DATA.TEST_VIEWS", "DATA.TEST_SCALES")
_OF_PHOTOS = ("DATA.CROP_SCALE", "DATA.CROP_RATIO", "DATA.CROP_MODE", "DATA.INTERPOLATION", *_VIEWS)
_MIXING = ("TRAIN.MIXUP_ALPHA", "TRAIN.CUTMIX_ALPHA", "TRAIN.CUTMIX_MINMAX")  # each turns mixing on


class ClassificationDataSection(settings.ImageDataSection):
    """Keys of DATA for image classification."""

    # The defaults of size, crop and resize are what the weights expect, if that is known (``expected_input``).
    IMAGE_SIZE: int | Pair[int] = key(
        224,
        "model's input in pixels: one number for a square, or [height, width]",
        Range(low=1, high=10_000),
        flag=Flag("image_size", SIZE, "data", 7, "model's input: pixels or HEIGHTxWIDTH"),
    )
    IMAGE_CHANNELS: Literal[1, 3] = key(3, "3 for color, 1 for gray")
    CROP_PCT: float = key(0.875, "evaluation: share of the resized image that the center crop keeps", SHARE_ABOVE_0)
    INTERPOLATION: Literal["bicubic", "bilinear", "lanczos"] = key(
        "bicubic", "evaluation: filter for resizing; torchvision's own weights expect bilinear"
    )
    CROP_MODE: Literal["center", "squash", "border"] = key(
        "center",
        "evaluation: resize with the image's aspect ratio to fill the crop (center) or to fit into it, with borders of "
        "the color IMAGENET_MEAN (border), or change the aspect ratio to the crop's (squash)",
    )
    TEST_VIEWS: list[Literal["mirrored", "five_crops"]] = key(
        [],
        "evaluation and prediction: average probabilities of an image and its mirror image (mirrored), and of crops at "
        "the center and the four corners (five_crops)",
        effect="score",
    )
    TEST_SCALES: list[float] = key(
        [1.0],
        "evaluation and prediction: average the probabilities of images resized to these factors of their usual size",
        Range(low=0.25, high=4),
        effect="score",
    )
    DECODER: Literal["exact", "fast"] = key(
        "exact",
        "decoder of training images: exact (Pillow) or fast (OpenCV, about 1/255 off); evaluation is exact",
        training_only=True,
    )
    CROP_SCALE: Pair[float] = key(
        [0.08, 1.0], "training crop: range of its share of the area", SHARE_ABOVE_0, training_only=True
    )
    CROP_RATIO: Pair[float] = key([0.75, 4 / 3], "training crop: range of width to height", ABOVE_0, training_only=True)
    GLYPH_DISTORTION: float = key(
        1.0, "training on glyphs: strength of the small affine maps, 0 for none", SHARE, training_only=True
    )
    CLASS_BALANCED: bool = key(False, "training: read all classes equally often", training_only=True)
    REMOTE_CACHE_GIGABYTES: float = key(
        100.0,
        "DATA_PATH s3:// or https://: size in GiB of the cache of images below CACHE_FOLDER",
        Range(low=1),
        effect="machine",
    )


class ClassificationTrainSection(settings.ColorTrain, SmoothingTrain):
    """Keys of TRAIN for image classification."""

    CLASS_WEIGHTS: list[float] | Literal["balanced"] | None = key(
        None,
        "weight of each class in the loss, scaled to a mean of 1 over the training set; balanced: 1 / its frequency",
        AT_LEAST_0,
    )
    DISTILLATION_TYPE: Literal["none", "soft", "hard"] = key(
        "none", "teacher signal to learn from: its decisions (hard) or its distribution (soft)"
    )
    DISTILLATION_ALPHA: float = key(0.5, "share of the teacher in the loss", SHARE)
    TEACHER_MODEL: PathText | None = key(
        None, "a run, weights with its about.yaml, a registered model, or the path of an exported one without extension"
    )
    TEACHER_WEIGHTS: PathText | None = key(None, "weights of a registered teacher, with or without extension")
    RAND_AUGMENT: bool | str = key(False, "RandAugment: true, or timm's text such as rand-m9-mstd0.5-inc1")
    RAND_AUGMENT_LAYERS: int = key(2, "RAND_AUGMENT true: operations per image", AT_LEAST_1)
    RAND_AUGMENT_MAGNITUDE: int = key(9, "RAND_AUGMENT true: strength", Range(low=0, high=10))
    AUTO_AUGMENT: bool | str = key(False, "without RAND_AUGMENT: true (original), originalr, v0, v0r or 3a")
    RANDOM_ERASE_PROB: float = key(0.0, "probability of erasing boxes of an image", SHARE)
    RANDOM_ERASE_MODE: Literal["const", "rand", "pixel"] = key(
        "pixel", "content of erased boxes: the mean (const), a random color (rand) or noise (pixel)"
    )
    RANDOM_ERASE_COUNT: int = key(1, "largest number of erased boxes of an image", AT_LEAST_1)
    MIXUP_ALPHA: float = key(0.0, "mixup: alpha of the distribution Beta(alpha, alpha); 0: off", AT_LEAST_0)
    CUTMIX_ALPHA: float = key(0.0, "cutmix: alpha of the distribution Beta(alpha, alpha); 0: off", AT_LEAST_0)
    CUTMIX_MINMAX: Pair[float] | None = key(
        None, "cutmix: range of the box's side relative to the image's, instead of CUTMIX_ALPHA", SHARE_ABOVE_0
    )
    MIXUP_PROB: float = key(1.0, "probability of mixing at all (mixup or cutmix)", SHARE)
    MIXUP_SWITCH_PROB: float = key(0.5, "probability of cutmix if both are on", SHARE)
    MIXUP_MODE: Literal["batch", "pair", "elem"] = key(
        "batch", "draw the mix once for a batch (batch), for each pair of images (pair) or for each image (elem)"
    )


class ClassificationSettings(settings.ImageSettings):
    """Keys of image classification."""

    DATA: ClassificationDataSection
    TRAIN: ClassificationTrainSection


class ProbeKeys(Section):
    """Keys of PROBE."""

    # DINOv2's rates, for a batch of 256.
    LEARNING_RATES: list[float] = key(
        [1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1],
        "linear probe: learning rate of each layer, as factors of TRAIN.BASE_LR",
        ABOVE_0,
        effect="network",
    )
    LEARNING_RATE: float | None = key(
        None, "linear probe: one of LEARNING_RATES to evaluate; None: the best one on the evaluated split", ABOVE_0
    )
    KNN_K: list[int] = key(
        [20, 10], "nearest neighbors: numbers of neighbors; the score is the first one's", AT_LEAST_1
    )


class ProbeSettings(ClassificationSettings):
    """Keys of probes."""

    PROBE: ProbeKeys


_TEMPERATURE = "TRAIN.DISTILLATION_TAU"  # a key of PaddleViT


def _infer(files: Sequence[Mapping[str, KeySetting]], user_files: Sequence[Mapping[str, KeySetting]]) -> ImpliedValues:
    """Return the defaults that files in PaddleViT's form rely on: one of the user's names a model."""
    if not any("MODEL.NAME" in file for file in user_files):
        return ImpliedValues()
    from .paddlevit_defaults import get_defaults

    return ImpliedValues(*get_defaults(files, user_files))


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], all_settings: Sequence[KeySetting]) -> list[str]:
    """Set size, crop and resize of evaluation to what the weights expect, and refuse a temperature other than 1."""
    for setting in all_settings:
        if setting.name == _TEMPERATURE and str(setting.value) not in ("1", "1.0", "None"):
            raise UserError(
                f"{setting.origin}: {_TEMPERATURE} is {show(setting.value)}, but only 1 is supported; remove it"
            )
    if get_channels(values) != RGB:
        return []
    # A recipe decides how large images are in training and in the features of a probe.
    is_kept = not values.EVAL or "PROBE" in values
    names = ["IMAGE_SIZE", "CROP_PCT"]
    # PaddleViT's files set a crop, and resize bicubically with the image's aspect ratio.
    crop = settings.get("DATA.CROP_PCT")
    if crop is None or crop.source == COMMAND_LINE or (is_recipe_file(crop.source) and not is_kept):
        names += ["INTERPOLATION", "CROP_MODE"]
    adopt_expected_input(values, settings, names, is_kept)
    return []


def _check(view: ConfigView[ClassificationSettings]) -> list[str]:
    data, train = view.values.DATA, view.values.TRAIN
    for name in ("CROP_SCALE", "CROP_RATIO"):
        low, high = data[name]
        if low > high:
            raise UserError(f"{view[f'DATA.{name}']}: expected the smaller number first")
    for name in ("TEST_VIEWS", "TEST_SCALES"):
        if len(set(data[name])) < len(data[name]):
            raise UserError(f"{view[f'DATA.{name}']}: expected each only once")
    smallest = min(data.TEST_SCALES, default=0)
    if smallest < data.CROP_PCT and not (data.CROP_MODE == "border" and data.TEST_SCALES):
        raise UserError(
            f"{view['DATA.TEST_SCALES']}: expected at least one number, each at least DATA.CROP_PCT {data.CROP_PCT:g}, "
            "as a crop cannot exceed its image (with DATA.CROP_MODE border it can)"
        )
    if view.values.EVAL:
        return []
    if train.CUTMIX_MINMAX is not None and train.CUTMIX_MINMAX[0] > train.CUTMIX_MINMAX[1]:
        raise UserError(f"{view['TRAIN.CUTMIX_MINMAX']}: expected the smaller number first")
    for name in _MIXING:
        if train[name.split(".")[-1]] and train.MIXUP_PROB and data.BATCH_SIZE == 1:
            raise UserError(f"{view[name]}: images are mixed with others of their batch, but {view['DATA.BATCH_SIZE']}")
    if data.ALBUMENTATIONS is not None and data.DECODER == "fast":
        raise UserError(
            f"{view['DATA.DECODER']}: it reads only the pixels of a crop, but {view['DATA.ALBUMENTATIONS']} augments "
            "whole images before: set DATA.DECODER exact"
        )
    if data.CLASS_BALANCED and train.CLASS_WEIGHTS is not None:
        raise UserError(
            f"{view['DATA.CLASS_BALANCED']} and {view['TRAIN.CLASS_WEIGHTS']}: both correct for rare classes; keep one"
        )
    return []


def _find_unused(view: ConfigView[ClassificationSettings]) -> Iterator[IgnoredKeys]:
    data, train = view.values.DATA, view.values.TRAIN
    names: tuple[str, ...]
    policy = None
    if train.RAND_AUGMENT:
        policy = "TRAIN.RAND_AUGMENT"
        if train.AUTO_AUGMENT:
            yield IgnoredKeys(("TRAIN.AUTO_AUGMENT",), policy, "{} replaces it")
        if train.RAND_AUGMENT is not True:
            yield IgnoredKeys(("TRAIN.RAND_AUGMENT_LAYERS", "TRAIN.RAND_AUGMENT_MAGNITUDE"), policy, "{} contains it")
    else:
        names = ("TRAIN.RAND_AUGMENT_LAYERS", "TRAIN.RAND_AUGMENT_MAGNITUDE")
        names = _select_set_apart(view, names, ("TRAIN.RAND_AUGMENT",))
        yield IgnoredKeys(names, "TRAIN.RAND_AUGMENT", "it is for RandAugment, and {}")
    if not train.RAND_AUGMENT and train.AUTO_AUGMENT and not str(train.AUTO_AUGMENT).startswith("3a"):
        policy = "TRAIN.AUTO_AUGMENT"
    if policy and train.COLOR_JITTER:
        yield IgnoredKeys(("TRAIN.COLOR_JITTER",), policy, "{} replaces it")
    if train.DISTILLATION_TYPE == "none":
        names = ("DISTILLATION_ALPHA", "TEACHER_MODEL", "TEACHER_WEIGHTS")
        yield IgnoredKeys(
            tuple(f"TRAIN.{name}" for name in names), "TRAIN.DISTILLATION_TYPE", "there is no teacher: {}"
        )
    if data.DATA_PATH is None or not is_address(data.DATA_PATH):
        yield IgnoredKeys(
            ("DATA.REMOTE_CACHE_GIGABYTES",), "DATA.DATA_PATH", "images of this machine are not copied: {}"
        )
    if not train.RANDOM_ERASE_PROB:
        names = ("TRAIN.RANDOM_ERASE_MODE", "TRAIN.RANDOM_ERASE_COUNT")
        names = _select_set_apart(view, names, ("TRAIN.RANDOM_ERASE_PROB",))
        yield IgnoredKeys(names, "TRAIN.RANDOM_ERASE_PROB", "nothing is erased: {}")
    if data.DATASET in _GLYPHS and "DATA.DATASET" in view:
        flip = ("DATA.HORIZONTAL_FLIP",) if data.HORIZONTAL_FLIP else ()
        crop = _select_set_apart(view, ("DATA.CROP_PCT",), ("DATA.DATASET",)) if data.CROP_PCT < 1 else ()
        reason = "glyphs are neither cropped nor mirrored: {}"
        yield IgnoredKeys((*_OF_PHOTOS, *flip, *crop), "DATA.DATASET", reason)
    elif data.DATASET not in _GLYPHS and find_package("dataset", data.DATASET) is not None:
        yield IgnoredKeys(("DATA.GLYPH_DISTORTION",), "DATA.DATASET", f"it is for {', '.join(_GLYPHS)}, and {{}}")
    yield from _find_unused_mixing(view)


def has_test_views(data: ClassificationDataSection) -> bool:
    """Return whether a test image has several views, or one at another scale."""
    return bool(data.TEST_VIEWS) or list(data.TEST_SCALES) != [1.0]


def _select_set_apart(view: ConfigView[Any], names: Sequence[str], switches: Sequence[str]) -> tuple[str, ...]:
    """Return the names that were not set together with one of the switches: a file that turns them off means it."""
    sources = {view.settings[switch].source for switch in switches if switch in view}
    return tuple(name for name in names if name in view and view.settings[name].source not in sources)


def _find_unused_mixing(view: ConfigView[ClassificationSettings]) -> Iterator[IgnoredKeys]:
    train = view.values.TRAIN
    names: tuple[str, ...]
    has_mixup, has_cutmix = bool(train.MIXUP_ALPHA), bool(train.CUTMIX_ALPHA or train.CUTMIX_MINMAX)
    if not (has_mixup or has_cutmix):
        names = ("TRAIN.MIXUP_PROB", "TRAIN.MIXUP_SWITCH_PROB", "TRAIN.MIXUP_MODE")
        yield IgnoredKeys(
            _select_set_apart(view, names, _MIXING), "TRAIN.MIXUP_ALPHA", f"none of {', '.join(_MIXING)} is set"
        )
    elif not train.MIXUP_PROB:
        names = (*_MIXING, "TRAIN.MIXUP_SWITCH_PROB", "TRAIN.MIXUP_MODE")
        names = _select_set_apart(view, names, ("TRAIN.MIXUP_PROB",))
        yield IgnoredKeys(names, "TRAIN.MIXUP_PROB", "no image is mixed: {}")
    elif not (has_mixup and has_cutmix):
        other = "TRAIN.MIXUP_ALPHA" if has_cutmix else "TRAIN.CUTMIX_ALPHA"
        names = _select_set_apart(view, ("TRAIN.MIXUP_SWITCH_PROB",), (other,))
        yield IgnoredKeys(names, other, "it is for mixup with cutmix, and {}")
    if train.CUTMIX_MINMAX is not None:
        yield IgnoredKeys(("TRAIN.CUTMIX_ALPHA",), "TRAIN.CUTMIX_MINMAX", "{} replaces it")


TABLE = KeyTable(
    keys=(*SMOOTHING, *settings.COLORS, *rows(ClassificationSettings)),
    infer=_infer,
    resolve_defaults=_complete,
    check=_check,
    find_ignored=_find_unused,
    ignored_keys={
        _TEMPERATURE: "it is 1, as in DeiT's and PaddleViT's recipes",
        "TRAIN.RANDOM_ERASE_SPLIT": "images are erased one by one, as in PaddleViT, and a batch has no clean part",
    },
)


_LINEAR = "linear_probe"  # a task whose runs have weights; probes by neighbors have none
_INPUT = (
    *("IMAGE_SIZE", "IMAGE_CHANNELS", "CROP_PCT", "INTERPOLATION", "CROP_MODE"),
    *("IMAGENET_MEAN", "IMAGENET_STD", "EXIF_ROTATE"),
)


def _complete_probe(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Set network and input of the run that the weights are from, also a probe's, unless the command line sets them."""
    from ...core.checkpoint.model_record import read_stored_settings  # it needs NumPy, which other commands do not

    source = values.MODEL.PRETRAINED
    if source is None:
        return []
    stored = read_stored_settings(source)
    known = ("classification", _LINEAR, *list_names("task", NO_LABELS))
    if stored is None or find_built_in(str(stored.get("TASK"))) not in known:
        return []
    names = ["MODEL.NAME", "MODEL.TYPE", OPTIONS, *(row.name for row in IMAGES.keys if row.name.startswith("MODEL."))]
    for section, name in (option.split(".") for option in [*names, *(f"DATA.{entry}" for entry in _INPUT)]):
        setting = settings.get(f"{section}.{name}")
        if name in (stored.get(section) or {}) and (setting is None or setting.source != COMMAND_LINE):
            if (section, name) == ("MODEL", "NAME"):
                refuse_clone_model(stored[section][name], str(source))
            values[section][name] = stored[section][name]
    size = format_size(values.DATA.IMAGE_SIZE)
    return [f"MODEL.NAME {values.MODEL.NAME}, {size}: network and input of the run of {source}"]


def _check_probe(view: ConfigView[ProbeSettings]) -> list[str]:
    probe = view.values.PROBE
    for name in ("LEARNING_RATES", "KNN_K"):
        if not probe[name] or len(set(probe[name])) < len(probe[name]):
            raise UserError(f"{view[f'PROBE.{name}']}: expected at least one value, each only once")
    if probe.LEARNING_RATE is not None and probe.LEARNING_RATE not in probe.LEARNING_RATES:
        raise UserError(f"{view['PROBE.LEARNING_RATE']}: expected one of {view['PROBE.LEARNING_RATES']}")
    return []


def _find_unused_probe_keys(view: ConfigView[ProbeSettings]) -> Iterator[IgnoredKeys]:
    shared = ("DATA.HORIZONTAL_FLIP", "DATA.ON_INVALID_SAMPLE", "DATA.ALBUMENTATIONS", *_VIEWS)
    names = (*TABLE.training_names() - {"TRAIN.DISTILLATION_TYPE"}, *shared)
    other = ("KNN_K",) if find_built_in(view.values.TASK) == _LINEAR else ("LEARNING_RATES", "LEARNING_RATE")
    yield IgnoredKeys(tuple(f"PROBE.{name}" for name in other), "TASK", "it is for the other probe, and {}")
    yield IgnoredKeys(tuple(sorted(names)), "TASK", "features are computed once, with the evaluation transform: {}")


PROBE_TABLE = KeyTable(
    keys=rows(ProbeSettings),
    resolve_defaults=_complete_probe,
    check=_check_probe,
    find_ignored=_find_unused_probe_keys,
)
