"""Names of checkpoint directories and of the files in them, and the links of a run to its best and last checkpoint."""

import os
import re
from pathlib import Path

from ..runtime.errors import UserError
from ..runtime.outages import read_through_outages

MODEL: str = "model.pdparams"  # weights
AVERAGED: str = "model_ema.pdparams"  # their average if the run has one
OWN = "task.npz"  # state of the task, if it has some
OPTIMIZER, STATE, MANIFEST = "optimizer.npz", "state.json", "manifest.json"
SAMPLES, EVALUATION = "samples.npz", "evaluation.json"
REPLACED = ".replaced"  # suffix of a checkpoint that is being replaced by one of the same name
_NAME = re.compile(r"(epoch|update)_(\d{1,18})(?:\.replaced)?")


def epoch_name(epoch: int) -> str:
    """Return the name of the checkpoint at the end of an epoch."""
    return f"epoch_{epoch:04d}"


def update_name(update: int) -> str:
    """Return the name of a checkpoint within an epoch."""
    return f"update_{update:08d}"


def parse_name(name: str) -> tuple[str, int] | None:
    """Return kind and number in ``epoch_0004`` or ``update_00000123``, with or without ``.replaced``; else None."""
    match = _NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def list_checkpoints(folder: Path) -> list[tuple[str, int, Path]]:
    """List kind, number and path of each checkpoint in a folder. Raises UserError if the folder cannot be read."""
    try:
        entries = [(parse_name(path.name), path) for path in read_through_outages(lambda: list(folder.iterdir()))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}; make it readable for this user") from error
    return [(*name, path) for name, path in entries if name]


def linked_name(folder: Path, name: str) -> str | None:
    """Return the name of the checkpoint that a link in ``folder`` points to; None if it is not a link to one there."""
    try:
        parent, linked = os.path.split(read_through_outages(lambda: os.readlink(folder / name)))
    except OSError:
        return None
    is_in_folder = os.path.realpath(folder / parent) == os.path.realpath(folder)
    return linked if is_in_folder and parse_name(linked) else None


def find_best_epoch(run: Path) -> int | None:
    """Return the epoch of the checkpoint that a run's ``best`` means; None if there is no such link."""
    name = parse_name(linked_name(run / "checkpoints", "best") or "")
    return name[1] if name else None


def find_last_saved(run: Path) -> tuple[str, int] | None:
    """Return "epoch" or "update" and the number of the checkpoint that a run's ``last`` means; None without a link."""
    return parse_name(linked_name(run / "checkpoints", "last") or "")
