"""Files of predictions in the format of ScanNet's benchmark, in a folder or an archive.

A submission is an archive whose root contains ``sceneXXXX_XX.txt`` for every test scene and nothing else. For semantic
segmentation, it has a class number for every vertex of the scene's mesh, one per line. For instances, it has a line
``predicted_masks/….txt label confidence`` for each, with a mask file of a 0 or 1 for every vertex.

Source: the submission format in the benchmark's documentation, kaldir.vc.in.tum.de/scannet_benchmark/documentation.
"""

import os
import zipfile
import zlib
from collections.abc import Iterable

from ..core.runtime.errors import UserError
from ..core.runtime.text_files import read_bytes, to_utf8
from .data.scene_store import is_hidden

SEMANTIC, INSTANCES = "semantic", "instances"
MAX_LINE_BYTES = 1024  # of an index file
MAX_INSTANCES = 10_000  # of a scene
_MAX_INDEX_BYTES = 1 << 26  # a number for each of some million vertices


class SubmissionFiles:
    """The files of a folder or of a zip archive, by their names relative to its root."""

    def __init__(self, path: str) -> None:
        """Open ``path``; raises UserError if there is no such folder or archive, or it cannot be read."""
        self.path = path
        self.is_archive = not os.path.isdir(path)
        if not self.is_archive:
            paths = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
            self.names = _select_visible(os.path.relpath(file, path) for file in paths)
            return
        try:
            self._archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{path} is neither a folder nor a zip archive: {reason}") from error
        self.names = _select_visible(self._archive.namelist())

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return a file's content; ValueError, one line, if it cannot be read or has more than ``max_bytes`` bytes."""
        try:
            if not self.is_archive:
                return to_utf8(read_bytes(os.path.join(self.path, name), max_bytes))
            if self._archive.getinfo(name).file_size > max_bytes:
                raise ValueError(f"it has more than {max_bytes:,} bytes")
            return to_utf8(self._archive.read(name))
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, zlib.error) as error:
            raise ValueError(f"it cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _select_visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not any(map(is_hidden, name.split("/"))))


def find_kind(files: SubmissionFiles, indices: list[str]) -> str:
    """Return SEMANTIC or INSTANCES, from the first non-empty file of a scene; UserError if there is none."""
    num_empty = 0
    for index in indices:
        try:
            lines = files.read(index, _MAX_INDEX_BYTES).split(b"\n", 1)
        except ValueError:
            continue
        if lines[0].strip():
            return INSTANCES if len(lines[0].split()) > 1 else SEMANTIC
        num_empty += lines == [b""]
    if indices and num_empty == len(indices):
        message = f"{files.path}: the files of all {num_empty:,} scenes are empty: there is nothing to score"
        raise UserError(f"{message}; if no instance was found in any scene, add -kind={INSTANCES}")
    if indices:  # unreadable files are reported by the function that reads them all
        return INSTANCES
    raise UserError(
        f"{files.path} has no file of any of the scenes, such as scene0707_00.txt: give the folder with the "
        "predictions, and the scenes that they belong to with --data_path or --list"
    )


def split_lines(content: bytes) -> list[bytes]:
    """Return the lines of a file, with or without a newline at the end."""
    lines = content.split(b"\n")
    return [line.strip() for line in (lines if lines[-1] else lines[:-1])]
