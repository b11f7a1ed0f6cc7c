"""The record beside prepared tar files: from what and how they were made."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Dict, NamedTuple, Optional

from ...errors import UserError
from ...loading.atomic_file import atomic_file

FILE = "prepared.json"
_VERSION = 1


class Preparation(NamedTuple):
    """Settings and state of a preparation.

    Attributes:
        source: absolute path of the data that were read.
        shorter_side: pixels; larger pictures were made this large.
        quality: of the JPEG files that were written.
        shard_size: pictures in each tar file.
        num_classes: of the source.
        fingerprints: of the source, by split.
        complete: False until all tar files are there.
        left_out: unreadable pictures that are missing.
    """

    source: str
    shorter_side: int
    quality: int
    shard_size: int
    num_classes: int
    fingerprints: Dict[str, str]
    complete: bool = False
    left_out: int = 0

    def note(self, root: str) -> str:
        """What a run on these files says of them."""
        missing = f", {self.left_out} unreadable pictures left out" if self.left_out else ""
        return (
            f"note: the pictures of {root} were prepared from {self.source} with a shorter side of at most "
            f"{self.shorter_side} pixels, JPEG quality {self.quality}{missing}"
        )

    def difference(self, other: Preparation) -> Optional[str]:
        """The first setting in which ``other`` would make other files; None if it would not."""
        for name in ("shorter_side", "quality", "shard_size", "num_classes", "fingerprints"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                return "the pictures of the source" if name == "fingerprints" else f"{name} {here}, now {there}"
        return None


def read_preparation(root: str, unfinished: bool = False) -> Optional[Preparation]:
    """The record in ``root``, None where there is none.

    Raises:
        UserError: it is damaged, or the preparation was not finished and ``unfinished`` is False.
    """
    path = os.path.join(root, FILE)
    if not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8") as stream:
            stored = json.load(stream)
        if stored.pop("version") != _VERSION:
            raise ValueError("it is of another version")
        found = Preparation(**stored)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({error}); prepare the pictures again in an empty folder") from error
    if not found.complete and not unfinished:
        raise UserError(f"the preparation of {root} was not finished; go on with the command that began it")
    return found


def write_preparation(root: Path, preparation: Preparation) -> None:
    """Put the record into ``root``, replacing an older one."""
    with atomic_file(root / FILE) as out:
        out.write((json.dumps({"version": _VERSION, **preparation._asdict()}, indent=1) + "\n").encode("ascii"))
