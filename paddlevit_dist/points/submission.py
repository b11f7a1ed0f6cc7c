"""Files of predictions in the format of ScanNet's benchmark, in a folder or an archive.

A submission is an archive whose root holds ``sceneXXXX_XX.txt`` for every test scene and nothing else: for semantic
segmentation the number of a class for every vertex of the scene's mesh, a line each; for instances a line
``predicted_masks/….txt label confidence`` for each, with a mask file of a 0 or 1 for every vertex.

Source: the submission format in the benchmark's documentation, kaldir.vc.in.tum.de/scannet_benchmark/documentation.
"""

import os
import zipfile

from ..runtime.errors import UserError
from ..runtime.text_files import read_bytes

SEMANTIC, INSTANCES = "semantic", "instances"
LONGEST_LINE = 1024  # bytes of a line of an index
MOST_INSTANCES = 10_000  # of a scene
_LARGEST_INDEX = 1 << 26  # bytes: a number for each of some million vertices


class SubmissionFiles:
    """The files of a folder or of a zip archive, by their names relative to its root."""

    def __init__(self, path: str) -> None:
        """Raises UserError if there is no such folder or archive, or it cannot be read."""
        self.path = path
        self.is_archive = not os.path.isdir(path)
        if not self.is_archive:
            found = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
            self.names = sorted(os.path.relpath(file, path).replace(os.sep, "/") for file in found)
            return
        try:
            self._archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{path} is neither a folder nor a zip archive: {reason}") from error
        self.names = sorted(entry.filename for entry in self._archive.infolist() if not entry.is_dir())

    def read(self, name: str, largest: int) -> bytes:
        """Content of a file of at most ``largest`` bytes; what it says cannot be right beyond them.

        Raises:
            ValueError: it is longer, or cannot be read; one line.
        """
        try:
            if not self.is_archive:
                return read_bytes(os.path.join(self.path, name), largest)
            if self._archive.getinfo(name).file_size > largest:
                raise ValueError(f"it has more than {largest:,} bytes")
            return self._archive.read(name)
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            raise ValueError(f"it cannot be read: {getattr(error, 'strerror', None) or error}") from error


def find_kind(files: SubmissionFiles, indices: list[str]) -> str:
    """SEMANTIC or INSTANCES, from what the first file of a scene that says anything holds.

    Raises:
        UserError: there is no such file, or all are empty.
    """
    num_empty = 0
    for index in indices:
        try:
            lines = files.read(index, _LARGEST_INDEX).split(b"\n", 1)
        except ValueError:
            continue
        if lines[0].strip():
            return INSTANCES if len(lines[0].split()) > 1 else SEMANTIC
        num_empty += lines == [b""]
    if indices and num_empty == len(indices):
        said = f"{files.path}: the files of all {num_empty:,} scenes are empty: there is nothing to score"
        raise UserError(f"{said}; where no instance was found in any, add -kind={INSTANCES}")
    if indices:  # what cannot be read is told by who reads it
        return INSTANCES
    raise UserError(
        f"{files.path} has no file such as scene0707_00.txt of any of the scenes: give the folder with the "
        "predictions, and with --data_path or --list the scenes that they are of"
    )


def split_lines(content: bytes) -> list[bytes]:
    """The lines of a file, also where the last one has no end."""
    lines = content.split(b"\n")
    return [line.strip() for line in (lines if lines[-1] else lines[:-1])]
