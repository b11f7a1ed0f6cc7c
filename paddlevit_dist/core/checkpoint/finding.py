"""Finds the checkpoint that a run continues from, and the settings of the run that trained weights."""

import contextlib
import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..runtime.errors import UserError
from ..runtime.outages import read_through_outages
from ..runtime.printing import shorten
from ..runtime.run_folders import suggest_runs
from .directory_names import MODEL, STATE, linked_name, list_checkpoints
from .integrity import DamagedCheckpointError
from .records import read_about_file, read_state, verify


def newest_good(folder: Path, log: Callable[[str], None]) -> Path | None:
    """Return the undamaged checkpoint that a run in ``folder`` should continue from, or None; log damaged ones.

    The checkpoint that ``last`` points to comes first: a run resumed from an earlier epoch may have left later ones.
    """
    last = linked_name(folder, "last")
    copies = [copy for copy in (folder / "last", folder / "best") if copy.is_dir() and not copy.is_symlink()]
    for path in [*sorted(newest_first(folder), key=lambda path: path.name != last), *copies]:
        try:
            _verify_listed(path)
        except DamagedCheckpointError as error:
            log(f"damaged checkpoint skipped: {error}")
            continue
        return path
    return None


def _verify_listed(directory: Path) -> None:
    """Verify a checkpoint that was just listed: it is not damaged if its drive is away, see ``find_outage``."""
    is_empty = directory.is_dir() and not any(directory.iterdir())
    absent = [os.path.realpath(directory)] if is_empty else []
    read_through_outages(functools.partial(verify, directory), was_there=True, absent=absent)


def holds_any(folder: Path) -> bool:
    """Return whether a folder contains checkpoints, good or damaged, or links to missing ones."""
    return bool(list_checkpoints(folder)) or any(os.path.lexists(folder / name) for name in ("last", "best"))


def existing_run_error(output: str) -> UserError:
    """Return the error for a training run that would write into the folder of another run without resuming it."""
    return UserError(
        f"-output={output} already holds a run's checkpoints; continue with -resume=auto, or choose another -output"
    )


def resolve(source: str, run_folder: Path, log: Callable[[str], None]) -> Path | None:
    """Return the path that ``-resume=source`` means: a checkpoint directory or a file of weights.

    It is None for "auto" if there is no checkpoint yet. Raises UserError if there is no usable checkpoint.

    Args:
        source: "auto" (newest good checkpoint in ``run_folder``), a checkpoint directory, a file in one, a run's output
            folder, or a ``.pdparams`` file (with or without extension) outside any checkpoint.
        log: receives lines about damaged checkpoints that are skipped.
    """
    if source == "auto":
        good = newest_good(run_folder, log)
        if good is None and holds_any(run_folder):
            raise UserError(
                f"-resume=auto: all checkpoints in {run_folder} are damaged or gone; restore one, or choose another "
                "-output to start again"
            )
        return good
    path = find_existing(source)
    if path.is_file():
        if not (path.parent / STATE).exists():
            return path
        path = path.parent
    for folder in (path / "checkpoints", path):
        if list_checkpoints(folder):
            good = newest_good(folder, log)
            if good is None:
                raise UserError(
                    f"-resume={source}: all checkpoints in {folder} are damaged; restore one or start again"
                )
            return good
    path = path.resolve()
    try:
        _verify_listed(path)
        return path
    except DamagedCheckpointError as error:
        good = newest_good(path.parent, log)
        if good is None:
            raise UserError(f"-resume={source}: {error}, and there is no good checkpoint in that folder") from error
        log(f"continuing from {good} instead")
        return good


def find_existing(source: str) -> Path:
    """Return the file or folder that ``-resume=source`` means, with or without its extension, or raise UserError."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # too long, a null byte, ~ of an unknown user
        path = Path(source).expanduser()
        if path.exists():
            return path
        extended = path.with_name(path.name + Path(MODEL).suffix)
        if extended.exists():
            return extended
    raise UserError(
        f"-resume={shorten(source)}: no such file or folder; give a checkpoint directory, an output folder or 'auto'"
        f"{suggest_runs(source)}"
    )


def newest_first(folder: Path) -> list[Path]:
    """Sort checkpoints by position, newest first, but first of all, as damaged, a step that records none."""

    def place(entry: tuple[str, int, Path]) -> tuple[float, int, int]:
        kind, number, path = entry
        if kind == "epoch":
            return number, 0, 1
        try:
            position, _ = read_state(path)
        except DamagedCheckpointError:
            return math.inf, number, 0
        return position["epoch"], position["consumed"], 0

    return [checkpoint for _, _, checkpoint in sorted(list_checkpoints(folder), key=place, reverse=True)]


def is_newest(directory: Path | None, folder: Path) -> bool:
    """Return whether a folder has no other checkpoint, or no later one than ``directory``."""
    newest = newest_first(folder.resolve())[:1]
    return newest in ([], [directory and directory.resolve()])


def find_run_settings(about: dict[str, Any], file: Path) -> dict[str, Any] | None:
    """Return the settings of the run that trained the weights in ``file``; None if unknown.

    They are in the metadata ``about``, or in the ``config.yaml`` of the run's folder that contains ``file``.
    """
    if isinstance(about.get("settings"), dict):
        return dict(about["settings"])
    for folder in list(file.absolute().parents)[:3]:  # run / checkpoints / epoch_0004 / model.pdparams
        if (folder / "config.yaml").is_file():
            return read_about_file(folder / "config.yaml")
    return None
