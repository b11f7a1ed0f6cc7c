"""Keys of images with several labels: losses, and the thresholds above which labels are chosen."""

from collections.abc import Iterator
from typing import Any, Literal

from ...core.runtime.errors import UserError
from ...core.settings.key import ABOVE_0, AT_LEAST_0, SHARE, SHARE_ABOVE_0, PathText, Range, Section, key, rows
from ...core.settings.table import ConfigView, IgnoredKeys, KeyTable
from ..classification.settings import ClassificationSettings

_SHARE_BELOW_1 = Range(low=0, high=1, high_open=True)


class MultiLabelKeys(Section):
    """Keys of MULTI_LABEL."""

    LOSS: Literal["bce", "asymmetric"] = key(
        "bce", "binary cross-entropy (bce), or the asymmetric loss, which weights easy labels less", effect="training"
    )
    POSITIVE_WEIGHTS: list[float] | Literal["balanced"] | None = key(
        None,
        "bce: factor of the loss where an image has the label, for each class; balanced: training images without it to "
        "those with it",
        ABOVE_0,
        effect="training",
    )
    GAMMA_NEGATIVE: float = key(
        4.0, "asymmetric: exponent of the weight of labels that an image has not", AT_LEAST_0, effect="training"
    )
    GAMMA_POSITIVE: float = key(
        1.0, "asymmetric: exponent of the weight of labels that an image has", AT_LEAST_0, effect="training"
    )
    MARGIN: float = key(
        0.05, "asymmetric: probability up to which an absent label has no loss", _SHARE_BELOW_1, effect="training"
    )
    THRESHOLD: float = key(0.5, "probability above which a label is chosen, unless its class has its own", SHARE)
    THRESHOLDS: Literal["fixed", "precision", "recall", "f1"] = key(
        "fixed",
        "threshold of each class: THRESHOLD (fixed), or chosen on the validation images of the training run for "
        "MULTI_LABEL.WISHED precision or recall, or for the highest F1",
    )
    WISHED: float = key(0.9, "THRESHOLDS precision or recall: the least that a class has to reach", SHARE_ABOVE_0)
    THRESHOLDS_OF: PathText | None = key(
        None,
        "evaluation, prediction and export: output folder of an evaluation whose thresholds replace the weights' own",
        effect="start",
    )


class MultiLabelSettings(ClassificationSettings):
    """Keys of images with several labels."""

    MULTI_LABEL: MultiLabelKeys


def _check(view: ConfigView[MultiLabelSettings]) -> list[str]:
    weights, number = view.values.MULTI_LABEL.POSITIVE_WEIGHTS, view.values.MODEL.NUM_CLASSES
    if isinstance(weights, (list, tuple)) and number is not None and len(weights) != number:
        raise UserError(
            f"{view['MULTI_LABEL.POSITIVE_WEIGHTS']}: expected a number for each of the {number} classes "
            f"({view['MODEL.NUM_CLASSES']})"
        )
    return []


def _find_unused(view: ConfigView[MultiLabelSettings]) -> Iterator[IgnoredKeys]:
    keys = view.values.MULTI_LABEL
    single = ("TRAIN.CLASS_WEIGHTS", "DATA.CLASS_BALANCED")
    yield IgnoredKeys(single, "TASK", "it is for images of one class (MULTI_LABEL.POSITIVE_WEIGHTS), and {}")
    names: tuple[str, ...] = ("MULTI_LABEL.GAMMA_NEGATIVE", "MULTI_LABEL.GAMMA_POSITIVE", "MULTI_LABEL.MARGIN")
    names = names if keys.LOSS == "bce" else ("MULTI_LABEL.POSITIVE_WEIGHTS",)
    yield IgnoredKeys(names, "MULTI_LABEL.LOSS", "it is for the other loss: {}")
    if keys.THRESHOLDS not in ("precision", "recall"):
        yield IgnoredKeys(("MULTI_LABEL.WISHED",), "MULTI_LABEL.THRESHOLDS", "nothing has to be reached: {}")


def goal_text(keys: Any) -> str:
    """Describe what thresholds are chosen for, from the keys of MULTI_LABEL or their plain values by name."""
    goal, wished = keys["THRESHOLDS"], keys["WISHED"]
    return "the highest F1" if goal == "f1" else f"{goal} {wished:g}"


TABLE = KeyTable(keys=rows(MultiLabelSettings), check=_check, find_ignored=_find_unused)
