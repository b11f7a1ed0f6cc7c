"""A file of annotations in COCO's format, read once from front to back.

What COCO's own tools ignore is left out and counted; what they would fail at, or silently mix up, is an error of one
line. Source: pycocotools, and https://cocodataset.org/#format-data.
"""

from __future__ import annotations

import math
import os
from array import array
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
from tqdm import tqdm

from ....errors import UserError
from ..json_stream import Element, elements
from .annotation_index import PICTURE, About, Columns, Source, positions_of
from .detection_dataset import count
from .measuring import measure

_LARGEST_ID = 2**53  # ids pass through programs that keep numbers as floats
_LARGEST_SIDE = 2**31 - 1
_TICK_BYTES = 1 << 22


def read_coco(file: str, folder: str, turned: bool) -> Source:
    """The pictures, objects and categories of a file.

    Args:
        folder: of the pictures; only needed where the file does not say how large they are.
        turned: they are measured as their EXIF orientation turns them.
    Raises:
        UserError: it cannot be read, or is not as COCO describes it; the message names the file and the entry.
    """
    reader = _Reader(file)
    size = os.path.getsize(file) if os.path.isfile(file) else 0
    try:
        with tqdm(
            total=size,
            desc=f"reading {Path(file).name}",
            unit="B",
            unit_scale=True,
            delay=1.0,
            disable=None,
            leave=False,
        ) as bar:
            for element in elements(file):
                reader.add(element)
                if element.end - bar.n > _TICK_BYTES:
                    bar.update(element.end - bar.n)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{file} is not JSON as COCO's annotations are: {error}") from error
    return reader.source(folder, turned)


class _Reader:
    """Gathers the entries of a file in whatever order its parts come."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.categories: Dict[int, str] = {}
        self.paths: List[bytes] = []
        self.ids, self.heights, self.widths = array("q"), array("q"), array("q")
        self.columns = Columns()
        self.is_labelled = False
        self.sections: set = set()
        self.odd: Dict[Tuple[str, str], List[int]] = {}  # what was odd -> how often, and the first id

    def add(self, element: Element) -> None:
        self.sections.add(element.name)
        if element.name in ("images", "annotations", "categories"):
            if element.number < 0 or not isinstance(element.value, dict):
                raise self._error(element, "", "expected a list of objects")
            getattr(self, f"_add_{element.name}")(element, element.value)
        elif element.name == "" and element.number == 0:
            raise UserError(
                f"{self.file} is a list, as files of results are; expected annotations: an object with images, "
                "annotations and categories"
            )

    def _add_categories(self, element: Element, entry: Dict[str, Any]) -> None:
        number = self._id(element, entry, "id")
        name = entry.get("name", str(number))
        if not isinstance(name, str) or not name.strip():
            raise self._error(element, "name", "expected text")
        if number in self.categories:
            raise self._error(element, "id", f"{number} is also that of category '{self.categories[number]}'")
        if name in self.categories.values():
            self._note("category", f"with the name of another one ('{name}')", number)
        self.categories[number] = name

    def _add_images(self, element: Element, entry: Dict[str, Any]) -> None:
        self.ids.append(self._id(element, entry, "id"))
        name = file_name(entry)
        if name is None:
            raise self._error(element, "file_name", "expected the name of a file")
        if "file_name" not in entry:
            self._note("picture", "without file_name: the end of coco_url is taken", self.ids[-1])
        elif "\\" in entry["file_name"]:
            self._note("picture", "whose file_name has backslashes: taken for slashes", self.ids[-1])
        try:
            self.paths.append(os.fsencode(name))
        except UnicodeEncodeError as error:
            raise self._error(element, "file_name", "expected the name of a file") from error
        for side, sides in (("height", self.heights), ("width", self.widths)):
            value = self._number(element, entry, side, 0)
            if not 0 <= value <= _LARGEST_SIDE or value != int(value):
                raise self._error(element, side, "expected a whole number of pixels")
            sides.append(int(value))

    def _add_annotations(self, element: Element, entry: Dict[str, Any]) -> None:
        self.is_labelled = True
        number = self._id(element, entry, "id", element.number + 1)
        box = self._box(element, entry, number)
        area = self._number(element, entry, "area", math.nan)
        if not math.isfinite(area):
            self._note("object", "without an area: that of the box is taken", number)
            area = box[2] * box[3]
        shape = entry.get("segmentation")
        has_mask = isinstance(shape, dict) or (isinstance(shape, list) and len(shape) > 0)
        self.columns.add(
            self._id(element, entry, "image_id"),
            self._id(element, entry, "category_id"),
            box,
            area,
            number,
            bool(self._number(element, entry, "iscrowd", 0)),
            (element.start, element.end - element.start) if has_mask else (0, 0),
        )

    def _box(self, element: Element, entry: Dict[str, Any], number: int) -> Sequence[float]:
        box = entry.get("bbox")
        if box is None or box == []:
            self._note("object", "without a box: never learnt or found", number)
            return (0.0, 0.0, 0.0, 0.0)
        if (
            not isinstance(box, list)
            or len(box) != 4
            or not all(type(value) in (int, float) and math.isfinite(value) for value in box)
        ):
            raise self._error(element, "bbox", "expected four finite numbers: x, y, width, height")
        if box[2] <= 0 or box[3] <= 0:
            self._note("object", "whose box has no area: not learnt", number)
        return box

    def _id(self, element: Element, entry: Dict[str, Any], name: str, missing: Optional[int] = None) -> int:
        value = entry.get(name, missing)
        if type(value) is int and abs(value) <= _LARGEST_ID:
            return value
        if entry.get(name) is None and missing is not None:
            self._note("object", f"without {name}: its position is taken", missing)
            return missing
        try:
            number = float(value) if isinstance(value, (str, float)) else math.nan
        except ValueError:
            number = math.nan
        if number != number or number != int(min(max(number, -1e300), 1e300)) or abs(number) > _LARGEST_ID:
            raise self._error(element, name, "expected a whole number")
        self._note("number", f"written as text or with a point ({name} of {element.name})", int(number))
        return int(number)

    def _number(self, element: Element, entry: Dict[str, Any], name: str, missing: float) -> float:
        value = entry.get(name)
        if value is None:
            return missing
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                value = None
        if not isinstance(value, (bool, int, float)) or abs(value) > 1e300:
            raise self._error(element, name, "expected a number")
        return value

    def _error(self, element: Element, name: str, expected: str) -> UserError:
        where = (
            f"{self.file}: {element.name}[{element.number}]" if element.number >= 0 else f"{self.file}: {element.name}"
        )
        entry = element.value if isinstance(element.value, dict) else {}
        shown = ""
        if name:
            shown = f" has no {name}" if name not in entry else f" has {name} {_short(entry[name])}"
        number = f" (id {_short(entry['id'])})" if "id" in entry and name != "id" else ""
        return UserError(f"{where}{number}{shown}: {expected}")

    def _note(self, kind: str, text: str, number: int) -> None:
        self.odd.setdefault((kind, text), [0, number])[0] += 1

    def source(self, folder: str, turned: bool) -> Source:
        """All that was read, in the form of the index."""
        for section in ("images", "categories"):
            if section not in self.sections and not (section == "images" and self.paths):
                raise UserError(
                    f"{self.file} has no {section}; expected annotations in COCO's format: an object with images, "
                    "annotations and categories"
                )
        ids = np.array(self.ids, dtype=np.int64)
        self._require_different(ids)
        pictures = np.zeros(len(ids), PICTURE)
        pictures["id"], pictures["height"], pictures["width"] = ids, self.heights, self.widths
        is_measured = self._measure(pictures, folder, turned)
        category_ids = np.array(sorted(self.categories), dtype=np.int64)
        owners = positions_of(np.array(self.columns.pictures, dtype=np.int64), ids)
        labels = positions_of(np.array(self.columns.categories, dtype=np.int64), category_ids)
        objects = self.columns.rows(labels)
        kept = (owners >= 0) & (labels >= 0)
        self._note_left_out(objects["id"], owners, labels)
        self._note_odd_boxes(objects[kept], pictures[owners[kept]])
        has_masks = bool((objects["bytes"][kept] > 0).any())
        if has_masks:
            self._note_all("object", "without a mask: the box is taken", objects[kept & (objects["bytes"] == 0)]["id"])
        about = About(
            [self.categories[number] for number in category_ids.tolist()],
            category_ids.tolist(),
            has_masks,
            "annotations" in self.sections,
            [self._told(*what, *found) for what, found in self.odd.items()],
            is_measured,
        )
        return Source(about, self.paths, pictures, owners[kept], objects[kept])

    def _require_different(self, ids: np.ndarray) -> None:
        values, first, numbers = np.unique(ids, return_index=True, return_counts=True)
        if len(values) < len(ids):
            twice = int(numbers.argmax())
            places = np.flatnonzero(ids == values[twice])[:2].tolist()
            names = [os.fsdecode(self.paths[place]) for place in places]
            raise UserError(
                f"{self.file}: images[{places[0]}] ({names[0]}) and images[{places[1]}] ({names[1]}) both have id "
                f"{values[twice]}: expected a number of its own for each picture; "
                f"{len(ids) - len(values):,} of {len(ids):,} are taken"
            )
        if len(set(self.paths)) < len(self.paths):
            seen: set = set()
            again = [number for path, number in zip(self.paths, self.ids) if path in seen or seen.add(path)]
            self._note_all("picture", "whose file another one has too", np.array(again))

    def _measure(self, pictures: np.ndarray, folder: str, turned: bool) -> bool:
        unknown = np.flatnonzero((pictures["height"] <= 0) | (pictures["width"] <= 0))
        if len(unknown):
            files = [os.path.join(folder, os.fsdecode(self.paths[row])) for row in unknown.tolist()]
            sizes = measure(files, turned)
            pictures["height"][unknown], pictures["width"][unknown] = sizes[:, 0], sizes[:, 1]
            self._note_all("picture", "without height or width: both were measured", pictures["id"][unknown])
        return len(unknown) > 0

    def _note_left_out(self, numbers: np.ndarray, owners: np.ndarray, labels: np.ndarray) -> None:
        self._note_all("object", "of a picture that the file does not have: left out", numbers[owners < 0])
        self._note_all(
            "object", "of a category that the file does not have: left out", numbers[(owners >= 0) & (labels < 0)]
        )
        values, repeats = np.unique(numbers, return_counts=True)
        self._note_all("id", "shared by several objects: all of these are kept", values[repeats > 1])

    def _note_odd_boxes(self, objects: np.ndarray, pictures: np.ndarray) -> None:
        box = objects["box"]
        right, bottom = box[:, 0] + box[:, 2], box[:, 1] + box[:, 3]
        is_box = (box[:, 2] > 0) & (box[:, 3] > 0)
        outside = (right <= 0) | (bottom <= 0) | (box[:, 0] >= pictures["width"]) | (box[:, 1] >= pictures["height"])
        beyond = (
            (box[:, 0] < -1) | (box[:, 1] < -1) | (right > pictures["width"] + 1) | (bottom > pictures["height"] + 1)
        )
        self._note_all("object", "with a box outside the picture: not learnt", objects["id"][is_box & outside])
        self._note_all(
            "object",
            "with a box that reaches beyond the picture by more than a pixel: cut off for training",
            objects["id"][is_box & beyond & ~outside],
        )

    def _note_all(self, kind: str, text: str, numbers: np.ndarray) -> None:
        if len(numbers):
            self.odd[kind, text] = [len(numbers), int(numbers[0])]

    def _told(self, kind: str, text: str, number: int, first: int) -> str:
        several = "categories" if kind == "category" else f"{kind}s"
        return f"{self.file} has {count(number, kind, several)} {text}, as {first}"


def file_name(entry: Dict[str, Any]) -> Optional[str]:
    """The file of a picture, relative to the folder of pictures: as the entry has it, with slashes; or the folder and
    file at the end of LVIS's ``coco_url``. None: it has neither."""
    name = entry.get("file_name")
    if name is None and isinstance(entry.get("coco_url"), str):
        name = "/".join(entry["coco_url"].split("/")[-2:])
    if not isinstance(name, str) or not name or "\0" in name:
        return None
    return name.replace("\\", "/")


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
