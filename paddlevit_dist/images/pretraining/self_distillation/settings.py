"""Keys of self-distillation: views, head, temperatures, and the average that teaches."""

from collections.abc import Iterator
from typing import Any

from ....core.runtime.errors import UserError
from ....core.settings.key import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    SHARE,
    SHARE_ABOVE_0,
    SHARE_BELOW_1,
    Range,
    Section,
    key,
    rows,
)
from ....core.settings.table import ConfigView, IgnoredKeys, KeyTable
from ..settings import PretrainingSettings

_OF_OTHER_CROPS = (
    "DATA.CROP_SCALE",
    *("TRAIN.COLOR_JITTER", "TRAIN.AUTO_AUGMENT", "TRAIN.RAND_AUGMENT", "TRAIN.RAND_AUGMENT_LAYERS"),
    *("TRAIN.RAND_AUGMENT_MAGNITUDE", "DATA.ALBUMENTATIONS", "DATA.DECODER"),
)


class SelfDistillationKeys(Section):
    """Keys of SELF_DISTILLATION."""

    SMALL_VIEWS: int = key(8, "small views of an image, besides two large ones", AT_LEAST_0, effect="network")
    SMALL_SIZE: int = key(96, "side of a small view in pixels", AT_LEAST_1, effect="training", training_only=True)
    SMALL_SCALE: tuple[float, float] = key(
        (0.05, 0.4),
        "area of a small view as a share of the image",
        SHARE_ABOVE_0,
        effect="training",
        training_only=True,
    )
    LARGE_SCALE: tuple[float, float] = key(
        (0.4, 1.0), "area of a large view as a share of the image", SHARE_ABOVE_0, effect="score"
    )
    OUTPUTS: int = key(65536, "outputs of the head", Range(low=2), effect="network")
    HEAD_WIDTH: int = key(2048, "width of the head's hidden layers", AT_LEAST_1, effect="network")
    BOTTLENECK: int = key(256, "width of the normalized layer before the outputs", AT_LEAST_1, effect="network")
    NORM_LAST_LAYER: bool = key(
        True,
        "keep the norms of the last layer's rows at 1, which is stabler; False: they are learned",
        effect="training",
        training_only=True,
    )
    FROZEN_EPOCHS: int = key(
        1,
        "first epochs in which the last layer does not change",
        AT_LEAST_0,
        effect="training",
        training_only=True,
        counts="epochs",
    )
    TEACHER_TEMPERATURES: tuple[float, float] = key(
        (0.04, 0.04), "temperature of the teacher's outputs at first, and after its warm-up", ABOVE_0, effect="score"
    )
    TEMPERATURE_WARMUP_EPOCHS: int = key(
        0,
        "epochs in which the teacher's temperature moves from the first to the second",
        AT_LEAST_0,
        effect="training",
        training_only=True,
        counts="epochs",
    )
    TEACHER_MOMENTUM: float = key(
        0.996,
        "share of the teacher's weights that a step keeps at first; it rises to 1 by a cosine",
        SHARE,
        training_only=True,
    )
    CENTER_MOMENTUM: float = key(
        0.9,
        "share of the center of the teacher's outputs that a step keeps",
        SHARE_BELOW_1,
        effect="training",
        training_only=True,
    )


class SelfDistillationSettings(PretrainingSettings):
    """Keys of self-distillation."""

    SELF_DISTILLATION: SelfDistillationKeys


def _check(view: ConfigView[SelfDistillationSettings]) -> list[str]:
    train, keys = view.values.TRAIN, view.values.SELF_DISTILLATION
    if train.MODEL_EMA:
        raise UserError(
            f"{view['TRAIN.MODEL_EMA']}: in self-distillation the teacher is the average of the weights, and is "
            "evaluated; set it to False"
        )
    if train.LORA.RANK:
        raise UserError(f"{view['TRAIN.LORA.RANK']}: self-distillation trains all weights; set it to 0")
    for name in ("SMALL_SCALE", "LARGE_SCALE"):
        if keys[name][0] > keys[name][1]:
            raise UserError(f"{view[f'SELF_DISTILLATION.{name}']}: expected the smaller number first")
    if keys.FROZEN_EPOCHS >= train.NUM_EPOCHS:
        raise UserError(
            f"{view['SELF_DISTILLATION.FROZEN_EPOCHS']}: expected fewer than {view['TRAIN.NUM_EPOCHS']}, or the last "
            "layer never learns"
        )
    return []


def _find_unused(view: ConfigView[Any]) -> Iterator[IgnoredKeys]:
    yield IgnoredKeys(
        _OF_OTHER_CROPS, "TASK", "views have crops (SELF_DISTILLATION.LARGE_SCALE) and colors of their own: {}"
    )
    keys = view.values.SELF_DISTILLATION
    if not keys.SMALL_VIEWS:
        names = ("SELF_DISTILLATION.SMALL_SIZE", "SELF_DISTILLATION.SMALL_SCALE")
        yield IgnoredKeys(names, "SELF_DISTILLATION.SMALL_VIEWS", "there are no small views: {}")


TABLE = KeyTable(keys=rows(SelfDistillationSettings), check=_check, find_ignored=_find_unused)
