"""Pictures with boxes in YOLO's layout: a text file for each picture, with shares of its width and height."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from ....contracts.dataset import require_split
from ....runtime.errors import UserError
from ....runtime.text_files import read_bytes, read_text, read_yaml
from ...data.box_layouts import yolo_descriptions
from ...data.formats import SPLIT_WORDS, folder_paths, stems
from ...data.image_dataset import read_class_names
from ...data.reading import existing_folder
from ..odd_data import OddData, count
from ..run_lengths import outline
from .indexed_pictures import (
    OBJECT,
    VERSION,
    About,
    IndexedPictures,
    Source,
    ensure_annotation_index,
    measure,
    picture_names,
    pictures_in,
    readable,
    stamp,
)

_LAYOUT = (
    "with data.yaml (train, val and names), or with images/train, images/val, labels/train, labels/val and "
    "classes.txt, or with pictures, their .txt files and classes.txt"
)
_SLACK = 0.01  # shares may pass 0 and 1 by so much: rounding
_LARGEST_LABELS = 1 << 24


class Described(NamedTuple):
    """What a data.yaml says.

    Attributes:
        file: the YAML file.
        names: by number of the class.
        places: folders or lists of pictures of each split, as they are written there.
        base: what these are relative to.
    """

    file: str
    names: dict[int, str]
    places: dict[str, list[str]]
    base: str


class Yolo(IndexedPictures):
    """Pictures whose boxes are lines ``class x y width height`` of text files, shares of the picture from 0 to 1 with x
    and y of the box's middle, or outlines ``class x1 y1 x2 y2 ...``, whose masks are polygons.

    The labels of images/train/a.jpg are in labels/train/a.txt; a picture without such a file has no boxes. Classes are
    those of data.yaml, or the lines of classes.txt; their numbers are their categories'.
    """

    layout = _LAYOUT

    def __init__(self, data_path: str | None, split: str, cache_folder: Path, turned: bool = True) -> None:
        """Serve ``split``.

        Args:
            turned: boxes were drawn on the pictures as their EXIF orientation turns them, as most programs show them.
        Raises:
            UserError: the layout is another, or a file of labels is not as YOLO's are.
        """
        self.split = split
        root = existing_folder(data_path, "yolo", _LAYOUT)
        described = description_of(root)
        names = described.names if described else _names_of(root)
        pictures = _pictures_of(root, split, described)
        labels = [labels_of(picture) for picture in pictures]
        key = stamp(f"yolo {VERSION} {names} {turned}\n", [*pictures, *labels])
        index = ensure_annotation_index(
            cache_folder, f"yolo-{split}", key, lambda: _read(root, pictures, names, turned)
        )
        super().__init__(root, index, "its labels' index", turned)
        where = described.file if described else root
        self.notices = [f"{split}: {count(len(pictures), 'picture')} of {where}", *self.notices]

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> "Yolo":
        return cls(config.DATA.DATA_PATH, split, cache_folder, config.DATA.EXIF_ROTATE is not False)

    def masks(self, index: int) -> list[Any]:
        height, width = self.size(index)
        rows = self._index.objects_of(index)
        content = read_bytes(labels_of(self.describe(index)), _LARGEST_LABELS) if (rows["bytes"] > 0).any() else b""
        found = []
        for row in rows:
            line = content[int(row["start"]) : int(row["start"]) + int(row["bytes"])]
            corners = np.array(line.split()[1:], dtype=np.float64).reshape(-1, 2) * (width, height)
            found.append([corners.reshape(-1).tolist()] if row["bytes"] else outline(row["box"].tolist()))
        return found


def labels_of(picture: str) -> str:
    """The file of a picture's labels: the last folder "images" of its path becomes "labels"; where there is none, the
    one beside it."""
    stem = os.path.splitext(picture)[0]
    before, found, behind = stem.rpartition(f"{os.sep}images{os.sep}")
    named = f"{before}{os.sep}labels{os.sep}{behind}.txt"
    return named if found and (os.path.isfile(named) or not os.path.isfile(f"{stem}.txt")) else f"{stem}.txt"


def description_of(root: str) -> Described | None:
    """What the data.yaml of a folder says; None: there is none.

    Raises:
        UserError: it cannot be read, or lacks names; or there are several.
    """
    files = yolo_descriptions(root)
    if len(files) > 1:
        raise UserError(f"{', '.join(files)} all describe data: keep one in the folder, or call it data.yaml")
    if not files:
        return None
    file = files[0]
    with readable(file):
        content = read_yaml(file)
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict) or not names or not all(type(number) is int and number >= 0 for number in names):
        raise UserError(f"{file} has no names of classes; expected names: [cat, dog], or a line 0: cat for each")
    places = {}
    for split in ("train", "val", "test"):
        value = content.get(split)
        if value is not None:
            places[split] = [_with_slashes(str(one)) for one in (value if isinstance(value, list) else [value])]
    base = os.path.join(root, _with_slashes(str(content.get("path") or "")))
    return Described(file, {number: str(names[number]) for number in sorted(names)}, places, base)


def _with_slashes(path: str) -> str:
    """A path that was written on Windows."""
    return path.replace("\\", "/")


def _names_of(root: str) -> dict[int, str]:
    splits = [os.path.join(root, word) for words in SPLIT_WORDS.values() for word in words]
    for folder in (root, os.path.join(root, "labels"), *splits):
        names = read_class_names(folder)
        if names is not None:
            return dict(enumerate(names))
    raise UserError(
        f"{root} has no names of classes; expected data.yaml with names: [cat, dog], or classes.txt, a name a line"
    )


def _pictures_of(root: str, split: str, described: Described | None) -> list[str]:
    """The files of a split's pictures, sorted."""
    if described is not None and described.places:
        require_split(split, tuple(described.places), described.file, _remark(split, described.places))
        found = [picture for place in described.places[split] for picture in _pictures_at(root, place, described)]
    else:
        found = [os.path.join(folder, name) for folder in _folders_of(root, split) for name in _below(folder)]
    if not found:
        raise UserError(f"{described.file if described else root}: there are no {split} pictures")
    return sorted(dict.fromkeys(found))


def _folders_of(root: str, split: str) -> list[str]:
    """The folders of a split where no data.yaml names them."""
    images = os.path.join(root, "images")
    for word in SPLIT_WORDS.get(split, (split,)):
        for folder in (os.path.join(images, word), os.path.join(root, word, "images"), os.path.join(root, word)):
            if os.path.isdir(folder):
                return [folder]
    if split == "train" and os.path.isdir(images):
        return [images]  # one folder, which DATA.VAL_FRACTION may divide
    if split == "train" and picture_names(root):  # with labels beside them, as labelImg writes them
        return [root]
    known = [os.path.basename(path) for path in (*folder_paths(images), *folder_paths(root))]
    known = [name for name in known if name not in ("images", "labels")]
    has_train = os.path.isdir(images) or bool(picture_names(root))
    require_split(split, known, f"yolo at {root}", _remark(split, [*known, *(["train"] if has_train else [])]))
    raise UserError(f"{root} has no folder of {split} pictures; expected a folder {_LAYOUT}")


def _remark(split: str, known: Collection[str]) -> str:
    helps = split == "val" and any(word in known for word in SPLIT_WORDS["train"])
    return "; DATA.VAL_FRACTION divides the training set" if helps else ""


def _pictures_at(root: str, place: str, described: Described) -> list[str]:
    """The pictures of a folder, or of a list, that data.yaml names."""
    # Published files often say ../train/images and lie beside train.
    tries = [os.path.join(described.base, place), os.path.join(root, place), os.path.join(root, place.lstrip("./"))]
    path = next((os.path.normpath(one) for one in tries if os.path.exists(one)), None)
    if path is None:
        raise UserError(f"{described.file} names {place}, which is not there; looked at {os.path.normpath(tries[0])}")
    if os.path.isdir(path):
        return [os.path.join(path, name) for name in _below(path)]
    with readable(path):
        lines = [line.strip() for line in read_text(path, "utf-8-sig").splitlines()]
    folder = os.path.dirname(path)
    return [os.path.normpath(os.path.join(folder, _with_slashes(line))) for line in lines if line]


def _below(folder: str) -> list[str]:
    """The pictures in a folder and its sub-folders, relative to it."""
    found = list(pictures_in(folder).values())
    for path in folder_paths(folder):
        if not os.path.islink(path):
            found += [os.path.join(os.path.basename(path), inner) for inner in _below(path)]
    return found


def _read(root: str, pictures: list[str], names: dict[int, str], turned: bool) -> Source:
    sizes = measure(pictures, turned)
    label_of = {number: label for label, number in enumerate(names)}
    odd = OddData()
    found = [np.zeros(0, OBJECT)] * len(pictures)
    for position, picture in enumerate(
        tqdm(pictures, desc="reading labels", unit="file", delay=1.0, disable=None, leave=False)
    ):
        file = labels_of(picture)
        if not os.path.isfile(file):
            odd.note("picture", "without a file of labels: no boxes", picture)
            continue
        found[position] = np.array(_rows(file, sizes[position].tolist(), label_of, odd), OBJECT)
    has_masks = any((rows["bytes"] > 0).any() for rows in found)
    about = About(list(names.values()), list(names), has_masks, True, odd.lines())
    return Source.of(about, root, pictures, stems(pictures), sizes, found)


def _rows(file: str, size: Sequence[int], label_of: dict[int, int], odd: OddData) -> list[tuple[Any, ...]]:
    """The objects in a file of labels of a picture of this height and width, as rows of OBJECT."""
    with readable(file):
        content = read_bytes(file, _LARGEST_LABELS)
    rows: list[tuple[Any, ...]] = []
    seen = set()
    start = 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        words = line.split()
        begin, start = start, start + len(line)
        if not words:
            continue
        try:
            values = [float(word) for word in words]
        except ValueError:
            raise _wrong(file, number, line, "expected numbers: class x y width height") from None
        if len(values) != 5 and (len(values) < 7 or len(values) % 2 == 0):
            known = ", as results have: leave out the last, their score" if len(values) == 6 else ""
            raise _wrong(file, number, line, f"{len(values)} numbers{known}; expected class x y width height")
        label = label_of.get(int(values[0])) if values[0] == values[0] and abs(values[0]) < 1e9 else None
        if label is None or values[0] != int(values[0]):
            raise _wrong(file, number, line, f"there is no such class: {len(label_of)} are named, from 0 on")
        shares = values[1:]
        if not all(abs(share) < 2 for share in shares):
            raise _wrong(file, number, line, "expected shares of the picture from 0 to 1, not pixels")
        if not all(-_SLACK <= share <= 1 + _SLACK for share in shares):
            odd.note("line", "with a share beyond 0 to 1: cut off for training", file)
        if len(shares) == 4 and min(shares[2:]) <= 0:
            odd.note("box", "without an area: not learnt", file)
        if (label, *shares) in seen:
            odd.note("line", "repeated in the same file: all are kept", file)
        seen.add((label, *shares))
        where = (len(line), begin) if len(shares) > 4 else (0, 0)
        rows.append((*box_and_area(shares, *size), 0, label, False, *where))
    return rows


def box_and_area(shares: list[float], height: int, width: int) -> tuple[tuple[float, ...], float]:
    """A line's box in pixels, x, y, width, height, and its area: that of the outline where there is one."""
    if len(shares) == 4:
        x, y, across, down = shares
        box = ((x - across / 2) * width, (y - down / 2) * height, across * width, down * height)
        return box, across * down * width * height
    corners = np.array(shares).reshape(-1, 2) * (width, height)
    (x0, y0), (x1, y1) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    following = np.roll(corners, -1, axis=0)
    area = abs(float((corners[:, 0] * following[:, 1] - following[:, 0] * corners[:, 1]).sum())) / 2
    return (x0, y0, x1 - x0, y1 - y0), area


def _wrong(file: str, number: int, line: bytes, reason: str) -> UserError:
    shown = line.strip().decode("utf-8", "backslashreplace")
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return UserError(f"{file} line {number}: '{shown}': {reason}")
