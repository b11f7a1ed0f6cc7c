"""Files in COCO's format, read for training and for evaluation alike.

What COCO's own tools ignore in annotations is left out and counted; what they would fail at, or silently mix up, is an
error of one line, unless there is no doubt what is meant, which is noted. The page on detection has the table. Source:
pycocotools, and https://cocodataset.org/#format-data.
"""

import math
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, NamedTuple

import msgspec
import numpy as np
from tqdm import tqdm

from ...runtime.errors import UserError
from ...runtime.files import read_regular
from ..data.data_warnings import DataWarnings, count

_LARGEST_ID = 2**53  # ids pass through programs that keep numbers as floats
_LARGEST_SIDE = 2**31 - 1
_NUMBER = re.compile("0|-?[1-9][0-9]{0,15}")  # a text that only one number is written as
_SHARES_SLACK, _SMALLEST_IMAGE = 0.05, 8  # shares may pass 0 and 1; an image of few pixels may have such boxes
_FEWEST_BEYOND = 0.25  # of boxes anywhere in an image, three quarters
LARGEST = 1e300  # sums of larger numbers may no longer be finite
_EXPECTED = "expected annotations in COCO's format: an object with images, annotations and categories"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WHOLE = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
Id = int | str
Place = str | os.PathLike[str]


class JsonElement(NamedTuple):
    """An element of a list in a JSON file.

    Attributes:
        number: position in its list, from 0.
        value: of the kind that was asked for.
        start, end: its first byte in the file, and the one after its last.
    """

    number: int
    value: Any
    start: int
    end: int


def elements(path: Place, kinds: Mapping[str, Any]) -> dict[str, Iterator[JsonElement]]:
    """The elements of lists in the outermost object of a file, or of the outermost list, which is called "". Only the
    element at hand is in memory as Python objects: COCO's annotations are 450 MB of text, which would take 3 GB.

    Args:
        kinds: name of each list that is read where it is there -> kind of its elements, as msgspec checks it.
    Raises:
        OSError: it cannot be read.
        ValueError: not JSON, which has no NaN or Infinity, not UTF-8, or neither an object nor a list; also while the
            elements are read.
    """
    content = read_regular(path)
    text = memoryview(content)[len(_BYTE_ORDER_MARK) if content.startswith(_BYTE_ORDER_MARK) else 0 :]
    try:
        whole = _WHOLE.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    members = whole if isinstance(whole, dict) else {"": msgspec.Raw(text)}
    first_byte, label = _address(content), f"reading {os.path.basename(path)}"
    return {
        name: _elements(name, member, first_byte, msgspec.json.Decoder(kinds.get(name, Any)).decode, label)
        for name, member in members.items()
        if name in kinds or not name
    }


def _elements(
    name: str, member: Any, first_byte: int, decode: Callable[[Any], Any], label: str
) -> Iterator[JsonElement]:
    if name and bytes(memoryview(member)[:1]) != b"[":
        raise ValueError(f"{name}: expected a list of objects")
    parts = _LIST.decode(member)
    for number, part in enumerate(tqdm(parts, desc=f"{label} {name}".rstrip(), delay=1.0, disable=None, leave=False)):
        try:
            value = decode(part)
        except ValueError as error:
            raise ValueError(f"{name}[{number}]: {error}") from None
        start = _address(part) - first_byte
        yield JsonElement(number, value, start, start + memoryview(part).nbytes)


def _address(content: Any) -> int:
    return np.frombuffer(content, np.uint8).__array_interface__["data"][0] if content else 0


class CocoCategory(msgspec.Struct, gc=False):
    """A category as a file has it."""

    of: ClassVar[str] = "categories"
    id: Any = None
    name: Any = None


class CocoImage(msgspec.Struct, gc=False):
    """An image as a file has it; the last three are LVIS's."""

    of: ClassVar[str] = "images"
    id: Any = None
    height: Any = None
    width: Any = None
    file_name: Any = None
    coco_url: Any = None
    neg_category_ids: Any = None
    not_exhaustive_category_ids: Any = None


class CocoAnnotation(msgspec.Struct, gc=False):
    """An object as a file has it."""

    of: ClassVar[str] = "annotations"
    id: Any = None
    image_id: Any = None
    category_id: Any = None
    bbox: Any = None
    area: Any = None
    iscrowd: Any = None
    segmentation: Any = None


_KINDS = {kind.of: kind for kind in (CocoCategory, CocoImage, CocoAnnotation)}
_decode_annotation = msgspec.json.Decoder(CocoAnnotation).decode


class CocoFile:
    """A file's categories, its images and its annotations, in whatever order these lists come.

    Attributes:
        takes_texts: ids of images and categories may be texts.
        odd: what was odd, to be told.
        categories: by id, ascending; their ids and names are as they are meant.
        label_of: position of each category, by its id.
        unnamed: ids of the categories that have no name in the file, and are called by their id.
        images: as they come, likewise; height and width are 0 where the file does not say.
        positions: of the images, by their ids.
        has_annotations: the file has a list of annotations, perhaps an empty one.
        numbers: of each object its id; its position, from 1, where the file has none.
        owners, labels: positions of its image and of its category, -1 where the file does not have these.
        boxes: x, y, width, height, one object after the other; zeros where the file has none.
        areas: NaN where the file has none.
        crowds: whether it is one.
        starts, bytes: of its text in the file, if it has a mask; else 0.
    """

    def __init__(self, file: str, takes_texts: bool = False) -> None:
        """Read the whole file.

        Raises:
            UserError: it cannot be read, or is not as COCO describes it; the message names the file and the entry.
        """
        self.file, self.takes_texts, self.odd = file, takes_texts, DataWarnings(file)
        self.categories: dict[Id, CocoCategory] = {}
        self.images: list[CocoImage] = []
        self.positions: dict[Id, int] = {}
        self.numbers, self.owners, self.labels, self.crowds = array("q"), array("q"), array("q"), array("b")
        self.boxes, self.areas = array("d"), array("d")
        self.starts, self.bytes = array("q"), array("q")
        self.label_of: dict[Id, int] = {}
        self.unnamed: set[Id] = set()
        try:
            lists = elements(file, _KINDS)
            if "" in lists:
                raise UserError(f"{file} is a list, as files of results are; {_EXPECTED}")
            self.has_annotations = "annotations" in lists
            self._read(lists)
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise UserError(f"{file} is not JSON as COCO's annotations are: {error}") from error
        self._note_objects()

    @property
    def kept(self) -> np.ndarray:
        """bool (objects,): the file has their image and their category."""
        return (np.array(self.owners) >= 0) & (np.array(self.labels) >= 0)

    def columns(self) -> list[np.ndarray]:
        """Of all objects: numbers, labels, whether crowds, bytes and starts of their texts."""
        return [np.array(one) for one in (self.numbers, self.labels, self.crowds, self.bytes, self.starts)]

    @property
    def sizes(self) -> np.ndarray:
        """int64 (images, 2), height and width; 0 where the file does not say."""
        return np.array([(one.height, one.width) for one in self.images], np.int64).reshape(-1, 2)

    @property
    def federated(self) -> list[Id]:
        """The images that were not checked for every category, as LVIS's lists say."""
        return [one.id for one in self.images if one.neg_category_ids or one.not_exhaustive_category_ids]

    def error(self, number: int, entry: Any, name: str, expected: str) -> UserError:
        """Say what is wrong with an entry, by its position in its list, or with what it has of that name."""
        value = getattr(entry, name) if name else None
        shown = "" if not name else f" has no {name}" if value is None else f" has {name} {short(value)}"
        known = f" (id {short(entry.id)})" if entry.id is not None and name != "id" else ""
        return UserError(f"{self.file}: {entry.of}[{number}]{known}{shown}: {expected}")

    def _read(self, lists: Mapping[str, Iterator[JsonElement]]) -> None:
        for name, add, found in (
            ("categories", self._add_category, self.categories),
            ("images", self._add_image, self.images),
            ("annotations", self._add_annotation, [True]),
        ):
            for element in lists.get(name, ()):
                add(element)
            if not found:
                raise UserError(f"{self.file} has no {name}; {_EXPECTED}")
            if name == "categories":
                self.categories = {own: self.categories[own] for own in in_order(self.categories)}
                self.label_of = {own: label for label, own in enumerate(self.categories)}

    def _note_objects(self) -> None:
        text = "not checked for every category, as in LVIS: by COCO's rules what was not looked for counts as wrong"
        self.odd.note_all("image", text, self.federated)
        numbers, owners = np.array(self.numbers), np.array(self.owners)
        self.odd.note_all("object", "of an image that the file does not have: left out", numbers[owners < 0])
        unknown = (owners >= 0) & (np.array(self.labels) < 0)
        self.odd.note_all("object", "of a category that the file does not have: left out", numbers[unknown])
        values, repeats = np.unique(numbers, return_counts=True)
        text = "shared by several objects: all of these are kept, COCO's tools mix them up"
        self.odd.note_all("id", text, values[repeats > 1])
        self.odd.note_all("object", "with id 0: counted here, by COCO's tools as not found", numbers[numbers == 0])

    def _add_category(self, element: JsonElement) -> None:
        number, entry, *_ = element
        own = entry.id = self._id(number, entry, "id")
        if type(entry.name) in (int, float):
            entry.name = str(entry.name)
        if entry.name is None or entry.name == "":
            entry.name = f"category {own}"
            self.unnamed.add(own)
            self.odd.note("category", "without a name: called by its id", own)
        if not isinstance(entry.name, str) or not entry.name.strip():
            raise self.error(number, entry, "name", "expected text")
        if own in self.categories:
            raise self.error(number, entry, "id", f"{own} is also that of category '{self.categories[own].name}'")
        if any(entry.name == other.name for other in self.categories.values()):
            self.odd.note("category", f"with the name of another one ('{entry.name}')", own)
        self.categories[own] = entry

    def _add_image(self, element: JsonElement) -> None:
        number, entry, *_ = element
        own = entry.id = self._id(number, entry, "id")
        if own in self.positions:
            other = f"that of images[{self.positions[own]}] too"
            raise self.error(number, entry, "id", f"{other}; expected a number of its own for each image")
        for side in ("height", "width"):
            value = self._number(number, entry, side, 0)
            if not 0 <= value <= _LARGEST_SIDE or value != int(value):
                raise self.error(number, entry, side, "expected a whole number of pixels")
            setattr(entry, side, int(value))
        self.positions[own] = len(self.images)
        self.images.append(entry)

    def _add_annotation(self, element: JsonElement) -> None:
        number, entry, start, end = element
        own = as_id(entry.id, False)
        if not isinstance(own, int):
            own = number + 1
            self.odd.note("object", "without id, or whose id is no number: its position is taken", own)
        elif type(entry.id) is not int:
            self._note_spelling("id of annotations", own)
        self.numbers.append(own)
        self.owners.append(self.positions.get(self._id(number, entry, "image_id"), -1))
        self.labels.append(self.label_of.get(self._id(number, entry, "category_id"), -1))
        self.boxes.extend(self._box(number, entry, own))
        self.areas.append(self._number(number, entry, "area", math.nan))
        if math.isnan(self.areas[-1]):
            self.odd.note("object", "without an area: that of the box, or of the mask where masks are compared", own)
        self.crowds.append(bool(self._number(number, entry, "iscrowd", 0)))
        self.starts.append(start if entry.segmentation else 0)
        self.bytes.append(end - start if entry.segmentation else 0)

    def _box(self, number: int, entry: CocoAnnotation, own: int) -> Sequence[float]:
        box = entry.bbox
        if box is None or box == []:
            self.odd.note("object", "without a box: never learned or found", own)
            return (0.0, 0.0, 0.0, 0.0)
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_finite, box)):
            raise self.error(number, entry, "bbox", "expected four finite numbers: x, y, width, height")
        if box[2] <= 0 or box[3] <= 0:
            self.odd.note("object", "whose box has no area: not learned", own)
        return box

    def _id(self, number: int, entry: Any, name: str) -> Id:
        value = getattr(entry, name)
        own = as_id(value, self.takes_texts)
        if own is None:
            raise self.error(number, entry, name, "expected a whole number")
        if own is not value:
            self._note_spelling(f"{name} of {entry.of}", own)
        return own

    def _note_spelling(self, what: str, own: Any) -> None:
        self.odd.note("number", f"written as text or with a point ({what})", own)

    def _number(self, number: int, entry: Any, name: str, missing: float) -> float:
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
    """The mask of object ``number``, whose text begins at byte ``start`` of a file that is open.

    Raises:
        UserError: something else is there.
    """
    try:
        entry = _decode_annotation(os.pread(stream.fileno(), size, start))
        if as_id(entry.id, False) in (number, None):  # None: it has no id, and is known by its position
            return entry.segmentation
    except ValueError:
        pass
    raise UserError(f"{stream.name} has changed since this run began: start it again")


def file_name(entry: CocoImage) -> str | None:
    """The file of an image, relative to the folder of images: as the entry has it, with slashes; or the folder and
    file at the end of LVIS's ``coco_url``. None: it has neither."""
    name = entry.file_name
    if name is None and isinstance(entry.coco_url, str):
        name = "/".join(entry.coco_url.split("/")[-2:])
    if not isinstance(name, str) or not name or "\0" in name:
        return None
    return name.replace("\\", "/")


def require_sides(path: str, boxes: np.ndarray, sizes: np.ndarray) -> None:
    """Refuse boxes that can hardly be x, y, width, height in pixels: all are shares of an image, or all are corners
    inside of their images, of which a quarter would, as sides, end a tenth of the image beyond it.

    Args:
        boxes: float64 (n, 4).
        sizes: int64 (n, 2), height and width of their images; 0 where they are not known.
    Raises:
        UserError: says what they look like.
    """
    known = (sizes > 0).all(axis=1)
    boxes, sizes = boxes[known], sizes[known, ::-1]  # width and height
    if not len(boxes):
        return
    said = f"{path}: bbox is x, y, width, height in pixels, and all of the {len(boxes):,}"
    if boxes.min() >= -_SHARES_SLACK and boxes.max() <= 1 + _SHARES_SLACK and sizes.min() > _SMALLEST_IMAGE:
        raise UserError(f"{said} are shares of the images from 0 to 1: multiply by width and height")
    are_corners = (boxes[:, 2:] >= boxes[:, :2]).all() and (boxes[:, 2:] <= sizes * 1.02 + 1).all()
    beyond = (boxes[:, :2] + boxes[:, 2:] > sizes * 1.1).any(axis=1)
    if are_corners and beyond.mean() >= _FEWEST_BEYOND:
        told = f"as sides {count(int(beyond.sum()), 'box')} would end beyond the image"
        raise UserError(f"{said} look like corners x0, y0, x1, y1 ({told}): write x0, y0, x1 - x0, y1 - y0")


def in_order(ids: Iterable[Id]) -> list[Id]:
    """Ids in ascending order; where one is no number, all are ordered as the texts that they are in the file."""
    ids = list(ids)
    return sorted(ids, key=str if any(isinstance(own, str) for own in ids) else None)  # type: ignore[type-var]


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def as_id(value: Any, takes_texts: bool) -> Id | None:
    """An id as it is meant: the same object if it is a whole number; a whole number that is written as text or with a
    point, as number; None: nothing that can be an id.

    Args:
        takes_texts: any other text is an id too, also another spelling of a number, such as "01" beside "1".
    """
    if type(value) is int:
        return value if abs(value) <= _LARGEST_ID else None
    if not isinstance(value, (str, float)):
        return None
    if takes_texts and isinstance(value, str):
        is_number = _NUMBER.fullmatch(value) and abs(int(value)) <= _LARGEST_ID
        return int(value) if is_number else value or None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number % 1 == 0 and abs(number) <= _LARGEST_ID else None


def short(value: Any) -> str:
    """A value in a message: not long, on one line."""
    shown = "null" if value is None else ascii(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
