"""Names of checkpoints in a run's ``checkpoints`` folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from ..errors import UserError

MODEL, AVERAGED = "model.pdparams", "model_ema.pdparams"  # weights, and their averages where the run has them
REPLACED = ".replaced"  # ending of a checkpoint that is about to be replaced by one of the same name
_NAME = re.compile(r"(epoch|update)_(\d{1,18})(?:\.replaced)?")


def epoch_name(epoch: int) -> str:
    return f"epoch_{epoch:04d}"


def update_name(update: int) -> str:
    return f"update_{update:08d}"


class Name(NamedTuple):
    """What the name of a checkpoint's directory says."""

    kind: str  # "epoch" or "update"
    number: int
    is_replaced: bool


def parse_name(name: str) -> Optional[Name]:
    """The kind and number in ``epoch_0004`` or ``update_00000123``, also with ``.replaced`` after it; else None."""
    match = _NAME.fullmatch(name)
    return Name(match[1], int(match[2]), name.endswith(".replaced")) if match else None


def numbered(folder: Path) -> List[Tuple[str, int, Path]]:
    """Kind, number and path of each checkpoint in a folder.

    Raises:
        UserError: the folder cannot be read.
    """
    try:
        found = [(parse_name(path.name), path) for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}; make it readable for this user") from error
    return [(name.kind, name.number, path) for name, path in found if name]


def linked_name(folder: Path, name: str) -> Optional[str]:
    """The name of the checkpoint in the same folder that a link points at; None for anything else of that name."""
    try:
        target = os.readlink(folder / name)
    except OSError:
        return None
    beside, linked = os.path.split(target)
    is_beside = beside in ("", ".") or os.path.realpath(folder / beside) == os.path.realpath(folder)
    return linked if is_beside and parse_name(linked) else None
