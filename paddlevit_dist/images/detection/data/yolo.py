"""Images with boxes in YOLO's layout: a text file for each image, with shares of its width and height."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ....runtime.errors import UserError
from ....runtime.text_files import read_bytes
from ...data.annotated_files import readable, stamp
from ...data.data_warnings import DataWarnings, count
from ...data.formats import stems
from ...data.reading import require_folder
from ...data.yolo_files import LAYOUT, find_folder, find_label_file, list_images, parse_names, read_description
from ...run_lengths import outline
from ..settings import DetectionSettings
from .indexed_images import (
    OBJECT,
    VERSION,
    AnnotationSource,
    IndexedDetectionImages,
    SourceFacts,
    ensure_annotation_index,
    measure,
)

_SLACK = 0.01  # shares may pass 0 and 1 by so much: rounding
_LARGEST_LABELS = 1 << 24


class Yolo(IndexedDetectionImages):
    """Images whose boxes are lines ``class x y width height`` of text files, shares of the image from 0 to 1 with x
    and y of the box's middle, or outlines ``class x1 y1 x2 y2 ...``, whose masks are polygons.

    The labels of images/train/a.jpg are in labels/train/a.txt; an image without such a file has no boxes. Classes are
    those of data.yaml, or the lines of classes.txt; their numbers are their categories'.
    """

    layout = LAYOUT

    def __init__(self, data_path: str | None, split: str, cache_folder: Path, turned: bool = True) -> None:
        """Serve ``split``.

        Args:
            turned: boxes were drawn on the images as their EXIF orientation turns them, as most programs show them.
        Raises:
            UserError: the layout is another, or a file of labels is not as YOLO's are.
        """
        self.split = split
        root = require_folder(data_path, "yolo", LAYOUT)
        described = read_description(root)
        names = described.names if described else parse_names(root)
        images = list_images(root, split, described)
        labels = [find_label_file(image) for image in images]
        key = stamp(f"yolo {VERSION} {names} {turned}\n", [*images, *labels])
        index = ensure_annotation_index(cache_folder, f"yolo-{split}", key, lambda: _read(root, images, names, turned))
        super().__init__(root, index, "its labels' index", turned)
        where = described.file if described else root
        self.notices = [
            f"{split}: {count(len(images), 'image')} of {where}",
            *(described.notices if described else ()),
            *self.notices,
        ]

    @classmethod
    def open(cls, config: DetectionSettings, split: str, cache_folder: Path) -> "Yolo":
        return cls(config.DATA.DATA_PATH, split, cache_folder, config.DATA.EXIF_ROTATE is not False)

    @staticmethod
    def has_validation(data_path: str) -> bool:
        """Whether data.yaml names images for validation, or a folder of them is there."""
        root = require_folder(data_path, "yolo", LAYOUT)
        described = read_description(root)
        if described is not None and described.places:
            return "val" in described.places
        return find_folder(root, "val") is not None

    def masks(self, index: int) -> list[Any]:
        height, width = self.size(index)
        rows = self._index.get_objects(index)
        content = (
            read_bytes(find_label_file(self.describe(index)), _LARGEST_LABELS) if (rows["bytes"] > 0).any() else b""
        )
        found = []
        for row in rows:
            line = content[int(row["start"]) : int(row["start"]) + int(row["bytes"])]
            corners = np.array(line.split()[1:], dtype=np.float64).reshape(-1, 2) * (width, height)
            found.append([corners.reshape(-1).tolist()] if row["bytes"] else outline(row["box"].tolist()))
        return found


def _read(root: str, images: list[str], names: dict[int, str], turned: bool) -> AnnotationSource:
    sizes = measure(images, turned)
    label_of = {number: label for label, number in enumerate(names)}
    odd = DataWarnings()
    found = [np.zeros(0, OBJECT)] * len(images)
    for position, image in enumerate(
        tqdm(images, desc="reading labels", unit="file", delay=1.0, disable=None, leave=False)
    ):
        file = find_label_file(image)
        if not os.path.isfile(file):
            odd.note("image", "without a file of labels: no boxes", image)
            continue
        found[position] = np.array(_rows(file, sizes[position].tolist(), label_of, odd), OBJECT)
    has_masks = any((rows["bytes"] > 0).any() for rows in found)
    about = SourceFacts(list(names.values()), list(names), has_masks, True, odd.lines())
    return AnnotationSource.of(about, root, images, stems(images), sizes, found)


def _rows(file: str, size: Sequence[int], label_of: dict[int, int], odd: DataWarnings) -> list[tuple[Any, ...]]:
    """The objects in a file of labels of an image of this height and width, as rows of OBJECT."""
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
            raise _wrong(file, number, line, "expected shares of the image from 0 to 1, not pixels")
        if not all(-_SLACK <= share <= 1 + _SLACK for share in shares):
            odd.note("line", "with a share beyond 0 to 1: cut off for training", file)
        if len(shares) == 4 and min(shares[2:]) <= 0:
            odd.note("box", "without an area: not learned", file)
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
