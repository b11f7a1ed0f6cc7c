"""The command line that resumes or evaluates a checkpoint with the settings of the run that wrote it."""

import shlex
from pathlib import Path

from ..checkpoint.records import find_directory, is_run_checkpoint, read_about
from ..runtime.environment import program
from ..settings.every_run import RunSettings

_CONFIG, _RECORD = "config.yaml", "run.json"


def format_command(use: str, source: str, config: RunSettings) -> str:
    """Return the command that evaluates or resumes a checkpoint with its run's settings; empty outside a run's folder.

    The command keeps the data and output folder of ``config``. Another ``use`` than "evaluate" or "resume" has none.
    """
    directory = find_directory(source)
    folders = [directory, *list(directory.parents)[:2]]
    folder = next(
        (candidate for candidate in folders if all((candidate / name).is_file() for name in (_CONFIG, _RECORD))), None
    )
    if folder is None or not is_run_checkpoint(source) or use not in ("evaluate", "resume"):
        return ""
    trained = (read_about(source) or {}).get("settings") or {}
    if use == "evaluate":
        arguments = [config.MODEL.PRETRAINED or str(folder)]
    elif _is_same(config.SAVE, folder):
        arguments = [f"-resume={folder}"]
    else:
        arguments = [f"-resume={source}", f"-output={config.SAVE}"]
    path = config.DATA.DATA_PATH
    if path is not None and not _is_same((trained.get("DATA") or {}).get("DATA_PATH"), Path(path)):
        arguments.append(f"-data_path={path}")
    arguments += [f"-import={module}" for module in config.IMPORTS]  # a run's settings alone import nothing
    return program("evaluate" if use == "evaluate" else "train") + " " + shlex.join(arguments)


def _is_same(path: object, other: Path) -> bool:
    return isinstance(path, str) and Path(path).expanduser().resolve() == other.expanduser().resolve()
