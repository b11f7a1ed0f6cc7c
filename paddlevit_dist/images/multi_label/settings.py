"""Keys of images with several labels: losses, and the thresholds above which labels are chosen."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from yacs.config import CfgNode

from ...core.runtime.errors import UserError
from ...core.settings.key import ABOVE_0, AT_LEAST_0, SHARE, SHARE_ABOVE_0, PathText, Range, Section, key, rows
from ...core.settings.recipes import is_recipe_file
from ...core.settings.table import COMMAND_LINE, ConfigView, IgnoredKeys, KeySetting, KeyTable
from ..classification.settings import ClassificationSettings

_GOAL = "MULTI_LABEL.THRESHOLDS"
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


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Take the goal for which thresholds of an evaluated model were chosen, unless the user sets one.

    Return lines about keys of the user that overrule these thresholds, or that these thresholds overrule.
    """
    keys, goal = values.MULTI_LABEL, settings.get(_GOAL)
    if not values.EVAL or keys.THRESHOLDS_OF is not None:
        return []
    from ...core.checkpoint.model_record import find_chosen_record, list_conditions  # it needs NumPy

    record = find_chosen_record(values)
    if record is None:
        return []
    if goal is None or is_recipe_file(goal.source):
        unset = {_GOAL, "MULTI_LABEL.WISHED"} - ({*settings} - {_GOAL})
        for name in unset.intersection(record.conditions):
            keys[name.rpartition(".")[2]] = record.conditions[name]
    elif keys.THRESHOLDS == "fixed":
        reason = f"the thresholds of {record.source} are not used, but {keys.THRESHOLD:g} for all classes"
        return [f"{_GOAL} fixed ({goal.origin}): {reason}"]
    single, now = settings.get("MULTI_LABEL.THRESHOLD"), list_conditions(values)
    is_used = keys.THRESHOLDS != "fixed" and all(
        now.get(name, then) == then for name, then in record.conditions.items()
    )
    if not is_used or single is None or single.source != COMMAND_LINE:
        return []
    reason = f"no effect on the {len(record.thresholds):,} classes that have thresholds in {record.source}"
    return [f"{single.name} {single.value:g} ({single.origin}): {reason}: set {_GOAL} fixed to use it for all"]


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


TABLE = KeyTable(keys=rows(MultiLabelSettings), resolve_defaults=_complete, check=_check, find_ignored=_find_unused)
