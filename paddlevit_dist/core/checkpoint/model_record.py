"""The record of a model: what is known of weights or of an exported file, and what was chosen for their network.

A run writes ``about.yaml`` before the evaluation that chooses, whose values are in ``evaluation.json``. ``convert`` and
``export`` write both into one ``about.yaml``, and ``export`` into an ONNX file itself, too.
"""

import contextlib
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from ..registry.extension_points import READ_EXPORTED_ABOUT
from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from .published import fetch_record, is_fetched
from .records import read_about, read_about_file, read_evaluated_values, read_weights_info, resolve_checkpoint
from .weight_files import find_weights_file, local_file

THRESHOLD = "threshold {}"  # name of a class's threshold among the values of an evaluation
TRAINED_SIZE = "image_size"  # in about.yaml: [height, width] of the images that the network was built for; null: any
_PREFIX = THRESHOLD.format("")
_INPUT = ("IMAGE_SIZE", "CROP_PCT", "CROP_MODE", "INTERPOLATION", "TEST_VIEWS", "TEST_SCALES")  # below DATA
_GOAL = {"precision": ("THRESHOLDS", "WISHED"), "recall": ("THRESHOLDS", "WISHED"), "f1": ("THRESHOLDS",)}


class ModelRecord(NamedTuple):
    """What is known of a model.

    Attributes:
        source: the file that says so, for messages.
        about: content of ``about.yaml``; empty: nothing is known.
        thresholds: probability above which the label of a class is chosen, by its name; empty: none were chosen.
        conditions: settings under which they were chosen, by key; empty: not known.
    """

    source: str
    about: Mapping[str, Any]
    thresholds: Mapping[str, float]
    conditions: Mapping[str, Any]

    def describe_choices(self) -> dict[str, Any]:
        """Return what was chosen as facts of an ``about.yaml``; empty if nothing was."""
        if not self.thresholds:
            return {}
        return {"thresholds": dict(self.thresholds), "thresholds_settings": dict(self.conditions)}


def read_record(source: str | Path, is_exported: bool = False) -> ModelRecord:
    """Read the record of weights at ``source``, a local file or folder or an address, or of an exported model there.

    Raises UserError if it is damaged, or there are no weights.
    """
    if is_exported:
        name, about = READ_EXPORTED_ABOUT.require()(str(source))
        values: Mapping[str, float] = {}
    else:
        file = local_file(source).path
        name, about, values = str(file), read_weights_info(file), read_evaluated_values(str(file))
    thresholds = parse_thresholds(values) or dict(about.get("thresholds") or {})
    conditions = about.get("thresholds_settings") or list_conditions(about.get("settings") or {})
    return ModelRecord(name, about, thresholds, dict(conditions) if thresholds else {})


def find_chosen_record(config: RunSettings) -> ModelRecord | None:
    """Return the record of the evaluated model if thresholds were chosen for it; None otherwise, or if it is damaged.

    An exported file without thresholds has the thresholds of the weights that it is compared with.
    """
    exported, weights = config.get("EXPORTED"), config.MODEL.PRETRAINED or config.MODEL.RESUME
    is_local = weights not in (None, "auto") and not is_fetched(weights)
    for source, is_exported in ((exported, True), (weights if is_local else None, False)):
        with contextlib.suppress(UserError):  # loading says what is wrong
            record = read_record(source, is_exported) if source is not None else None
            if record is not None and record.thresholds:
                return record
    return None


def read_facts(source: str, may_download: bool = True) -> dict[str, Any] | None:
    """Return the content of the ``about.yaml`` of a run, checkpoint or weights at ``source``; None without one.

    Of a repository at Hugging Face, only this file is fetched, if ``may_download``. Raises UserError if it is damaged.
    """
    if is_fetched(source):
        record = fetch_record(source, may_download)
        return None if record is None else read_about_file(record)
    about = read_about(str(resolve_checkpoint(source)))
    if about is None:
        file = None
        with contextlib.suppress(UserError):  # loading says that there are no weights
            file = find_weights_file(source)
        about = None if file is None else read_weights_info(file) or None
    return about


def read_stored_settings(source: str, may_download: bool = True) -> Mapping[str, Any] | None:
    """Return the settings of the run that wrote the weights at ``source``, see ``read_facts``; None without."""
    stored = (read_facts(source, may_download) or {}).get("settings")
    return stored if isinstance(stored, Mapping) else None


def find_trained_size(file: Path) -> tuple[int, int] | None:
    """Return height and width of the images that the network of the weights in ``file`` was built for; None: unknown.

    A run records them with its weights; one of an older version has only a setting, which not all tasks use.
    """
    about = read_weights_info(file) if file.is_file() else {}
    if TRAINED_SIZE in about:
        return as_plane(about[TRAINED_SIZE])
    settings = about.get("settings")
    data = settings.get("DATA") if isinstance(settings, dict) else None
    return as_plane(data.get("IMAGE_SIZE")) if isinstance(data, dict) else None


def as_plane(size: Any) -> tuple[int, int] | None:
    """Return height and width of a size that is one whole number or two; None of anything else, such as a volume's."""
    sides = list(size) if isinstance(size, (list, tuple)) else [size, size]
    if len(sides) != 2 or any(isinstance(side, bool) or not isinstance(side, Integral) for side in sides):
        return None
    height, width = map(int, sides)
    return (height, width) if height > 0 and width > 0 else None


def parse_thresholds(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the thresholds by class among the values of an evaluation by name."""
    return {
        name.removeprefix(_PREFIX): float(value)
        for name, value in values.items()
        if name.startswith(_PREFIX) and isinstance(value, (int, float)) and 0 <= value <= 1
    }


def list_conditions(settings: Mapping[str, Any] | RunSettings) -> dict[str, Any]:
    """Return the settings under which thresholds hold, by key, from a configuration or its plain values."""
    data, labels = settings.get("DATA") or {}, settings.get("MULTI_LABEL") or {}
    values = {f"DATA.{name}": data[name] for name in _INPUT if name in data}
    goal = _GOAL.get(labels.get("THRESHOLDS", ""), ())
    values |= {f"MULTI_LABEL.{name}": labels[name] for name in goal if name in labels}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
