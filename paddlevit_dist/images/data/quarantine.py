"""The list of unreadable images, and their replacement in training."""

import functools
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...core import distributed
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.outages import read_through_outages
from .reading import UnreadableImage

if TYPE_CHECKING:
    from ...core.tasks.dataset import Dataset

QUARANTINE_FILE = "quarantine.tsv"
_PARTS_FOLDER = "quarantine"
_LONGEST_ROW_OF_BAD = 100
_Read = TypeVar("_Read")
_HEADER = "path\treason\n"


class UnreadableFile(NamedTuple):
    """A line of the list; neither field contains a tab or a line break."""

    path: str
    reason: str

    @classmethod
    def from_error(cls, error: UnreadableImage) -> "UnreadableFile":
        """Create the line of an error, without tabs and line breaks."""
        return cls(*(text.translate({9: "\\t", 10: "\\n", 13: "\\r"}) for text in (error.path, error.reason)))


def write_quarantine(file: Path, files: Iterable[UnreadableFile]) -> None:
    """Write the list, replacing an older one; each line is the path, a tab, and the reason."""
    lines = [_HEADER, *(f"{path}\t{reason}\n" for path, reason in files)]
    with atomic_file(file) as out:
        out.write("".join(lines).encode("utf-8", "surrogateescape"))


def read_quarantine(file: Path) -> list[UnreadableFile]:
    """Read the lines of a list, except an incomplete last one."""
    lines = file.read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]
    return [UnreadableFile(*line.split("\t", 1)) for line in lines if line != _HEADER.strip("\n") and "\t" in line]


class ReplacementReader:
    """Reads an image, or the next readable one if it is unreadable, and records the unreadable ones.

    The replacement depends only on the index, so it is the same for any number of processes. Each process appends to
    its own file in ``folder``; ``collect`` merges them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self._next: dict[int, int] = {}  # unreadable index -> next index, as found by this process
        self.num_told = 0  # length of the list when it was last logged

    def __getstate__(self) -> Any:
        return {"folder": self.folder, "_next": {}, "num_told": self.num_told}

    def read(self, read: Callable[[int], _Read], index: int, dataset: "Dataset") -> _Read:
        """Return ``read(index)``, or of the next readable index; a ``UserError`` after too many unreadable ones."""
        tried = index
        for _ in range(min(len(dataset), _LONGEST_ROW_OF_BAD)):
            if tried not in self._next:
                try:
                    again = functools.partial(read, tried)
                    return read_through_outages(again, was_there=True, absent=getattr(dataset, "absent_folders", ()))
                except UnreadableImage as error:
                    self._note(UnreadableFile.from_error(error))
                    self._next[tried] = (tried + 1) % len(dataset)
            tried = self._next[tried]
        raise UserError(
            f"{min(len(dataset), _LONGEST_ROW_OF_BAD)} images in a row from {dataset.describe(index)} on cannot be "
            "read, too many to skip (DATA.ON_INVALID_SAMPLE); check -data_path"
        )

    def _note(self, file: UnreadableFile) -> None:
        folder = Path(self.folder, _PARTS_FOLDER)
        line = f"{file.path}\t{file.reason}\n".encode("utf-8", "surrogateescape")
        try:
            folder.mkdir(exist_ok=True)
            with open(folder / f"{socket.gethostname()}-{os.getpid()}.tsv", "ab", buffering=0) as part:
                part.write(line)
        except OSError as error:
            raise UserError(f"cannot write {folder}: {error.strerror}; free space or choose another -output") from error

    def collect(self) -> list[UnreadableFile]:
        """Return the records of all processes that share the folder, each image once, sorted."""
        parts = Path(self.folder, _PARTS_FOLDER).glob("*.tsv")
        return sorted({file for part in parts for file in read_quarantine(part)})


def merge_quarantine(replacements: ReplacementReader | None, folder: Path) -> list[str]:
    """Merge the unreadable images of all ranks, which all call this, into a list; return a log line if it has grown."""
    if replacements is None:
        return []
    files = sorted({line for lines in distributed.all_gather(replacements.collect()) for line in lines})
    if len(files) == replacements.num_told:
        return []
    replacements.num_told = len(files)
    file = folder / QUARANTINE_FILE
    if distributed.is_main():
        write_quarantine(file, files)
    number = f"{len(files):,} unreadable image{'s' if len(files) > 1 else ''}"
    return [f"{number} so far replaced by the next readable one, listed in {file}"]
