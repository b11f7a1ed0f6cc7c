"""The command that continues or evaluates a run with its own settings, which its folder knows."""

import shlex
from pathlib import Path
from typing import Any

from ..checkpoint.content import find_directory, is_of_a_run, read_about
from ..runtime.environment import program
from ..settings.every_run import RunSettings

_CONFIG, _RECORD = "config.yaml", "run.json"


def format_command(use: str, source: str, config: RunSettings) -> str:
    """Return the command that evaluates or resumes a checkpoint with the settings of its run; empty where the
    checkpoint is not in a run's folder, and for other uses.

    Args:
        use: "evaluate" or "resume".
        source: the checkpoint.
        config: of the run that refuses it, whose data and output are kept.
    """
    directory = find_directory(source)
    folders = [directory, *list(directory.parents)[:2]]
    folder = next((folder for folder in folders if all((folder / name).is_file() for name in (_CONFIG, _RECORD))), None)
    if folder is None or not is_of_a_run(source) or use not in ("evaluate", "resume"):
        return ""
    trained = (read_about(source) or {}).get("settings") or {}
    words = [f"-cfg={folder / _CONFIG}"]
    if use == "evaluate":
        words.append(f"-pretrained={config.MODEL.PRETRAINED or folder}")
    elif _is_same(config.SAVE, folder):
        words.append("-resume=auto")
    else:
        words.append(f"-resume={source}")
    if use == "resume" and not _is_same(trained.get("SAVE"), Path(config.SAVE)):
        words.append(f"-output={config.SAVE}")
    path = config.DATA.DATA_PATH
    if path is not None and not _is_same((trained.get("DATA") or {}).get("DATA_PATH"), Path(path)):
        words.append(f"-data_path={path}")
    return program("evaluate" if use == "evaluate" else "train") + " " + shlex.join(words)


def _is_same(path: Any, other: Path) -> bool:
    return isinstance(path, str) and Path(path).expanduser().resolve() == other.expanduser().resolve()
