"""The list of images that cannot be read, and what a training does when it meets one."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, TypeVar

from ...errors import UserError
from ...files import atomic_file
from .reading import UnreadablePicture

QUARANTINE_FILE = "quarantine.tsv"
_PARTS_FOLDER = "quarantine"
_LONGEST_ROW_OF_BAD = 100
_Read = TypeVar("_Read")
_HEADER = "path\treason\n"


class Unreadable(NamedTuple):
    """A line of the list; neither holds a tab or a line break."""

    path: str
    reason: str

    @classmethod
    def of(cls, error: UnreadablePicture) -> Unreadable:
        return cls(*(text.translate({9: "\\t", 10: "\\n", 13: "\\r"}) for text in (error.path, error.reason)))


def write_quarantine(file: Path, found: Iterable[Unreadable]) -> None:
    """Write the list, replacing an older one; each line is the path, a tab, and the reason."""
    lines = [_HEADER, *(f"{path}\t{reason}\n" for path, reason in found)]
    with atomic_file(file) as out:
        out.write("".join(lines).encode("utf-8", "surrogateescape"))


def read_quarantine(file: Path) -> List[Unreadable]:
    """The lines of a list, without a last one that is not complete."""
    lines = file.read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]
    return [Unreadable(*line.split("\t", 1)) for line in lines if line != _HEADER.strip("\n") and "\t" in line]


class Replacements:
    """Reads an image, or in place of an unreadable one the next that can be read, and notes what was unreadable.

    The replacement depends on the index alone, so it is the same for any number of processes. Each process appends to
    a file of its own in ``folder``; ``collect`` brings them together.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self._next: Dict[int, int] = {}  # unreadable index -> where to go on; what this process has met

    def __getstate__(self) -> Any:
        return {"folder": self.folder, "_next": {}}

    def read(self, read: Callable[[int], _Read], index: int, dataset: Any) -> _Read:
        """``read`` of ``index`` or of the next readable index of ``dataset``.

        Raises:
            UserError: too many images in a row are unreadable: then it is not the images.
        """
        tried = index
        for _ in range(min(len(dataset), _LONGEST_ROW_OF_BAD)):
            if tried not in self._next:
                try:
                    return read(tried)
                except UnreadablePicture as error:
                    self._note(Unreadable.of(error))
                    self._next[tried] = (tried + 1) % len(dataset)
            tried = self._next[tried]
        raise UserError(
            f"{min(len(dataset), _LONGEST_ROW_OF_BAD)} pictures in a row from {dataset.describe(index)} on cannot be "
            "read, too many to skip (DATA.ON_BAD_SAMPLE); look at -data_path"
        )

    def _note(self, found: Unreadable) -> None:
        folder = Path(self.folder, _PARTS_FOLDER)
        line = f"{found.path}\t{found.reason}\n".encode("utf-8", "surrogateescape")
        try:
            folder.mkdir(exist_ok=True)
            with open(folder / f"{socket.gethostname()}-{os.getpid()}.tsv", "ab", buffering=0) as part:
                part.write(line)
        except OSError as error:
            raise UserError(f"cannot write {folder}: {error.strerror}; free space or choose another -output") from error

    def collect(self) -> List[Unreadable]:
        """What all processes that share the folder have noted so far, each image once, sorted."""
        parts = sorted(Path(self.folder, _PARTS_FOLDER).glob("*.tsv"))
        return sorted({found for part in parts for found in read_quarantine(part)})
