"""Pictures and boxes of a dataset in memory-mapped files of the cache folder, so that a process receives a file's name
and not a million of them.

Four files whose names carry the key of their source: paths (``loading.path_index``), one row for each picture, one row
for each object, ordered by picture, and the categories with what was found while reading.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....loading.checked_files import Damaged, checked_file, map_verified, read_checked, write_array
from ....loading.path_index import PathIndex, ensure_path_index, make_batch
from ....runtime.errors import UserError
from ....runtime.files import map_array

VERSION = 3
PICTURE = np.dtype([("id", "<i8"), ("height", "<i4"), ("width", "<i4"), ("first", "<i8")])
OBJECT = np.dtype(
    [
        ("box", "<f8", (4,)),  # x, y, width, height
        ("area", "<f8"),
        ("id", "<i8"),
        ("label", "<i4"),
        ("is_crowd", "u1"),
        ("bytes", "<i4"),  # of its text in the source, and where that begins; 0: it has no mask
        ("start", "<i8"),
    ]
)


class About(NamedTuple):
    """What is known of a source as a whole.

    Attributes:
        class_names, category_ids: of the categories, by ascending number.
        has_masks: whether any object has a mask.
        labelled: whether the source says what is in the pictures at all.
        notices: what was odd, one line each.
        is_turned: boxes are taken to be drawn on the pictures as their EXIF orientation turns them.
    """

    class_names: Sequence[str]
    category_ids: Sequence[int]
    has_masks: bool
    labelled: bool
    notices: Sequence[str]
    is_turned: bool = False


class Source(NamedTuple):
    """What a source holds, ready to be written.

    Attributes:
        paths: of P pictures, as the file system spells them, relative to their folder.
        pictures: P rows of PICTURE, ``first`` not yet set.
        owners: int64 (objects,), the position of each object's picture.
        objects: rows of OBJECT, in the source's order.
    """

    about: About
    paths: list[bytes]
    pictures: np.ndarray
    owners: np.ndarray
    objects: np.ndarray

    @classmethod
    def of(
        cls,
        about: About,
        root: str,
        files: Sequence[str],
        stems: Sequence[str],
        sizes: np.ndarray,
        found: Sequence[np.ndarray],
    ) -> "Source":
        """The source of pictures that come with a file of annotations each.

        Args:
            files: of the P pictures, in the folder ``root`` or below it.
            stems: what the pictures are called, which their numbers follow from.
            sizes: int64 (P, 2), height and width.
            found: rows of OBJECT of each picture, whose ids are counted here, from 1.
        """
        paths = [os.fsencode(os.path.relpath(file, root)) for file in files]
        pictures, objects = np.zeros(len(paths), PICTURE), np.concatenate([np.zeros(0, OBJECT), *found])
        pictures["id"], pictures["height"], pictures["width"] = numbers_of(stems), sizes[:, 0], sizes[:, 1]
        objects["id"] = np.arange(1, len(objects) + 1)
        return cls(about, paths, pictures, np.repeat(np.arange(len(found)), [len(rows) for rows in found]), objects)


class AnnotationIndex:
    """What ``ensure_annotation_index`` has opened. Its pickle is the beginning of the files' names.

    Attributes:
        paths: the file of each picture.
        pictures: a row of PICTURE for each, and one more whose ``first`` is the number of objects.
        objects: rows of OBJECT, those of a picture in the source's order.
        about: categories and notices.
    """

    def __init__(self, stem: str) -> None:
        self._stem = stem
        self.paths = PathIndex(f"{stem}.index")
        self.pictures, self.objects = (map_array(f"{stem}-{part}.npy") for part in ("pictures", "objects"))
        self.about = About(**json.loads(read_checked(f"{stem}-about.json")))

    def __reduce__(self) -> Any:
        return AnnotationIndex, (self._stem,)

    def __len__(self) -> int:
        return len(self.pictures) - 1

    def objects_of(self, index: int) -> np.ndarray:
        """The rows of picture ``index``."""
        if not 0 <= index < len(self):
            raise IndexError(f"picture {index} is outside 0..{len(self) - 1}")
        first, end = self.pictures["first"][index : index + 2].tolist()
        return self.objects[first:end]


def ensure_annotation_index(folder: Path, name: str, key: bytes, read_source: Callable[[], Source]) -> AnnotationIndex:
    """Open the index of a source, and build it first if ``folder`` has none or a damaged one.

    Args:
        name: beginning of the files' names.
        key: SHA-256 of all that decides the content.
        read_source: reads the source; called only to build.
    Raises:
        UserError: of ``read_source``; or the folder cannot be written.
    """
    stem = str(Path(folder, f"{name}-{key.hex()[:16]}"))
    try:
        return _opened(stem, key)
    except (Damaged, UserError, OSError):  # absent, of another version, or damaged
        _build(stem, Path(folder), name, key, read_source())
        return _opened(stem, key)


def _opened(stem: str, key: bytes) -> AnnotationIndex:
    for part in ("pictures", "objects"):
        map_verified(f"{stem}-{part}.npy")
    PathIndex(f"{stem}.index", key)
    return AnnotationIndex(stem)


def _build(stem: str, folder: Path, name: str, key: bytes, source: Source) -> None:
    order = np.argsort(source.owners, kind="stable")
    numbers = np.bincount(source.owners, minlength=len(source.pictures))
    pictures = np.zeros(len(source.pictures) + 1, PICTURE)
    pictures[:-1] = source.pictures
    pictures["first"][1:] = np.cumsum(numbers)
    write_array(Path(f"{stem}-pictures.npy"), pictures)
    write_array(Path(f"{stem}-objects.npy"), source.objects[order])
    with checked_file(Path(f"{stem}-about.json")) as out:
        out.write(json.dumps(source.about._asdict()).encode("ascii"))
    ensure_path_index(folder, name, key, lambda: [make_batch(source.paths, 0)])


def numbers_of(stems: Sequence[str]) -> np.ndarray:
    """A number for each picture, int64, all different: that which its name without suffix is, where all are numbers
    (000005, or 2008_000008); otherwise its position, from 1."""
    digits = [stem.replace("_", "") for stem in stems]
    if all(text.isascii() and text.isdigit() and len(text) < 16 for text in digits):
        numbers = np.array(list(map(int, digits)), dtype=np.int64)
        if len(np.unique(numbers)) == len(numbers):
            return numbers
    return np.arange(1, len(stems) + 1)
