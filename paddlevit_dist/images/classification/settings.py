"""The keys that only classification of images reads: crops, augmentation, mixing, labels and teachers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from yacs.config import CfgNode

from ...checkpoint.published import is_fetched
from ...registry import refuse_unnamed_code
from ...runtime.errors import UserError
from ...settings import every_run
from ...settings.key import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    COMMAND_LINE,
    SHARE,
    SHARE_ABOVE_0,
    SHARE_BELOW_1,
    ConfigView,
    IgnoredKeys,
    KeySetting,
    KeyTable,
    Range,
    show,
)
from ...settings.section import Pair, PathText, Section, key, rows
from .. import settings
from ..expected_input import find_expected_input
from ..settings import IMAGES
from .paddlevit_defaults import get_defaults

_MIXING = ("TRAIN.MIXUP_ALPHA", "TRAIN.CUTMIX_ALPHA", "TRAIN.CUTMIX_MINMAX")  # each switches mixing on


class ClassificationDataSection(settings.ImageDataSection):
    # Of these and the next ones the defaults are what the weights expect, where that is known (``expected_input``).
    IMAGE_SIZE: int = key(224, "height and width in pixels that the model sees", Range(low=1, high=10_000))
    IMAGE_CHANNELS: Literal[1, 3] = key(3, "3 for color, 1 for gray")
    CROP_PCT: float = key(0.875, "evaluation: share of the resized image that is kept", SHARE_ABOVE_0)
    INTERPOLATION: Literal["bicubic", "bilinear"] = key(
        "bicubic", "evaluation: how images are resized; torchvision's own weights expect bilinear"
    )
    CROP_MODE: Literal["center", "squash"] = key(
        "center", "evaluation: the resize keeps the image's proportions (center) or makes a square (squash)"
    )
    DECODER: Literal["exact", "fast"] = key(
        "exact", "training images: exact (Pillow) or fast (OpenCV, about 1/255 off); evaluation is always exact"
    )
    CROP_SCALE: Pair[float] = key([0.08, 1.0], "training crop: share of the area", SHARE_ABOVE_0)
    CROP_RATIO: Pair[float] = key([0.75, 4 / 3], "training crop: width to height", ABOVE_0)
    GLYPH_DISTORTION: float = key(1.0, "training on signs: strength of the small affine maps, 0 for none", SHARE)
    CLASS_BALANCED: bool = key(False, "training reads all classes equally often")


class ClassificationTrainSection(every_run.TrainSection):
    SMOOTHING: float = key(0.0, "label smoothing", SHARE_BELOW_1)
    CLASS_WEIGHTS: list[float] | Literal["balanced"] | None = key(
        None,
        "weight of each class in the loss, scaled to a mean of 1 over the training set; balanced: 1 / its frequency",
        AT_LEAST_0,
    )
    DISTILLATION_TYPE: Literal["none", "soft", "hard"] = key(
        "none", "learn from a teacher too: its decisions (hard) or its distribution (soft)"
    )
    DISTILLATION_ALPHA: float = key(0.5, "share of the teacher in the loss", SHARE)
    TEACHER_MODEL: PathText | None = key(None, "a registered model, or the path of an exported one without extension")
    TEACHER_WEIGHTS: PathText | None = key(None, "weights of a registered teacher, with or without extension")
    RAND_AUGMENT: bool | str = key(False, "RandAugment: true, or timm's text such as rand-m9-mstd0.5-inc1")
    RAND_AUGMENT_LAYERS: int = key(2, "RAND_AUGMENT true: operations per image", AT_LEAST_1)
    RAND_AUGMENT_MAGNITUDE: int = key(9, "RAND_AUGMENT true: strength", Range(low=0, high=10))
    AUTO_AUGMENT: bool | str = key(False, "without RAND_AUGMENT: true (original), originalr, v0, v0r or 3a")
    COLOR_JITTER: float = key(0.0, "without RAND_AUGMENT and AUTO_AUGMENT, or with 3a: range", AT_LEAST_0)
    GRAYSCALE_PROB: float = key(0.0, "probability of a gray image", SHARE)
    GAUSSIAN_BLUR_PROB: float = key(0.0, "probability of a blur of 0.1 to 2 pixels", SHARE)
    SOLARIZE_PROB: float = key(0.0, "probability of inverting all values from 128 on", SHARE)
    RANDOM_ERASE_PROB: float = key(0.0, "probability of erasing boxes of an image", SHARE)
    RANDOM_ERASE_MODE: Literal["const", "rand", "pixel"] = key(
        "pixel", "boxes become the mean (const), a random color (rand) or noise (pixel)"
    )
    RANDOM_ERASE_COUNT: int = key(1, "most boxes of an image", AT_LEAST_1)
    MIXUP_ALPHA: float = key(0.0, "mixup: of the distribution Beta(alpha, alpha); 0: off", AT_LEAST_0)
    CUTMIX_ALPHA: float = key(0.0, "cutmix: of the distribution Beta(alpha, alpha); 0: off", AT_LEAST_0)
    CUTMIX_MINMAX: Pair[float] | None = key(
        None, "cutmix: shortest and longest side of the box to the image's, instead of CUTMIX_ALPHA", SHARE_ABOVE_0
    )
    MIXUP_PROB: float = key(1.0, "probability of mixing at all (mixup or cutmix)", SHARE)
    MIXUP_SWITCH_PROB: float = key(0.5, "probability of cutmix where both are on", SHARE)
    MIXUP_MODE: Literal["batch", "pair", "elem"] = key(
        "batch", "one draw for a whole batch, for each pair of images or for each image"
    )


class ClassificationSettings(settings.ImageSettings):
    DATA: ClassificationDataSection
    TRAIN: ClassificationTrainSection


class ProbeKeys(Section):
    # DINOv2's, for a batch of 256.
    LEARNING_RATES: list[float] = key(
        [1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1],
        "linear probe: a layer for each, factors of TRAIN.BASE_LR",
        ABOVE_0,
    )
    LEARNING_RATE: float | None = key(
        None, "linear probe: the one of LEARNING_RATES that is evaluated; None: the best on what is evaluated", ABOVE_0
    )
    KNN_K: list[int] = key([20, 10], "nearest neighbors: numbers that vote; the first is the score", AT_LEAST_1)
    TEMPERATURE: float = key(0.07, "nearest neighbors: votes weigh exp(similarity / temperature)", ABOVE_0)


class ProbeSettings(ClassificationSettings):
    PROBE: ProbeKeys


_TEMPERATURE = "TRAIN.DISTILLATION_TAU"  # PaddleViT's


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], everything: Sequence[KeySetting]) -> list[str]:
    """Images are evaluated at the size, with the crop and by the resize that the weights expect."""
    for setting in everything:
        if setting.name == _TEMPERATURE and str(setting.value) not in ("1", "1.0", "None"):
            raise UserError(f"{setting.place}: {_TEMPERATURE} is {show(setting.value)}: here it is 1; leave it out")
    names = ["IMAGE_SIZE", "CROP_PCT"]
    # PaddleViT's files state a crop, and resize bicubically with the image's proportions.
    crop = settings.get("DATA.CROP_PCT")
    names += ["INTERPOLATION", "CROP_MODE"] if crop is None or crop.source == COMMAND_LINE else []
    names = [name for name in names if f"DATA.{name}" not in settings]
    found = find_expected_input(values, is_hub_asked=bool(names))
    for name in names if found is not None else ():
        values.DATA[name] = getattr(found[0], name.lower())
    return []


def _check(given: ConfigView[ClassificationSettings]) -> list[str]:
    data, train = given.values.DATA, given.values.TRAIN
    for name in ("CROP_SCALE", "CROP_RATIO"):
        low, high = data[name]
        if low > high:
            raise UserError(f"{given[f'DATA.{name}']}: expected the smaller number first")
    if given.values.EVAL:
        return []
    if train.CUTMIX_MINMAX is not None and train.CUTMIX_MINMAX[0] > train.CUTMIX_MINMAX[1]:
        raise UserError(f"{given['TRAIN.CUTMIX_MINMAX']}: expected the smaller number first")
    for name in _MIXING:
        if train[name.split(".")[-1]] and train.MIXUP_PROB and data.BATCH_SIZE == 1:
            raise UserError(
                f"{given[name]}: an image is mixed with another of its batch, but {given['DATA.BATCH_SIZE']}"
            )
    if data.CLASS_BALANCED and train.CLASS_WEIGHTS is not None:
        raise UserError(
            f"{given['DATA.CLASS_BALANCED']} and {given['TRAIN.CLASS_WEIGHTS']}: "
            "both make up for rare classes; keep one"
        )
    if "TRAIN.MIXUP_PROB" in given and train.MIXUP_PROB and not any(name in given for name in _MIXING):
        return [f"{given['TRAIN.MIXUP_PROB']}: no effect: none of {', '.join(_MIXING)} is set"]
    return []


def _find_unused(given: ConfigView[ClassificationSettings]) -> Iterator[IgnoredKeys]:
    data, train = given.values.DATA, given.values.TRAIN
    policy = None
    if train.RAND_AUGMENT:
        policy = "TRAIN.RAND_AUGMENT"
        if train.AUTO_AUGMENT:
            yield IgnoredKeys(("TRAIN.AUTO_AUGMENT",), policy, "{} takes its place")
        if train.RAND_AUGMENT is not True:
            yield IgnoredKeys(("TRAIN.RAND_AUGMENT_LAYERS", "TRAIN.RAND_AUGMENT_MAGNITUDE"), policy, "{} says it")
    elif train.AUTO_AUGMENT and not str(train.AUTO_AUGMENT).startswith("3a"):
        policy = "TRAIN.AUTO_AUGMENT"
    if policy and train.COLOR_JITTER:
        yield IgnoredKeys(("TRAIN.COLOR_JITTER",), policy, "{} takes its place")
    if train.DISTILLATION_TYPE == "none":
        names = ("DISTILLATION_ALPHA", "TEACHER_MODEL", "TEACHER_WEIGHTS")
        yield IgnoredKeys(
            tuple(f"TRAIN.{name}" for name in names), "TRAIN.DISTILLATION_TYPE", "there is no teacher: {}"
        )
    if data.VAL_FRACTION is None and data.VAL_FRACTION_IF_MISSING is None:
        yield IgnoredKeys(("DATA.VAL_SEED",), "DATA.VAL_FRACTION", "nothing is held out: {}")


TABLE = KeyTable(
    keys=rows(ClassificationSettings),
    training=(
        "TRAIN.",
        *("DATA.DECODER", "DATA.CROP_SCALE", "DATA.CROP_RATIO", "DATA.GLYPH_DISTORTION", "DATA.CLASS_BALANCED"),
    ),
    infer=get_defaults,
    resolve_defaults=_complete,
    check=_check,
    find_ignored=_find_unused,
    ignored_keys={
        _TEMPERATURE: "it is 1, as in DeiT's and PaddleViT's recipes",
        "TRAIN.RANDOM_ERASE_SPLIT": "images are erased one by one, as PaddleViT does it, and a batch has no clean part",
    },
)


_INPUT = (
    *("IMAGE_SIZE", "IMAGE_CHANNELS", "CROP_PCT", "INTERPOLATION", "CROP_MODE"),
    *("IMAGENET_MEAN", "IMAGENET_STD", "EXIF_ROTATE"),
)


def _complete_probe(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Network and input are those of the run whose weights are given, unless the command line says otherwise."""
    from ...checkpoint.content import read_about, resolve_checkpoint  # which need NumPy, and other commands do not

    source = values.MODEL.PRETRAINED
    if source is None or is_fetched(source):
        return []
    said = (read_about(str(resolve_checkpoint(source))) or {}).get("settings")
    if not isinstance(said, Mapping) or said.get("TASK") != "classification":
        return []
    names = ["MODEL.NAME", "MODEL.TYPE", *(row.name for row in IMAGES.keys if row.name.startswith("MODEL."))]
    for section, name in (name.split(".") for name in [*names, *(f"DATA.{name}" for name in _INPUT)]):
        given = settings.get(f"{section}.{name}")
        if name in said.get(section, {}) and (given is None or given.source != COMMAND_LINE):
            if (section, name) == ("MODEL", "NAME"):
                refuse_unnamed_code(said[section][name], str(source))
            values[section][name] = said[section][name]
    size = f"{values.DATA.IMAGE_SIZE} pixels"
    return [f"MODEL.NAME {values.MODEL.NAME}, {size}: network and input of the run that {source} is of"]


def _check_probe(given: ConfigView[ProbeSettings]) -> list[str]:
    probe = given.values.PROBE
    for name in ("LEARNING_RATES", "KNN_K"):
        if not probe[name] or len(set(probe[name])) < len(probe[name]):
            raise UserError(f"{given[f'PROBE.{name}']}: expected each one once, and one at least")
    if probe.LEARNING_RATE is not None and probe.LEARNING_RATE not in probe.LEARNING_RATES:
        raise UserError(f"{given['PROBE.LEARNING_RATE']}: expected one of {given['PROBE.LEARNING_RATES']}")
    return []


def _find_unused_of_probe(given: ConfigView[ProbeSettings]) -> Iterator[IgnoredKeys]:
    names = (*TABLE.of_training() - {"TRAIN.DISTILLATION_TYPE"}, "DATA.HORIZONTAL_FLIP", "DATA.ON_INVALID_SAMPLE")
    yield IgnoredKeys(
        tuple(sorted(names)), "TASK", "features are computed once, of images as an evaluation sees them: {}"
    )


PROBE_TABLE = KeyTable(
    keys=rows(ProbeSettings),
    effects={"network": ("PROBE.LEARNING_RATES",), "score": ("PROBE.",)},
    resolve_defaults=_complete_probe,
    check=_check_probe,
    find_ignored=_find_unused_of_probe,
)
