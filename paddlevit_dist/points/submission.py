"""Whether predictions follow the rules of ScanNet's benchmark, and packing them for it.

A submission is an archive whose root holds ``sceneXXXX_XX.txt`` for every test scene and nothing else: for semantic
segmentation the number of a class for every vertex of the scene's mesh, a line each; for instances a line
``predicted_masks/….txt label confidence`` for each, with a mask file of a 0 or 1 for every vertex.

Source: the submission format in the benchmark's documentation, kaldir.vc.in.tum.de/scannet_benchmark/documentation.
"""

import math
import os
import posixpath
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from ..runtime.errors import UserError
from ..runtime.files import atomic_file
from ..runtime.text_files import read_bytes
from .data.ply import count_vertices
from .data.scannet_classes import CLASS_NAMES, NYU40_NUMBERS, STUFF, TEST_FOLDER
from .data.scene_store import CLASSES_FILE, list_file, read_header, read_lines, scene_file
from .prepare.scannet import LIST_NAME, ScanNetReader

SEMANTIC, INSTANCES = "semantic", "instances"
_LABELS = {b"%d" % number for number in NYU40_NUMBERS}
_INSTANCE_LABELS = {b"%d" % number for name, number in zip(CLASS_NAMES, NYU40_NUMBERS) if name not in STUFF}
LONGEST_LINE = 1024  # bytes of a line of an index
_MOST_OF_A_SCENE = 3  # problems that are told
MOST_INSTANCES = 10_000  # of a scene
_LARGEST_INDEX = 1 << 26  # bytes: a number for each of some million vertices


class Files:
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


class Findings(NamedTuple):
    """What a check has found.

    Attributes:
        kind: SEMANTIC or INSTANCES.
        problems: what breaks a rule, a line each.
        packed: names of the files that belong to the submission.
        others: names of further files.
        num_instances: in all scenes.
    """

    kind: str
    problems: list[str]
    packed: list[str]
    others: list[str]
    num_instances: int = 0


def expected_scenes(data_path: str, split: str = "test", listed: str | None = None) -> dict[str, int]:
    """Number of vertices of each scene of a split, by name.

    Args:
        data_path: a prepared store, or the folder of ScanNet's download; there the scenes are those of the list, else
            those in ``scans_test``, else all.
        listed: a file with one scene name per line, in place of the split.

    Raises:
        UserError: neither, or a scene is missing.
    """
    if not os.path.isdir(data_path):
        raise UserError(f"{data_path} is not a folder; give the prepared store or ScanNet's download")
    names = None if listed is None else read_lines(listed)
    if listed is not None and not names:
        raise UserError(f"{listed} names no scene; expected one scene name per line")
    if os.path.exists(os.path.join(data_path, CLASSES_FILE)):
        names = names or read_lines(list_file(data_path, split))
        if not names:
            raise UserError(f"{list_file(data_path, split)} is missing or empty: the store has no scenes of '{split}'")
        return {name: read_header(scene_file(data_path, name)).num_points for name in names}
    found = ScanNetReader().find(data_path)
    names = names or read_lines(os.path.join(data_path, LIST_NAME.format(split)))
    hidden = [name for name, file in found.items() if TEST_FOLDER in Path(file).parts] if split == "test" else []
    names = names or sorted(hidden or found)
    missing = [name for name in names if name not in found]
    if missing:
        raise UserError(f"scene {missing[0]} is not in {data_path}; {len(missing):,} of {len(names):,} are missing")
    return {name: count_vertices(found[name]) for name in names}


def check(files: Files, scenes: Mapping[str, int], kind: str | None = None) -> Findings:
    """Check the files of a submission.

    Args:
        scenes: number of vertices by name of the scene.
        kind: None: found out from what the files hold.
    """
    there = set(files.names)
    kind = kind or kind_of(files, [f"{name}.txt" for name in scenes if f"{name}.txt" in there])
    problems: list[str] = []
    packed: list[str] = []
    instances = 0
    for name, vertices in tqdm(scenes.items(), desc="checking", unit="scene", disable=None, leave=False):
        index = f"{name}.txt"
        if index not in there:
            problems.append(f"{index} is missing{_elsewhere(index, files.names)}")
            continue
        packed.append(index)
        if kind == SEMANTIC:
            found = list(_wrong_labels(files, index, vertices))
        else:
            masks: list[str] = []
            found = list(_wrong_instances(files, index, vertices, there, masks))
            packed += dict.fromkeys(masks)
            instances += len(masks)
        left = len(found) - _MOST_OF_A_SCENE
        problems += found if left <= 0 else [*found[:_MOST_OF_A_SCENE], f"{index}: {left:,} more of this kind"]
    others = sorted(there - set(packed))
    if files.is_archive and others:
        more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
        problems.append(f"the archive holds {others[0]}{more}, which do not belong to the submission: pack it again")
    return Findings(kind, problems, packed, others, instances)


def pack(files: Files, names: list[str], target: Path) -> None:
    """Write the files of a submission as a zip archive, which appears once it is complete."""
    with atomic_file(target) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in tqdm(names, desc="packing", unit="file", disable=None, leave=False):
            archive.write(os.path.join(files.path, name), name)


def _elsewhere(name: str, names: list[str]) -> str:
    found = next((other for other in names if posixpath.basename(other) == name), None)
    return f" in the root; there is {found}" if found else ""


def kind_of(files: Files, indices: list[str]) -> str:
    """SEMANTIC or INSTANCES, from what the first file of a scene that says anything holds.

    Raises:
        UserError: there is no such file.
    """
    for index in indices:
        try:
            lines = files.read(index, _LARGEST_INDEX).split(b"\n", 1)
        except ValueError:
            continue
        if lines[0].strip():
            return INSTANCES if len(lines[0].split()) > 1 else SEMANTIC
    if indices:  # only scenes without a prediction
        return INSTANCES
    raise UserError(
        f"{files.path} has no file such as scene0707_00.txt of any of the scenes: give the folder with the "
        "predictions, and with --data_path or --list the scenes that they are of"
    )


def lines_of(content: bytes) -> list[bytes]:
    """The lines of a file, also where the last one has no end."""
    lines = content.split(b"\n")
    return [line.strip() for line in (lines if lines[-1] else lines[:-1])]


def _wrong_labels(files: Files, index: str, vertices: int) -> Iterator[str]:
    try:
        lines = lines_of(files.read(index, 8 * vertices + LONGEST_LINE))
    except ValueError as error:
        yield f"{index}: {error}; expected a number for each of {vertices:,} vertices"
        return
    if len(lines) != vertices:
        yield f"{index} has {len(lines):,} lines, but the scene has {vertices:,} vertices"
    for value in sorted(set(lines) - _LABELS):
        number = lines.index(value) + 1
        yield f"{index} line {number}: {_shown(value)} is no class of the benchmark ({_told(_LABELS)})"


def _wrong_instances(files: Files, index: str, vertices: int, there: set[str], masks: list[str]) -> Iterator[str]:
    """Problems of a scene; the names of its mask files are added to ``masks``."""
    try:
        lines = lines_of(files.read(index, MOST_INSTANCES * LONGEST_LINE))
    except ValueError as error:
        yield f"{index}: {error}"
        return
    for number, line in enumerate(lines, 1):
        where = f"{index} line {number}"
        fields = line.split()
        if len(fields) != 3:
            yield f"{where}: expected a mask file, a class number and a confidence, but it says {_shown(line)}"
            continue
        mask = fields[0].decode("utf-8", "replace")
        if fields[1] not in _INSTANCE_LABELS:
            yield f"{where}: {_shown(fields[1])} is no class with instances ({_told(_INSTANCE_LABELS)})"
        if not _is_finite(fields[2]):
            yield f"{where}: the confidence is {_shown(fields[2])}, expected a finite number"
        if mask.startswith("/") or "\\" in mask or ".." in mask.split("/") or posixpath.normpath(mask) != mask:
            yield f"{where}: {_shown(fields[0])} is no path relative to the submission, such as predicted_masks/a.txt"
        elif mask not in there:
            yield f"{where}: there is no file {_shown(fields[0])}"
        elif mask in masks:
            yield f"{where}: {_shown(fields[0])} is the mask of another line already"
        else:
            masks.append(mask)
            yield from _wrong_mask(files, mask, vertices)


def _wrong_mask(files: Files, mask: str, vertices: int) -> Iterator[str]:
    try:
        content = files.read(mask, 4 * vertices + LONGEST_LINE)
    except ValueError as error:
        yield f"{mask}: {error}; expected a 0 or 1 for each of {vertices:,} vertices"
        return
    letters = np.frombuffer(content, np.uint8)
    if len(letters) == 2 * vertices and (letters[1::2] == ord("\n")).all():  # as they are written here
        values = {bytes([value]) for value in np.unique(letters[::2]).tolist()}
    else:
        lines = lines_of(content)
        values = set(lines)
        if len(lines) != vertices:
            yield f"{mask} has {len(lines):,} lines, but the scene has {vertices:,} vertices"
    wrong = sorted(values - {b"0", b"1"})
    if wrong:
        yield f"{mask} holds {_shown(wrong[0])}, expected 0 or 1 on each line"
    elif b"1" not in values:
        yield f"{mask} marks no vertex: leave the instance out"


def _is_finite(text: bytes) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace"))


def _told(labels: set[bytes]) -> str:
    return ", ".join(map(str, sorted(map(int, labels))))
