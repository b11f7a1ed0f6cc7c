"""The probability above which each label is chosen: one number, or what a training run chose on validation images."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.checkpoint.model_record import ModelRecord, list_conditions, parse_thresholds, read_record
from ...core.checkpoint.records import read_about_file, read_samples
from ...core.metrics.classification import require_num_classes
from ...core.runtime.errors import UserError
from ...core.runtime.text_files import read_json_facts
from ...core.tasks.class_names import name_outputs
from .curves import GOALS
from .samples import MultiLabelSamples
from .settings import MultiLabelSettings, goal_text

_INTERVALS = "eval_intervals.json"  # of an evaluation that does not train
_LAST = "checkpoints/last"  # of a run that -resume=auto continues
_CONFIGURATION = "eval_config.yaml"  # of the same evaluation
_MOST_NAMED = 3


class LabelThresholds(NamedTuple):
    """Thresholds of classes by name.

    Attributes:
        fixed: threshold of classes without their own.
        chosen: thresholds of classes.
        source: what the chosen ones are from, in words; empty without any.
        goal: goal of ``GOALS`` and wished rate, for which an evaluation computes thresholds.
        images: identities of the images on which they were chosen, uint64 (images,); None: not known.
        conditions: settings under which they were chosen (``list_conditions``); empty: not known.
        unfit: why chosen ones are not used here, in words; empty if none were found, or they are used.
        lost: which model has none although its run chose some, in words; empty otherwise.
    """

    fixed: float
    chosen: Mapping[str, float] = {}
    source: str = ""
    goal: tuple[str, float] = (GOALS[0], 0.0)
    images: np.ndarray | None = None
    conditions: Mapping[str, Any] = {}
    unfit: str = ""
    lost: str = ""

    @property
    def notice(self) -> str:
        """Say that no threshold was chosen for the goal, where new images are labeled; empty if it was."""
        if self.chosen or self.unfit:
            return ""
        if self.goal[0] == GOALS[0]:
            return f"{self.lost}: labels are chosen above {self.fixed:g} for all classes" if self.lost else ""
        reason = self.lost or "none were chosen for the weights"
        return (
            f"MULTI_LABEL.THRESHOLDS {self.goal[0]}: {reason}: labels are chosen above {self.fixed:g} for all classes"
        )

    def require_fit(self) -> "LabelThresholds":
        """Return them; a ``UserError`` if others were chosen, but under other settings."""
        if self.unfit:
            raise UserError(
                f"{self.unfit}: evaluate with these settings, and name its -output with MULTI_LABEL.THRESHOLDS_OF, or "
                "set MULTI_LABEL.THRESHOLDS fixed"
            )
        return self

    def levels(self, names: Sequence[str]) -> np.ndarray:
        """Return the threshold of each class, float64 (classes,)."""
        return np.array([self.chosen.get(name, self.fixed) for name in names], np.float64)

    def renamed(self, trained_names: Mapping[str, str]) -> "LabelThresholds":
        """Return them for classes with other names, each with the name that it has in ``chosen``."""
        pairs = {name: self.chosen[own] for name, own in trained_names.items() if own in self.chosen}
        return self._replace(chosen=pairs) if trained_names else self

    def describe(self, samples: MultiLabelSamples) -> str:
        """Describe the thresholds after a score of these samples: it is too good where they were chosen on them."""
        if not self.source:
            reasons = [self.unfit, self.lost] if self.goal[0] != GOALS[0] else []
            return "; ".join(filter(None, [f"threshold {self.fixed:g}", *reasons]))
        without = [name for name in samples.class_names or () if name not in self.chosen]
        text = f"thresholds {self.source}"
        if without:
            named = ", ".join(without[:_MOST_NAMED]) + (", …" if len(without) > _MOST_NAMED else "")
            text += f" ({self.fixed:g} for {len(without):,} of {len(samples.class_names or ()):,} classes: {named})"
        own = samples.identities()
        if own is None or self.images is None:
            return f"{text}; whether they were chosen on these images is not known"
        number = int(np.isin(own, self.images).sum())
        if not number:
            return text
        return f"{text}, chosen on {'these' if number == len(own) else f'{number:,} of these'} images"


class LabelOutputs:
    """The outputs of a task's network: their names, and the thresholds above which their labels are chosen.

    Attributes:
        trained_names: name of each class here -> its name in the data of the weights; empty: they are the same.
    """

    def __init__(self, task: Any) -> None:
        self._task = task
        self.trained_names: Mapping[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a worker process, without the long list of images that only the parent reads."""
        found = {"thresholds": self.thresholds._replace(images=None)} if "thresholds" in self.__dict__ else {}
        return {**self.__dict__, **found}

    @property
    def names(self) -> list[str]:
        """Name of each output; outputs without a class have their number."""
        number = require_num_classes(self._task.num_classes)
        return name_outputs(self._task.evaluated_classes or self._task.class_names, number)

    @functools.cached_property
    def thresholds(self) -> LabelThresholds:
        """The thresholds of this run."""
        return find_thresholds(self._task.config).renamed(self.trained_names)

    @property
    def levels(self) -> np.ndarray:
        """Threshold of each output in predictions, float64 (outputs,), if they are known under these settings."""
        return self.thresholds.require_fit().levels(self.names)


def find_thresholds(config: MultiLabelSettings) -> LabelThresholds:
    """Find the thresholds of a run: of the weights that it evaluates, or of MULTI_LABEL.THRESHOLDS_OF.

    An exported file has what its description lists. A training run chooses thresholds in its evaluations, whose own
    scores are at MULTI_LABEL.THRESHOLD. So does an evaluation whose weights have no thresholds for its goal, or have
    chosen them under other settings. Thresholds of MULTI_LABEL.THRESHOLDS_OF are then refused.
    """
    keys = config.MULTI_LABEL
    if keys.THRESHOLDS == "fixed" and keys.THRESHOLDS_OF is None:
        return LabelThresholds(keys.THRESHOLD, lost=_explain_unknown(config))
    found, lost = None, ""
    if config.EVAL and keys.THRESHOLDS_OF is not None:
        found = _read_evaluation(keys)
    elif config.EVAL:
        found, lost = _read_model(config)
    now = list_conditions(config)
    changes = [
        (name, then) for name, then in (found.conditions.items() if found else ()) if now.get(name, then) != then
    ]
    if found and not changes:
        return found
    others = " and ".join(f"{name} {then} (here {now[name]})" for name, then in changes)
    unfit = f"the thresholds {found.source} were chosen with {others}" if found else ""
    chosen = LabelThresholds(keys.THRESHOLD, goal=(keys.THRESHOLDS, keys.WISHED), unfit=unfit, lost=lost)
    return chosen if keys.THRESHOLDS_OF is None else chosen.require_fit()


def _explain_unknown(config: MultiLabelSettings) -> str:
    """Say that weights without an ``about.yaml`` may have lost their thresholds; empty if nothing is missing."""
    source = config.MODEL.PRETRAINED
    if not config.EVAL or source is None or not Path(source).is_file():
        return ""
    is_known = read_record(source).about
    return "" if is_known else f"{source} has no about.yaml with thresholds that its run may have chosen"


def _read_model(config: MultiLabelSettings) -> tuple[LabelThresholds | None, str]:
    """Return the thresholds of the evaluated model, and ``LabelThresholds.lost``.

    An exported file has its own; what else is known of them is that of the weights that it is compared with.
    """
    source, exported = config.MODEL.PRETRAINED or config.MODEL.RESUME, config.get("EXPORTED")
    source = str(Path(config.SAVE, _LAST)) if source == "auto" else source
    own = None if source is None else read_record(source)
    record = read_record(exported, is_exported=True) if exported is not None else own
    if record is None or (not record.thresholds and own is None):
        return None, ""
    if own is not None and record.thresholds in ({}, own.thresholds):
        return _read_weights(config, own)
    source = f"of {record.source}"
    return LabelThresholds(config.MULTI_LABEL.THRESHOLD, record.thresholds, source, conditions=record.conditions), ""


def _read_weights(config: MultiLabelSettings, record: ModelRecord) -> tuple[LabelThresholds | None, str]:
    """Return the thresholds that the run of the evaluated weights chose, and ``LabelThresholds.lost``."""
    trained = (record.about.get("settings") or {}).get("MULTI_LABEL") or {}
    goal = goal_text(trained) if {"THRESHOLDS", "WISHED"}.issubset(trained) else ""
    if not record.thresholds:
        is_lost = goal == goal_text(config.MULTI_LABEL)
        reason = "a copy needs the run's evaluation.json next to it, and convert and export keep them"
        return None, f"{record.source} has no thresholds for {goal} ({reason})" if is_lost else ""
    lists = read_samples(record.source) or {}
    source = f"for {goal} of the weights' run" if goal else f"of {record.source}"
    fixed, chosen = config.MULTI_LABEL.THRESHOLD, record.thresholds
    return LabelThresholds(fixed, chosen, source, images=lists.get("val"), conditions=record.conditions), ""


def _read_evaluation(keys: Any) -> LabelThresholds:
    """Return the thresholds of MULTI_LABEL.THRESHOLDS_OF; a ``UserError`` if there are none."""
    folder = Path(keys.THRESHOLDS_OF).expanduser()
    file = folder / _INTERVALS
    if not file.is_file():
        raise UserError(
            f"MULTI_LABEL.THRESHOLDS_OF {folder}: it has no {_INTERVALS}: name the -output of an evaluation with "
            "MULTI_LABEL.THRESHOLDS"
        )
    content = read_json_facts(file).get("values")
    values = {name: row.get("value") for name, row in (content or {}).items() if isinstance(row, Mapping)}
    chosen = parse_thresholds(values)
    if not chosen:
        raise UserError(
            f"MULTI_LABEL.THRESHOLDS_OF {folder}: {file} has no thresholds: set MULTI_LABEL.THRESHOLDS in it"
        )
    configuration = folder / _CONFIGURATION
    stored = read_about_file(configuration) if configuration.is_file() else {}
    conditions = list_conditions({"DATA": stored.get("DATA")})  # what they are for is this run's choice
    return LabelThresholds(keys.THRESHOLD, chosen, f"of {folder}", conditions=conditions)
