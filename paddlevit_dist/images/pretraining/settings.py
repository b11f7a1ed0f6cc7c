"""Keys of learning from images without labels, for all of its tasks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from yacs.config import CfgNode

from ...core.runtime.errors import UserError
from ...core.settings.key import AT_LEAST_1, PathText, Section, key, rows
from ...core.settings.table import ConfigView, IgnoredKeys, KeySetting, KeyTable
from ..classification.settings import ClassificationSettings

_OF_LABELS = (
    *("TRAIN.SMOOTHING", "TRAIN.CLASS_WEIGHTS", "DATA.CLASS_BALANCED", "DATA.TEST_VIEWS", "DATA.TEST_SCALES"),
    *("TRAIN.DISTILLATION_TYPE", "TRAIN.DISTILLATION_ALPHA", "TRAIN.TEACHER_MODEL", "TRAIN.TEACHER_WEIGHTS"),
    *("TRAIN.MIXUP_ALPHA", "TRAIN.CUTMIX_ALPHA", "TRAIN.CUTMIX_MINMAX", "TRAIN.MIXUP_PROB"),
    *("TRAIN.MIXUP_SWITCH_PROB", "TRAIN.MIXUP_MODE", "MODEL.NUM_CLASSES"),
    *("TRAIN.RANDOM_ERASE_PROB", "TRAIN.RANDOM_ERASE_MODE", "TRAIN.RANDOM_ERASE_COUNT"),
)


class PretrainingKeys(Section):
    """Keys of PRETRAINING."""

    MORE_PATHS: list[PathText] = key(
        [], "dataset unlabeled: more folders, tar files, addresses or tables of training images", effect="place"
    )
    LABELED_PATH: PathText | None = key(
        None,
        "images with classes that are evaluated instead of validation images: class folders, or a table of labels",
        effect="place",
    )
    NEIGHBORS: int = key(
        20,
        "evaluation of images with classes: number of the most similar other images that vote for the class",
        AT_LEAST_1,
        effect="score",
    )


class PretrainingSettings(ClassificationSettings):
    """Keys of learning from images without labels."""

    PRETRAINING: PretrainingKeys


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Hold out no images if others are evaluated."""
    if values.PRETRAINING.LABELED_PATH is not None:
        values.DATA.VAL_FRACTION_IF_MISSING = None
    return []


def _check(view: ConfigView[PretrainingSettings]) -> list[str]:
    keys, data = view.values.PRETRAINING, view.values.DATA
    if keys.LABELED_PATH is not None and data.VAL_FRACTION is not None:
        raise UserError(
            f"{view['PRETRAINING.LABELED_PATH']} and {view['DATA.VAL_FRACTION']}: both say which images are evaluated; "
            "remove one"
        )
    return []


def _find_unused(view: ConfigView[Any]) -> Iterator[IgnoredKeys]:
    yield IgnoredKeys(_OF_LABELS, "TASK", "it is for images with labels, and {}")
    if view.values.DATA.DATASET != "unlabeled":
        yield IgnoredKeys(("PRETRAINING.MORE_PATHS",), "DATA.DATASET", "it is for unlabeled, and {}")


TABLE = KeyTable(keys=rows(PretrainingSettings), resolve_defaults=_complete, check=_check, find_ignored=_find_unused)
