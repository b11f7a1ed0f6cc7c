"""Images with boxes in YOLO's layout: a text file for each image, with coordinates as fractions of its size."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ....core.runtime.errors import UserError
from ....core.runtime.files import readable
from ....core.runtime.printing import count
from ....core.runtime.text_files import read_bytes, to_utf8
from ...data.annotated_files import stamp
from ...data.data_warnings import DataWarnings
from ...data.formats import stems
from ...data.yolo_files import LAYOUT, find_folder, find_label_file, list_images, open_yolo, parse_names
from ...run_lengths import outline
from ..settings import DetectionSettings
from .indexed_images import (
    OBJECT,
    VERSION,
    AnnotationSource,
    IndexedDetectionImages,
    SourceFacts,
    ensure_annotation_index,
)
from .stored_sizes import measure

_TOLERANCE = 0.01  # fractions may exceed 0 and 1 by this, through rounding
_LARGEST_LABELS = 1 << 24


class Yolo(IndexedDetectionImages):
    """Images whose labels are lines of text files in YOLO's format.

    A line is ``class x y width height`` for a box, in fractions of the image from 0 to 1, with x and y of the box's
    center; or ``class x1 y1 x2 y2 ...`` for an outline, whose mask is a polygon. If data.yaml has ``kpt_shape``, each
    line is a box with keypoints, which are not read here.

    The labels of images/train/a.jpg are in labels/train/a.txt; an image without such a file has no boxes. Classes are
    listed in data.yaml or classes.txt; their numbers are the category ids.
    """

    layout = LAYOUT
    #: name of the dataset, in messages and file names of its index
    name = "yolo"

    def __init__(self, data_path: str | None, split: str, cache_folder: Path, turned: bool = True) -> None:
        """Open ``split``, with boxes on images ``turned`` by EXIF or not; most programs display them turned.

        Raises:
            UserError: the folder has another layout, or a label file is not in YOLO's format.
        """
        self.split = split
        root, description = open_yolo(data_path, self.name)
        self._described = description.file if description else root
        names = description.names if description else parse_names(root)
        images = list_images(root, split, description)
        labels = [find_label_file(image) for image in images]
        keypoints = description.keypoint_values if description else 0
        key = stamp(f"{self.name} {VERSION} {names} {turned} {keypoints}\n", [*images, *labels])
        index = ensure_annotation_index(
            cache_folder, f"{self.name}-{split}", key, lambda: self.read_source(root, images, names, turned, keypoints)
        )
        super().__init__(root, index, "its labels' index", turned)
        source = description.file if description else root
        self.notices = [
            f"{split}: {count(len(images), 'image')} of {source}",
            *(description.notices if description else ()),
            *self.notices,
        ]

    def read_source(
        self, root: str, images: list[str], names: dict[int, str], turned: bool, keypoints: int
    ) -> AnnotationSource:
        """Read all labels as ``read_yolo`` does; called only if their index is not in the cache folder."""
        return read_yolo(root, images, names, turned, keypoints)[0]

    @classmethod
    def open(cls, config: DetectionSettings, split: str, cache_folder: Path) -> "Yolo":
        """Open the split of a configuration."""
        return cls(config.DATA.DATA_PATH, split, cache_folder, config.DATA.EXIF_ROTATE is not False)

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether data.yaml names validation images, or a folder of them exists."""
        root, description = open_yolo(data_path, "yolo")
        if description is not None and description.places:
            return "val" in description.places
        return find_folder(root, "val") is not None

    def masks(self, index: int) -> list[Any]:
        """Return the masks of image ``index``, read from its label file."""
        height, width = self.size(index)
        rows = self._index.get_objects(index)
        content = (
            to_utf8(read_bytes(find_label_file(self.describe(index)), _LARGEST_LABELS))
            if (rows["bytes"] > 0).any()
            else b""
        )
        masks = []
        for row in rows:
            line = content[int(row["start"]) : int(row["start"]) + int(row["bytes"])]
            corners = np.array(line.split()[1:], dtype=np.float64).reshape(-1, 2) * (width, height)
            masks.append([corners.reshape(-1).tolist()] if row["bytes"] else outline(row["box"].tolist()))
        return masks


def read_yolo(
    root: str, images: list[str], names: dict[int, str], turned: bool, keypoints: int = 0
) -> tuple[AnnotationSource, np.ndarray]:
    """Read the labels of all images.

    Also return the ``keypoints`` numbers that follow the box of each object, float64 (objects, keypoints), zeros where
    there are none.
    """
    sizes = measure(images, turned)
    label_map = {number: label for label, number in enumerate(names)}
    odd = DataWarnings()
    odd.note_all("image", "that cannot be read: its boxes are lost", np.array(images)[sizes[:, 0] == 0].tolist())
    objects, values = [np.zeros(0, OBJECT)] * len(images), list[list[float]]()
    for position, image in enumerate(
        tqdm(images, desc="reading labels", unit="file", delay=1.0, disable=None, leave=False)
    ):
        file = find_label_file(image)
        if not os.path.isfile(file):
            odd.note("image", "without a label file, taken as without boxes", image)
            continue
        rows, more = read_rows(file, sizes[position].tolist(), label_map, odd, keypoints)
        objects[position] = np.array(rows, OBJECT)
        values += more
    has_masks = any((rows["bytes"] > 0).any() for rows in objects)
    about = SourceFacts(list(names.values()), list(names), has_masks, True, odd.lines())
    source = AnnotationSource.from_files(about, root, images, stems(images), sizes, objects)
    return source, np.array(values, np.float64).reshape(len(values), keypoints)


def read_rows(
    file: str, size: Sequence[int], label_map: dict[int, int], odd: DataWarnings, keypoints: int = 0
) -> tuple[list[tuple[Any, ...]], list[list[float]]]:
    """Return the objects in the label file of an image of this height and width, as rows of OBJECT, and keypoints."""
    with readable(file):
        content = to_utf8(read_bytes(file, _LARGEST_LABELS))
    rows: list[tuple[Any, ...]] = []
    more: list[list[float]] = []
    known_lines = set()
    start = 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        words = line.split()
        begin, start = start, start + len(line)
        if not words:
            continue
        try:
            values = _parse_numbers(words, keypoints)
        except ValueError as error:
            raise _wrong(file, number, line, str(error)) from None
        label = label_map.get(int(values[0])) if values[0] == values[0] and abs(values[0]) < 1e9 else None
        if label is None or values[0] != int(values[0]):
            reason = f"there is no such class: data.yaml or classes.txt names {len(label_map)}, from 0 on"
            raise _wrong(file, number, line, reason)
        fractions = values[1:5] if keypoints else values[1:]
        if not fractions:
            odd.note("line", "with a class alone, an outline without points, skipped", file)
            continue
        if not all(abs(fraction) < 2 for fraction in fractions):
            raise _wrong(file, number, line, "expected fractions of the image from 0 to 1, not pixels")
        if not all(-_TOLERANCE <= fraction <= 1 + _TOLERANCE for fraction in fractions):
            odd.note("line", "with a fraction outside 0 to 1, clipped for training", file)
        if len(fractions) == 4 and min(fractions[2:]) <= 0:
            odd.note("box", "without an area, skipped in training", file)
        if (label, *fractions) in known_lines:
            odd.note("line", "repeated in the same file, kept", file)
        known_lines.add((label, *fractions))
        text_range = (len(line), begin) if len(fractions) > 4 else (0, 0)
        rows.append((*box_and_area(fractions, *size), 0, label, False, *text_range))
        more.append(values[5:] or [0.0] * keypoints if keypoints else [])
    return rows, more


def _parse_numbers(words: Sequence[bytes], keypoints: int) -> list[float]:
    """Parse a line's class and fractions, and keypoints; raise ValueError with the reason if it is wrong."""
    try:
        values = [float(word) for word in words]
    except ValueError:
        raise ValueError("expected numbers: class x y width height") from None
    if keypoints and len(values) not in (5, 5 + keypoints):
        expected = f"expected class x y width height and {keypoints} numbers of keypoints, as kpt_shape says"
        raise ValueError(f"{len(values)} numbers; {expected}")
    if keypoints:
        return values
    if len(values) not in (1, 5) and (len(values) < 7 or len(values) % 2 == 0):
        advice = " as in results; remove the last one, the score" if len(values) == 6 else ""
        raise ValueError(f"{len(values)} numbers{advice}; expected class x y width height")
    return values


def box_and_area(fractions: list[float], height: int, width: int) -> tuple[tuple[float, ...], float]:
    """Return a line's box in pixels, x, y, width, height, and the area of its outline or else of the box."""
    if len(fractions) == 4:
        x, y, across, down = fractions
        box = ((x - across / 2) * width, (y - down / 2) * height, across * width, down * height)
        return box, across * down * width * height
    corners = np.array(fractions).reshape(-1, 2) * (width, height)
    (x0, y0), (x1, y1) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    next_corners = np.roll(corners, -1, axis=0)
    area = abs(float((corners[:, 0] * next_corners[:, 1] - next_corners[:, 0] * corners[:, 1]).sum())) / 2
    return (x0, y0, x1 - x0, y1 - y0), area


def _wrong(file: str, number: int, line: bytes, reason: str) -> UserError:
    excerpt = line.strip().decode("utf-8", "backslashreplace")
    excerpt = excerpt if len(excerpt) <= 80 else f"{excerpt[:77]}..."
    return UserError(f"{file} line {number}: '{excerpt}': {reason}")
