"""What a checkpoint says of itself, and whether that fits the run that loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional

import paddle
import yaml

from .. import __version__
from ..checkpoint import state as checkpoints
from ..config import dump_yaml
from ..errors import UserError
from .task import Task


def describe(config: Any, task: Task) -> Dict[str, Any]:
    """The content of ``about.yaml``: plain values."""
    return {
        "task": config.TASK,
        "model": config.MODEL.NAME,
        "input": task.about_input(),
        "versions": {"paddlevit_dist": __version__, "paddle": paddle.__version__},
        "settings": settings_of(config),
    }


def settings_of(config: Any) -> Dict[str, Any]:
    """The configuration as nested plain values."""
    return yaml.safe_load(dump_yaml(config))


def earlier_settings(directory: Path) -> Optional[Dict[str, Any]]:
    """The configuration of the run that wrote a checkpoint: what the checkpoint says, else what its run's folder has.

    None where neither can be read.
    """
    settings = (checkpoints.read_about(str(directory)) or {}).get("settings")
    if settings is None:
        file = directory.parent.parent / "config.yaml"
        try:
            settings = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None
        except (OSError, ValueError, RecursionError, yaml.YAMLError):
            settings = None
    return settings if isinstance(settings, dict) else None


def compare(source: str, config: Any, task: Task, *, must_match: bool) -> List[str]:
    """Compare what the checkpoint at ``source`` says of its input with this run's; returns lines for the log.

    Weights that are no checkpoint of ours say nothing, and nothing is compared. A name that only one side has is new
    or gone, and not compared either.

    Args:
        must_match: for an evaluation or a resumed training; weights to start a training from may differ, with a line.
    Raises:
        UserError: the two differ, they must not, and -allow_changes was not given.
    """
    about = checkpoints.read_about(source)
    if about is None:
        return []
    theirs, ours = about.get("input"), task.about_input()
    if not isinstance(theirs, dict) or (ours and not theirs):  # written before it was, or before it said anything
        return task.notices_of_old_weights()
    different = [name for name in ours if name in theirs and _plain(ours[name]) != _plain(theirs[name])]
    if not different:
        return []
    sides = "; ".join(f"{name} {theirs[name]} there, {ours[name]} here" for name in different)
    if must_match and not config.ALLOW_CHANGES:
        raise UserError(f"{source} was trained on other input: {sides}; set these alike, or add -allow_changes")
    return [f"note: {source} was trained on other input: {sides}"]


def _plain(value: Any) -> Any:
    """Tuples as lists, which is what YAML gives back."""
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
