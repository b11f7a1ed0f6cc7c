"""The configurations of compared runs, and the settings in which two differ."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.checkpoint.finding import find_run_settings
from ...core.checkpoint.records import find_directory, read_about, read_about_file
from ...core.runtime.errors import UserError

_NOT_COMPARED = ("start", "place", "machine")  # effects of settings that do not change scores
_STARTED_FROM = ("MODEL.PRETRAINED", "MODEL.BACKBONE_PRETRAINED")  # these do change scores


def load_training_settings(weights: str, run: Path) -> dict[str, Any]:
    """Load the configuration with which evaluated weights were trained; empty if it is not known.

    Args:
        weights: "epoch N" of the training run in the folder ``run``, or the path of the weights.
        run: folder of the evaluation's table.
    """
    if weights.startswith("epoch "):
        return load_run_settings(run)
    with contextlib.suppress(UserError):
        if Path(weights).exists():  # never for results of other programs
            folder = find_directory(weights)
            return find_run_settings(read_about(str(folder)) or {}, folder / "weights") or {}
    return {}


def load_run_settings(run: Path) -> dict[str, Any]:
    """Load the configuration of the training run in a folder; empty if there is no readable one."""
    file = run / "config.yaml"
    with contextlib.suppress(UserError):
        return read_about_file(file) if file.is_file() else {}
    return {}


def find_differing_settings(
    first: dict[str, Any], second: dict[str, Any], ignored: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """Return the values of settings that differ between two training runs, by name.

    Settings that are not known in both runs, or that do not affect scores, are ignored, as are those whose effect
    (``settings.key.EFFECTS``) is in ``ignored``.
    """
    from ...core.settings.table import comparable_leaves, effects

    ignored_effects = {None, *_NOT_COMPARED, *ignored}
    key_effects = {**effects(first), **dict.fromkeys(_STARTED_FROM, "training")}
    before, now = comparable_leaves(first), comparable_leaves(second)
    shared = [name for name in now if name in before and key_effects.get(name) not in ignored_effects]
    return {name: [before[name], now[name]] for name in shared if before[name] != now[name]}
