"""Recognizes the folder of a run, and the runs whose names are like a missing one's."""

import contextlib
import os
from pathlib import Path

from .hints import find_similar

CONFIG, CHECKPOINTS = "config.yaml", "checkpoints"


def is_run(folder: str | os.PathLike) -> bool:
    """Return whether a folder is a run's; false also for a path that is too long."""
    return os.path.isfile(os.path.join(folder, CONFIG)) and os.path.isdir(os.path.join(folder, CHECKPOINTS))


def find_run(source: str | os.PathLike) -> Path | None:
    """Return the folder of the run that a path means, its own or that of a checkpoint in it; None for other paths."""
    path = Path(os.path.expanduser(source))
    for depth, folder in enumerate((path, *list(path.parents)[:3])):  # RUN / checkpoints / best / averaged.pdparams
        if is_run(folder) and (depth == 0 or path.relative_to(folder).parts[0] == CHECKPOINTS):
            return folder
    return None


def suggest_runs(missing: str) -> str:
    """Return "; did you mean RUN?" with the runs in the same folder whose names are like a missing path's, or ""."""
    path = Path(os.path.expanduser(missing))
    names: list[str] = []
    with contextlib.suppress(OSError, ValueError):  # no folder, or no path at all
        names = [name for name in sorted(os.listdir(path.parent)) if is_run(path.with_name(name))]
    near = [str(path.with_name(name)) for name in find_similar(path.name, names, 3)]
    return f"; did you mean {' or '.join(near)}?" if near else ""
