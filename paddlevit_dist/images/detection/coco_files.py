"""Files in COCO's format, read for training and for evaluation alike.

What COCO's own tools ignore in annotations is left out and counted; what they would fail at, or silently mix up, is an
error of one line, unless there is no doubt what is meant, which is noted. The page on detection has the table. Source:
pycocotools, and https://cocodataset.org/#format-data.
"""

import math
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from tqdm import tqdm

from ...runtime.errors import UserError
from ...runtime.files import read_regular

_LARGEST_ID = 2**53  # ids pass through programs that keep numbers as floats
_LARGEST_SIDE = 2**31 - 1
_NUMBER = re.compile("0|-?[1-9][0-9]{0,15}")  # a text that only one number is written as
LARGEST = 1e300  # sums of larger numbers may no longer be finite
_EXPECTED = "expected annotations in COCO's format: an object with images, annotations and categories"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WHOLE = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
Id = int | str
Place = str | os.PathLike[str]


class Element(NamedTuple):
    """A value of a JSON file.

    Attributes:
        name: of the member of the outermost object that it is, or is an element of; "" where that is a list.
        number: position in its list, from 0; -1: the member is no list, and this is its value.
        value: as ``json.loads`` has it.
        start, end: its first byte in the file, and the one after its last.
    """

    name: str
    number: int
    value: Any
    start: int
    end: int


def elements(path: Place, kind: Any = Any) -> dict[str, Iterator[Element]]:
    """The elements of each list in the outermost object of a file, or of the outermost list. Only the element at hand
    is in memory as Python objects: COCO's annotations are 450 MB of text, which would take 3 GB.

    Args:
        kind: of an element, as msgspec checks it.
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
    decode = msgspec.json.Decoder(kind).decode
    first_byte, label = _address(content), f"reading {os.path.basename(path)}"
    return {name: _elements(name, member, first_byte, decode, label) for name, member in members.items()}


def _elements(name: str, member: Any, first_byte: int, decode: Callable[[Any], Any], label: str) -> Iterator[Element]:
    is_list = not name or bytes(memoryview(member)[:1]) == b"["
    parts = _LIST.decode(member) if is_list else [member]
    for number, part in enumerate(tqdm(parts, desc=f"{label} {name}".rstrip(), delay=1.0, disable=None, leave=False)):
        try:
            value = decode(part)
        except ValueError as error:
            raise ValueError(f"{name}[{number}]: {error}") from None
        start = _address(part) - first_byte
        yield Element(name, number if is_list else -1, value, start, start + memoryview(part).nbytes)


def _address(content: Any) -> int:
    return np.frombuffer(content, np.uint8).__array_interface__["data"][0] if content else 0


class CocoReader:
    """Gathers a file's categories, its pictures and its annotations, in whatever order these lists come.

    Attributes:
        takes_texts: ids of pictures and categories may be texts.
        categories: name by id, by ascending id.
        image_ids: as they come.
        sizes: height and width of each picture, one after the other, 0 where the file does not say.
        has_annotations: the file has a list of annotations, perhaps an empty one.
        numbers: of each object its id; its position, from 1, where the file has none.
        owners, labels: positions of its picture and of its category, -1 where the file does not have these.
        boxes: x, y, width, height, one object after the other; zeros where the file has none.
        areas: NaN where the file has none.
        crowds: whether it is one.
    """

    takes_texts = False

    def __init__(self, file: str) -> None:
        self.file = file
        self.categories: dict[Id, str] = {}
        self.image_ids: list[Id] = []
        self.sizes = array("q")
        self.has_annotations = False
        self.numbers, self.owners, self.labels, self.crowds = array("q"), array("q"), array("q"), array("b")
        self.boxes, self.areas = array("d"), array("d")
        self._positions: dict[Id, int] = {}  # of pictures
        self._labels: dict[Id, int] = {}
        self._odd: dict[tuple[str, str], list[Any]] = {}  # what was odd -> how often, and the first id

    def picture(self, element: Element) -> None:
        """Take the rest of the picture that was just added to ``image_ids`` and ``sizes``."""

    def category(self, element: Element, number: Id) -> None:
        """Take the rest of a category."""

    def object(self, element: Element) -> None:
        """Take the rest of the object that was just added."""

    def read(self) -> None:
        """Read the whole file.

        Raises:
            UserError: it cannot be read, or is not as COCO describes it; the message names the file and the entry.
        """
        parts = {"categories": self._add_category, "images": self._add_image, "annotations": self._add_annotation}
        try:
            lists = elements(self.file)
            if "" in lists:
                raise UserError(f"{self.file} is a list, as files of results are; {_EXPECTED}")
            self.has_annotations = "annotations" in lists
            for name, add in parts.items():
                for element in lists.get(name, ()):
                    if element.number < 0 or not isinstance(element.value, dict):
                        raise self.error(element, "", f"expected a list of objects, found {short(element.value)}")
                    add(element)
                if not (self.categories if name == "categories" else self.image_ids):
                    raise UserError(f"{self.file} has no {name}; {_EXPECTED}")
                if name == "categories":
                    self.categories = {own: self.categories[own] for own in in_order(self.categories)}
                    self._labels = {own: label for label, own in enumerate(self.categories)}
        except OSError as error:
            raise UserError(f"{self.file} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise UserError(f"{self.file} is not JSON as COCO's annotations are: {error}") from error
        self._note_objects()

    def error(self, element: Element, name: str, expected: str) -> UserError:
        """What is wrong with an entry, or with what it has of that name."""
        place = f"{element.name}[{element.number}]" if element.number >= 0 else element.name
        entry = element.value if isinstance(element.value, dict) else {}
        shown = ""
        if name:
            shown = f" has no {name}" if name not in entry else f" has {name} {short(entry[name])}"
        number = f" (id {short(entry['id'])})" if "id" in entry and name != "id" else ""
        return UserError(f"{self.file}: {place}{number}{shown}: {expected}")

    def note(self, kind: str, text: str, number: Any) -> None:
        """One more entry of a kind, such as "picture", that is odd in the same way."""
        self._odd.setdefault((kind, text), [0, number])[0] += 1

    def note_all(self, kind: str, text: str, numbers: Sequence[Any]) -> None:
        """The entries that are odd in the same way."""
        if len(numbers):
            self._odd[kind, text] = [len(numbers), numbers[0]]

    @property
    def kept(self) -> np.ndarray:
        """bool (objects,): the file has their picture and their category."""
        return (np.array(self.owners) >= 0) & (np.array(self.labels) >= 0)

    def _note_objects(self) -> None:
        numbers, owners = np.array(self.numbers), np.array(self.owners)
        self.note_all("object", "of a picture that the file does not have: left out", numbers[owners < 0])
        unknown = (owners >= 0) & (np.array(self.labels) < 0)
        self.note_all("object", "of a category that the file does not have: left out", numbers[unknown])
        values, repeats = np.unique(numbers, return_counts=True)
        text = "shared by several objects: all of these are kept, COCO's tools mix them up"
        self.note_all("id", text, values[repeats > 1])
        self.note_all("object", "with id 0: counted here, by COCO's tools as not found", numbers[numbers == 0])

    def notices(self) -> list[str]:
        """What was odd, a line each."""
        told = []
        for (kind, text), (number, first) in self._odd.items():
            several = "categories" if kind == "category" else f"{kind}s"
            told.append(f"{self.file} has {number:,} {kind if number == 1 else several} {text}, as {first}")
        return told

    def _add_category(self, element: Element) -> None:
        number, name = self._id(element, "id"), element.value.get("name")
        if type(name) in (int, float):
            name = str(name)
        if name is None or name == "":
            name = f"category {number}"
            self.note("category", "without a name: called by its id", number)
        if not isinstance(name, str) or not name.strip():
            raise self.error(element, "name", "expected text")
        if number in self.categories:
            raise self.error(element, "id", f"{number} is also that of category '{self.categories[number]}'")
        if name in self.categories.values():
            self.note("category", f"with the name of another one ('{name}')", number)
        self.categories[number] = name
        self.category(element, number)

    def _add_image(self, element: Element) -> None:
        own = self._id(element, "id")
        if own in self._positions:
            other = f"that of images[{self._positions[own]}] too"
            raise self.error(element, "id", f"{other}; expected a number of its own for each picture")
        self._positions[own] = len(self.image_ids)
        self.image_ids.append(own)
        for side in ("height", "width"):
            value = self._number(element, side, 0)
            if not 0 <= value <= _LARGEST_SIDE or value != int(value):
                raise self.error(element, side, "expected a whole number of pixels")
            self.sizes.append(int(value))
        self.picture(element)

    def _add_annotation(self, element: Element) -> None:
        given = element.value.get("id")
        number = as_id(given, False)
        if not isinstance(number, int):
            number = element.number + 1
            self.note("object", "without id, or whose id is no number: its position is taken", number)
        elif type(given) is not int:
            self._note_spelling("id of annotations", number)
        self.numbers.append(number)
        self.owners.append(self._positions.get(self._id(element, "image_id"), -1))
        self.labels.append(self._labels.get(self._id(element, "category_id"), -1))
        self.boxes.extend(self._box(element, number))
        self.areas.append(self._number(element, "area", math.nan))
        if math.isnan(self.areas[-1]):
            self.note("object", "without an area: that of the box, or of the mask where masks are compared", number)
        self.crowds.append(bool(self._number(element, "iscrowd", 0)))
        self.object(element)

    def _box(self, element: Element, number: int) -> Sequence[float]:
        box = element.value.get("bbox")
        if box is None or box == []:
            self.note("object", "without a box: never learnt or found", number)
            return (0.0, 0.0, 0.0, 0.0)
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_finite, box)):
            raise self.error(element, "bbox", "expected four finite numbers: x, y, width, height")
        if box[2] <= 0 or box[3] <= 0:
            self.note("object", "whose box has no area: not learnt", number)
        return box

    def _id(self, element: Element, name: str) -> Id:
        value = element.value.get(name)
        number = as_id(value, self.takes_texts)
        if number is None:
            raise self.error(element, name, "expected a whole number")
        if number is not value:
            self._note_spelling(f"{name} of {element.name}", number)
        return number

    def _note_spelling(self, what: str, number: Id) -> None:
        self.note("number", f"written as text or with a point ({what})", number)

    def _number(self, element: Element, name: str, missing: float) -> float:
        value = element.value.get(name)
        if value is None:
            return missing
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self.error(element, name, "expected a number") from None
            self._note_spelling(f"{name} of {element.name}", element.value.get("id"))
        if not isinstance(value, (bool, int, float)) or not abs(value) < LARGEST:
            raise self.error(element, name, "expected a finite number")
        return value


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
