"""A file of annotations in COCO's format, read once from front to back, for training and for evaluation alike.

What COCO's own tools ignore is left out and counted; what they would fail at, or silently mix up, is an error of one
line, unless there is no doubt what is meant, which is noted. The page on detection has the table. Source: pycocotools,
and https://cocodataset.org/#format-data.
"""

from __future__ import annotations

import math
import re
from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from ...errors import UserError
from .json_stream import Element, elements

_LARGEST_ID = 2**53  # ids pass through programs that keep numbers as floats
_LARGEST_SIDE = 2**31 - 1
_NUMBER = re.compile("0|-?[1-9][0-9]{0,15}")  # a text that only one number is written as
LARGEST = 1e300  # sums of larger numbers may no longer be finite
_EXPECTED = "expected annotations in COCO's format: an object with images, annotations and categories"
Id = Union[int, str]


class Object(NamedTuple):
    """An annotation.

    Attributes:
        number: its id; its position, from 1, where the file has none.
        picture, category: their ids.
        box: x, y, width, height; zeros where the file has none.
        area: of the box where the file has none, see ``has_area``.
        segmentation: as in the file; None: it has no mask.
    """

    number: int
    picture: Id
    category: Id
    box: Sequence[float]
    area: float
    has_area: bool
    is_crowd: bool
    segmentation: Any


class CocoReader:
    """Gathers the entries of a file in whatever order its parts come.

    Attributes:
        takes_texts: ids of pictures and categories may be texts.
        categories: name by id, as they come.
        image_ids: as they come.
        sizes: height and width of each picture, one after the other, 0 where the file does not say.
        has_annotations: the file has a list of annotations, perhaps an empty one.
    """

    takes_texts = False

    def __init__(self, file: str) -> None:
        self.file = file
        self.categories: Dict[Id, str] = {}
        self.image_ids: List[Id] = []
        self.sizes = array("q")
        self.has_annotations = False
        self._odd: Dict[Tuple[str, str], List[Any]] = {}  # what was odd -> how often, and the first id

    def picture(self, element: Element) -> None:
        """Take the rest of the picture that was just added to ``image_ids`` and ``sizes``."""

    def category(self, element: Element, number: Id) -> None:
        """Take the rest of a category."""

    def object(self, element: Element, found: Object) -> None:
        """Take an annotation."""
        raise NotImplementedError

    def read(self, progress: Callable[[Element], None]) -> None:
        """Read the whole file.

        Raises:
            UserError: it cannot be read, or is not as COCO describes it; the message names the file and the entry.
        """
        add = {"images": self._add_image, "annotations": self._add_annotation, "categories": self._add_category}
        sections = set()
        try:
            for element in elements(self.file):
                sections.add(element.name)
                if element.name in add:
                    if element.number < 0 or not isinstance(element.value, dict):
                        raise self.error(element, "", f"expected a list of objects, found {short(element.value)}")
                    add[element.name](element, element.value)
                elif element.name == "" and element.number == 0:
                    raise UserError(f"{self.file} is a list, as files of results are; {_EXPECTED}")
                progress(element)
        except OSError as error:
            raise UserError(f"{self.file} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise UserError(f"{self.file} is not JSON as COCO's annotations are: {error}") from error
        self.has_annotations = "annotations" in sections
        for name, there in (("images", self.image_ids), ("categories", self.categories)):
            if not there:
                raise UserError(f"{self.file} has no {name}; {_EXPECTED}")
        if len(set(self.image_ids)) < len(self.image_ids):
            raise self._twice()

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

    def note_objects(self, numbers: np.ndarray, owners: np.ndarray, labels: np.ndarray) -> None:
        """What objects lack.

        Args:
            numbers: int64 (objects,), their ids.
            owners, labels: positions of their pictures and categories, -1 where the file does not have these.
        """
        self.note_all("object", "of a picture that the file does not have: left out", numbers[owners < 0])
        unknown = (owners >= 0) & (labels < 0)
        self.note_all("object", "of a category that the file does not have: left out", numbers[unknown])
        values, repeats = np.unique(numbers, return_counts=True)
        text = "shared by several objects: all of these are kept, COCO's tools mix them up"
        self.note_all("id", text, values[repeats > 1])
        self.note_all("object", "with id 0: counted here, by COCO's tools as not found", numbers[numbers == 0])

    def notices(self) -> List[str]:
        """What was odd, a line each."""
        told = []
        for (kind, text), (number, first) in self._odd.items():
            several = "categories" if kind == "category" else f"{kind}s"
            told.append(f"{self.file} has {number:,} {kind if number == 1 else several} {text}, as {first}")
        return told

    def _add_category(self, element: Element, entry: Dict[str, Any]) -> None:
        number = self._id(element, entry, "id")
        name = entry.get("name")
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

    def _add_image(self, element: Element, entry: Dict[str, Any]) -> None:
        self.image_ids.append(self._id(element, entry, "id"))
        for side in ("height", "width"):
            value = self._number(element, entry, side, 0)
            if not 0 <= value <= _LARGEST_SIDE or value != int(value):
                raise self.error(element, side, "expected a whole number of pixels")
            self.sizes.append(int(value))
        self.picture(element)

    def _add_annotation(self, element: Element, entry: Dict[str, Any]) -> None:
        number = as_id(entry.get("id"), False)
        if not isinstance(number, int):
            number = element.number + 1
            self.note("object", "without id, or whose id is no number: its position is taken", number)
        elif type(entry["id"]) is not int:
            self._note_spelling("id of annotations", number)
        box = self._box(element, entry, number)
        area = self._number(element, entry, "area", math.nan)
        has_area = not math.isnan(area)
        if not has_area:
            self.note("object", "without an area: that of the box, or of the mask where masks are compared", number)
        self.object(
            element,
            Object(
                number,
                self._id(element, entry, "image_id"),
                self._id(element, entry, "category_id"),
                box,
                area if has_area else box[2] * box[3],
                has_area,
                bool(self._number(element, entry, "iscrowd", 0)),
                entry.get("segmentation") or None,
            ),
        )

    def _box(self, element: Element, entry: Dict[str, Any], number: int) -> Sequence[float]:
        box = entry.get("bbox")
        if box is None or box == []:
            self.note("object", "without a box: never learnt or found", number)
            return (0.0, 0.0, 0.0, 0.0)
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_finite, box)):
            raise self.error(element, "bbox", "expected four finite numbers: x, y, width, height")
        if box[2] <= 0 or box[3] <= 0:
            self.note("object", "whose box has no area: not learnt", number)
        return box

    def _id(self, element: Element, entry: Dict[str, Any], name: str) -> Id:
        value = entry.get(name)
        number = as_id(value, self.takes_texts)
        if number is None:
            raise self.error(element, name, "expected a whole number")
        if number is not value:
            self._note_spelling(f"{name} of {element.name}", number)
        return number

    def _note_spelling(self, what: str, number: Id) -> None:
        self.note("number", f"written as text or with a point ({what})", number)

    def _number(self, element: Element, entry: Dict[str, Any], name: str, missing: float) -> float:
        value = entry.get(name)
        if value is None:
            return missing
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self.error(element, name, "expected a number") from None
            self._note_spelling(f"{name} of {element.name}", entry.get("id"))
        if not isinstance(value, (bool, int, float)) or not abs(value) < LARGEST:
            raise self.error(element, name, "expected a finite number")
        return value

    def _twice(self) -> UserError:
        seen: Dict[Id, int] = {}
        for place, own in enumerate(self.image_ids):
            if own in seen:
                return UserError(
                    f"{self.file}: images[{seen[own]}] and images[{place}] both have id {own!r}: expected a number of "
                    f"its own for each picture; {len(self.image_ids) - len(set(self.image_ids)):,} of "
                    f"{len(self.image_ids):,} are taken"
                )
            seen[own] = place
        raise AssertionError("no id is there twice")


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def as_id(value: Any, takes_texts: bool) -> Optional[Id]:
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
