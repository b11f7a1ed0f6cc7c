"""Files in COCO's format, read for training and for evaluation.

Entries that COCO's tools ignore in annotations are skipped and counted. Entries that those tools would fail at, or
silently mix up, raise a one-line error, unless their meaning is clear, which is noted. The page on detection has the
table. Source: pycocotools, and https://cocodataset.org/#format-data.
"""

import math
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

import msgspec
import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.spelling import compose
from ..data.data_warnings import DataWarnings
from ..run_lengths import are_flat, are_plain_polygons, find_box, has_shape, require_segmentation
from .detections import LARGEST_AREA
from .json_lists import JsonElement, elements

_LARGEST_ID = 2**53  # ids pass through programs that store numbers as floats
_LARGEST_SIDE = 2**31 - 1
_NUMBER = re.compile("0|-?[1-9][0-9]{0,15}")  # canonical spelling of an integer
LARGEST = 1e300  # sums of larger numbers may overflow
_EXPECTED = "expected annotations in COCO's format: an object with images, annotations and categories"
Id = int | str


class CocoCategory(msgspec.Struct, gc=False):
    """A category as in the file."""

    of: ClassVar[str] = "categories"
    id: Any = None
    name: Any = None


class CocoImage(msgspec.Struct, gc=False):
    """An image as in the file; the last three fields are LVIS's."""

    of: ClassVar[str] = "images"
    id: Any = None
    height: Any = None
    width: Any = None
    file_name: object = None
    coco_url: object = None
    neg_category_ids: object = None
    not_exhaustive_category_ids: object = None


class CocoAnnotation(msgspec.Struct, gc=False):
    """An object as in the file."""

    of: ClassVar[str] = "annotations"
    id: Any = None
    image_id: Any = None
    category_id: Any = None
    bbox: Any = None
    area: Any = None
    iscrowd: Any = None
    segmentation: Any = None


_Entry = CocoCategory | CocoImage | CocoAnnotation
_KINDS: dict[str, type[_Entry]] = {kind.of: kind for kind in (CocoCategory, CocoImage, CocoAnnotation)}
_decode_annotation = msgspec.json.Decoder(CocoAnnotation).decode


class CocoFile:
    """Categories, images and annotations of a file, whose lists may come in any order.

    A subclass that reads more fields names its types of entries in ``kinds``, and extends ``add_annotation``.

    Attributes:
        categories: id -> category, by ascending id, with normalized ids and names.
        label_map: id of each category -> its position.
        unnamed: ids of the categories without a name in the file; their id is used as name.
        images: normalized, in the file's order; height and width are 0 where the file does not give them.
        positions: id of each image -> its position.
        numbers: id of each object, or its position from 1 if the file has no id.
        owners: position of each object's image, -1 if the file lacks it.
        labels: position of each object's category, -1 if the file lacks it.
        boxes: x, y, width, height of the objects, concatenated; zeros if the file has no box.
        areas: area of each object; NaN if the file has none.
        starts: first byte of each object's text in the file if it has a mask, else 0.
        bytes: length of this text, else 0.
        broken: whether each object has a mask that cannot be used; see ``compare_mask_sizes``, too.
    """

    kinds: ClassVar[Mapping[str, type[_Entry]]] = _KINDS

    def __init__(self, file: str, allows_text_ids: bool = False) -> None:
        """Read the whole file; raise UserError, which names the entry, if it is not in COCO's format."""
        self.file, self.allows_text_ids, self.odd = file, allows_text_ids, DataWarnings(file)
        self.categories: dict[Id, CocoCategory] = {}
        self.images: list[CocoImage] = []
        self.positions: dict[Id, int] = {}
        self.numbers, self.owners, self.labels, self.crowds = array("q"), array("q"), array("q"), array("b")
        self.boxes, self.areas = array("d"), array("d")
        self.starts, self.bytes, self.broken = array("q"), array("q"), array("b")
        self._mask_sizes: dict[int, tuple[int, int]] = {}  # of run lengths in images without a size, by the object
        self.label_map: dict[Id, int] = {}
        self.unnamed: set[Id] = set()
        try:
            lists = elements(file, self.kinds)
            if "" in lists:
                raise UserError(f"{file} is a list, as in files of results; {_EXPECTED}")
            self.has_annotations = "annotations" in lists
            self._read(lists)
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise UserError(f"{file} is not JSON in COCO's annotation format: {error}") from error
        self._note_objects()

    @property
    def has_owner(self) -> np.ndarray:
        """Mask of the objects whose image and category are in the file, bool (objects,)."""
        return (np.array(self.owners) >= 0) & (np.array(self.labels) >= 0)

    @property
    def known_areas(self) -> np.ndarray:
        """Areas of the objects, of their boxes if the file has none, float64 (objects,)."""
        areas, boxes = np.array(self.areas), np.array(self.boxes).reshape(-1, 4)
        return np.where(np.isnan(areas), boxes[:, 2:].prod(axis=1), areas)

    def columns(self) -> list[np.ndarray]:
        """Return numbers, labels, crowd flags, byte lengths and byte starts of all objects."""
        return [np.array(column) for column in (self.numbers, self.labels, self.crowds, self.bytes, self.starts)]

    @property
    def sizes(self) -> np.ndarray:
        """Height and width of the images, int64 (images, 2); 0 where the file does not give them."""
        return np.array([(image.height, image.width) for image in self.images], np.int64).reshape(-1, 2)

    @property
    def federated(self) -> list[Id]:
        """Ids of the images that were not checked for every category, by LVIS's lists."""
        return [image.id for image in self.images if image.neg_category_ids or image.not_exhaustive_category_ids]

    def error(self, number: int, entry: _Entry, name: str, expected: str) -> UserError:
        """Build the error for an entry, or for its field ``name``."""
        field = ""
        if name:
            value = getattr(entry, name)
            field = f" has no {name}" if value is None else f" has {name} {short(value)}"
        entry_id = f" (id {short(entry.id)})" if entry.id is not None and name != "id" else ""
        return UserError(f"{self.file}: {entry.of}[{number}]{entry_id}{field}: {expected}")

    def _read(self, lists: Mapping[str, Iterator[JsonElement]]) -> None:
        for name, add, entries in (
            ("categories", self._add_category, self.categories),
            ("images", self._add_image, self.images),
            ("annotations", self.add_annotation, [True]),
        ):
            for element in lists.get(name, ()):
                add(element)
            if not entries:
                raise UserError(f"{self.file} has no {name}; {_EXPECTED}")
            if name == "categories":
                self.categories = {id_: self.categories[id_] for id_ in in_order(self.categories)}
                self.label_map = {id_: label for label, id_ in enumerate(self.categories)}

    def _note_objects(self) -> None:
        text = "not checked for every category, as in LVIS; COCO's rules count unchecked objects as wrong"
        self.odd.note_all("image", text, self.federated)
        numbers, owners = np.array(self.numbers), np.array(self.owners)
        self.odd.note_all("object", "of an image that the file lacks, skipped", numbers[owners < 0])
        unknown = (owners >= 0) & (np.array(self.labels) < 0)
        self.odd.note_all("object", "of a category that the file lacks, skipped", numbers[unknown])
        values, repeats = np.unique(numbers, return_counts=True)
        text = "shared by several objects: all are used, although COCO's tools mix them up"
        self.odd.note_all("id", text, values[repeats > 1])
        areas, has_owner = self.known_areas, self.has_owner
        text = f"with an area below 0 or above {LARGEST_AREA:g}, excluded from all scores, as by COCO's tools"
        self.odd.note_all("object", text, numbers[has_owner & ((areas < 0) | (areas > LARGEST_AREA))])
        if np.array(self.crowds, bool)[has_owner].all():
            self.odd.note_all("object", "marked as a crowd, as all are: scores are undefined", numbers[has_owner])
        self.odd.note_all("object", "with id 0: counted here, but as not found by COCO's tools", numbers[numbers == 0])

    def _add_category(self, element: JsonElement) -> None:
        number, entry, *_ = element
        id_ = entry.id = self._id(number, entry, "id")
        if type(entry.name) in (int, float):
            entry.name = str(entry.name)
        if entry.name is None or entry.name == "":
            entry.name = f"category {id_}"
            self.unnamed.add(id_)
            self.odd.note("category", "without a name: its id is used", id_)
        if isinstance(entry.name, str):
            entry.name = compose(entry.name)
        if not isinstance(entry.name, str) or not entry.name.strip():
            raise self.error(number, entry, "name", "expected text")
        if id_ in self.categories:
            raise self.error(number, entry, "id", f"{id_} is also the id of category '{self.categories[id_].name}'")
        if any(entry.name == other.name for other in self.categories.values()):
            self.odd.note("category", f"with the name of another category ('{entry.name}')", id_)
        self.categories[id_] = entry

    def _add_image(self, element: JsonElement) -> None:
        number, entry, *_ = element
        id_ = entry.id = self._id(number, entry, "id")
        if id_ in self.positions:
            raise self.error(
                number, entry, "id", f"images[{self.positions[id_]}] has it too; give each image its own id"
            )
        for side in ("height", "width"):
            value = self._number(number, entry, side, 0)
            if not 0 <= value <= _LARGEST_SIDE or value != int(value):
                raise self.error(number, entry, side, "expected an integer number of pixels")
            setattr(entry, side, int(value))
        self.positions[id_] = len(self.images)
        self.images.append(entry)

    def add_annotation(self, element: JsonElement) -> None:
        """Add an object; raise UserError if its entry is wrong."""
        number, entry, start, end = element
        id_ = as_id(entry.id, False)
        if not isinstance(id_, int):
            id_ = number + 1
            self.odd.note("object", "without a numeric id: its position is used", id_)
        elif type(entry.id) is not int:
            self._note_spelling("id of annotations", id_)
        self.numbers.append(id_)
        self.owners.append(self.positions.get(self._id(number, entry, "image_id"), -1))
        self.labels.append(self.label_map.get(self._id(number, entry, "category_id"), -1))
        self.boxes.extend(self.read_box(number, entry, id_))
        entry.area = None if entry.area == [] else entry.area  # VIA's, of a point
        self.areas.append(self._number(number, entry, "area", math.nan))
        if math.isnan(self.areas[-1]):
            self.odd.note(
                "object", "without an area: the area of its box is used, or of its mask if masks are compared", id_
            )
        self.crowds.append(bool(self._number(number, entry, "iscrowd", 0)))
        is_plain = are_plain_polygons(entry.segmentation)  # nearly all masks, which take the shortest time
        has_mask = is_plain or has_shape(entry.segmentation)
        self.starts.append(start if has_mask else 0)
        self.bytes.append(end - start if has_mask else 0)
        self.broken.append(has_mask and not is_plain and not self._check_mask(entry.segmentation))
        if entry.segmentation and not has_mask:
            self.odd.note("object", "with polygons without points, as without a mask", self._locate(-1))
        elif is_plain and are_flat(entry.segmentation):
            is_short = all(len(outline) < 6 for outline in entry.segmentation)
            what = "polygons of fewer than three points" if is_short else "polygons whose points are on a line"
            self.odd.note("object", f"with {what}, whose mask is empty", self._locate(-1))

    def _check_mask(self, segmentation: object) -> bool:
        """Return whether the mask of the last object can be used; note it if not."""
        owner = self.owners[-1]
        height, width = (self.images[owner].height, self.images[owner].width) if owner >= 0 else (0, 0)
        is_known = height > 0 and width > 0
        try:
            size = require_segmentation(segmentation, *((height, width) if is_known else (None, None)))
        except ValueError as error:
            self._note_broken(-1, str(error))
            return False
        if size is not None and not is_known:
            self._mask_sizes[len(self.owners) - 1] = size
        return True

    def compare_mask_sizes(self, sizes: np.ndarray) -> None:
        """Find the run lengths that do not fit images whose size the file does not give, once it was measured.

        ``sizes`` are height and width of all images, int64 (images, 2), 0 if they are unknown.
        """
        for at, size in self._mask_sizes.items():
            height, width = sizes[self.owners[at]].tolist() if self.owners[at] >= 0 else (0, 0)
            if height > 0 and width > 0 and size != (height, width):
                self.broken[at] = True
                self._note_broken(at, f"is of {size[0]} x {size[1]} pixels, the image of {height} x {width}")

    def _note_broken(self, at: int, reason: str) -> None:
        self.odd.note("object", "with a mask that cannot be used", f"{self._locate(at)}, whose segmentation {reason}")

    def _locate(self, at: int) -> str:
        """Return the id of an object by its position, and its image."""
        owner = self.owners[at]
        name = file_name(self.images[owner]) if owner >= 0 else None
        return f"{self.numbers[at]}{f' of {name}' if name else ''}"

    def read_box(self, number: int, entry: CocoAnnotation, id_: int) -> Sequence[float]:
        """Return x, y, width and height of an object, zeros without any; raise UserError if they are wrong."""
        box: Any = entry.bbox
        if box is None or box == []:
            made = self.make_box(number, entry)
            if made is None:
                self.odd.note("object", "without a box: never learned or matched", id_)
                return (0.0, 0.0, 0.0, 0.0)
            box, source = list(made[0]), made[1]
            entry.area = entry.area or None  # such as CVAT's 0
            self.odd.note("object", f"without a box: {source} is used", id_)
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_finite, box)):
            raise self.error(number, entry, "bbox", "expected four finite numbers: x, y, width, height")
        if box[2] <= 0 or box[3] <= 0:
            self.odd.note("object", "whose box has no area, skipped in training and never found by boxes", id_)
        return box

    def make_box(self, number: int, entry: CocoAnnotation) -> tuple[Sequence[float], str] | None:
        """Return the box of an object without one, and what it is; None: without a mask. UserError: a wrong mask."""
        if not has_shape(entry.segmentation):
            return None
        try:
            return find_box(entry.segmentation), "the box around its mask"
        except ValueError as error:
            expected = f"without bbox, and its segmentation {error}; write one of them, or remove the object"
            raise self.error(number, entry, "", expected) from None

    def _id(self, number: int, entry: _Entry, name: str) -> Id:
        value = getattr(entry, name)
        id_ = as_id(value, self.allows_text_ids)
        if id_ is None:
            raise self.error(number, entry, name, "expected an integer")
        if id_ is not value:
            self._note_spelling(f"{name} of {entry.of}", id_)
        return id_

    def _note_spelling(self, field: str, id_: object) -> None:
        self.odd.note("number", f"written as a string or with a decimal point ({field})", id_)

    def _number(self, number: int, entry: _Entry, name: str, missing: float) -> float:
        value = getattr(entry, name)
        if value is None:
            return missing
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self.error(number, entry, name, "expected a number") from None
            self._note_spelling(f"{name} of {entry.of}", entry.id)
        if not isinstance(value, (bool, int, float)) or not abs(value) < LARGEST:
            raise self.error(number, entry, name, "expected a finite number")
        return value


def segmentation_at(stream: BinaryIO, start: int, size: int, number: int) -> Any:
    """Read the mask of object ``number`` from byte ``start`` of a file; raise UserError if the file has changed."""
    try:
        entry = _decode_annotation(os.pread(stream.fileno(), size, start))
        if as_id(entry.id, False) in (number, None):  # None: it has no id, its position is used
            return entry.segmentation
    except ValueError:
        pass
    raise UserError(f"{stream.name} has changed since this run started: restart the run")


def file_name(entry: CocoImage) -> str | None:
    """Return an entry's ``file_name`` with slashes, or folder and file of LVIS's ``coco_url``; None: neither."""
    name = entry.file_name
    if name is None and isinstance(entry.coco_url, str):
        name = "/".join(entry.coco_url.split("/")[-2:])
    if not isinstance(name, str) or not name or "\0" in name:
        return None
    return name.replace("\\", "/")


def in_order(ids: Iterable[Id]) -> list[Id]:
    """Sort ids in ascending order; if one is a string, sort all as strings."""
    ids = list(ids)
    return sorted(ids, key=str if any(isinstance(id_, str) for id_ in ids) else None)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def as_id(value: object, allows_text_ids: bool) -> Id | None:
    """Normalize an id: an integer, also if it is written as a string or with a decimal point; None: not an id.

    With ``allows_text_ids``, other strings are ids too, also other spellings of a number, such as "01" and "1".
    """
    if type(value) is int:
        return value if abs(value) <= _LARGEST_ID else None
    if not isinstance(value, (str, float)):
        return None
    if allows_text_ids and isinstance(value, str):
        is_number = _NUMBER.fullmatch(value) and abs(int(value)) <= _LARGEST_ID
        return int(value) if is_number else value or None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number % 1 == 0 and abs(number) <= _LARGEST_ID else None


def short(value: object) -> str:
    """Format a value for a message: short, on one line."""
    text = "null" if value is None else ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
