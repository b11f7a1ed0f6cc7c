"""The record of tar files written by ``prepare images``."""

import os
from pathlib import Path
from typing import Literal

import msgspec

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.json_format import format_json
from ...core.runtime.text_files import read_json

FILE = "prepared.json"


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and state of a preparation.

    Attributes:
        source: absolute path of the data that were read.
        shorter_side: pixels; larger images are resized to it.
        quality: of the JPEG files that were written.
        shard_size: images in each tar file.
        fingerprints: of the source, by split.
        complete: False until all tar files are written.
        left_out: number of unreadable images, which are not in the tar files.
        stored: "jpeg", or "pages" of pixels.
    """

    version: Literal[1] = 1
    source: str
    shorter_side: int
    quality: int
    shard_size: int
    num_classes: int
    fingerprints: dict[str, str]
    complete: bool = False
    left_out: int = 0
    stored: str = "jpeg"

    def note(self, root: str) -> str:
        """Return the line about these files in a run's log."""
        missing = f", {self.left_out} unreadable images skipped" if self.left_out else ""
        form = f"JPEG quality {self.quality}" if self.stored == "jpeg" else "as pages of pixels"
        return (
            f"note: the images of {root} were prepared from {self.source} with a shorter side of at most "
            f"{self.shorter_side} pixels, {form}{missing}"
        )

    def difference(self, other: "Preparation") -> str | None:
        """Describe the first setting that would make ``other`` produce different files; None if there is none."""
        for name in ("shorter_side", "quality", "shard_size", "num_classes", "stored", "fingerprints"):
            before, now = getattr(self, name), getattr(other, name)
            if before != now:
                return "the images of the source" if name == "fingerprints" else f"{name} {before}, now {now}"
        return None


def read_preparation(root: str, unfinished: bool = False) -> Preparation | None:
    """Read the record in ``root``, None without one; ``UserError`` if corrupt or not finished (``unfinished``)."""
    path = os.path.join(root, FILE)
    if not os.path.exists(path):
        return None
    try:
        preparation = msgspec.convert(read_json(path), Preparation)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise UserError(f"{path} cannot be read ({error}); prepare the images again in an empty folder") from error
    if not preparation.complete and not unfinished:
        raise UserError(f"the preparation of {root} was not finished; run the command that began it again")
    return preparation


def write_preparation(root: Path, preparation: Preparation) -> None:
    """Write the record to ``root``, replacing an older one."""
    with atomic_file(root / FILE) as out:
        out.write((format_json(msgspec.structs.asdict(preparation), indent=1) + "\n").encode("ascii"))
