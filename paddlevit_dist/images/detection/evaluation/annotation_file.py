"""COCO's annotation files, as an evaluation needs them."""

from __future__ import annotations

import os
from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from ....errors import UserError
from ..json_stream import elements
from ..run_lengths import area_of, text_of
from .matching import Federated, Truth

_LARGEST = 1e300  # sums of larger numbers may no longer be finite
BOXES, MASKS = "bbox", "segm"
Id = Union[int, float, str]
_LISTS = ("images", "annotations", "categories")


class AnnotationFile(NamedTuple):
    """The pictures, categories and annotations of a file. Annotations are ordered by picture, and those of a picture as
    in the file.

    Attributes:
        path: of the file.
        image_ids: ascending.
        sizes: int64 (pictures, 2), height and width; -1 where the file does not say.
        category_ids: ascending; label k stands for the k-th.
        names: of the categories, each different.
        truth: of all pictures.
        masks: of the annotations, as ``run_lengths.text_of`` returns them, where masks are compared.
        first: int64 (pictures + 1,), first annotation of each picture.
        notices: what in the file differs from what COCO's tools write.
        checked: of each picture, what it was checked for; None where that was not asked for.
        frequencies: of each category, such as "r" for rare; "" where the file does not say.
    """

    path: str
    image_ids: List[Id]
    sizes: np.ndarray
    category_ids: List[Id]
    names: List[str]
    truth: Truth
    masks: Optional[List[bytes]]
    first: np.ndarray
    notices: List[str]
    checked: Optional[List[Federated]] = None
    frequencies: Sequence[str] = ()

    def truth_of(self, picture: int) -> Truth:
        """The annotations of a picture, by its position."""
        chosen = slice(self.first[picture], self.first[picture + 1])
        return Truth(*(column[chosen] for column in self.truth))

    def masks_of(self, picture: int) -> List[bytes]:
        """The masks of a picture's annotations."""
        return (self.masks or [])[self.first[picture] : self.first[picture + 1]]

    def size_of(self, picture: int) -> Tuple[int, int]:
        """Height and width of a picture.

        Raises:
            UserError: the file does not say.
        """
        height, width = self.sizes[picture].tolist()
        if height < 1 or width < 1:
            raise UserError(
                f"{self.path}: picture {self.image_ids[picture]!r} has no height and width, which its masks need"
            )
        return height, width


def read_annotations(
    path: Any, kind: str = BOXES, progress: Callable[[int], None] = lambda place: None, federated: bool = False
) -> AnnotationFile:
    """Read COCO's annotations from a JSON file; lists that an evaluation does not need are passed over.

    Args:
        kind: ``BOXES`` or ``MASKS``, what is going to be compared.
        progress: called with the place in the file, in bytes.
        federated: pictures say what they were checked for, as in LVIS.
    Raises:
        UserError: the file cannot be read, or is none of annotations; the message says where.
    """
    reader = _Reader(os.fspath(path), kind, federated)
    read = {"images": reader.image, "annotations": reader.annotation, "categories": reader.category}
    names = set()
    try:
        for element in elements(path):
            names.add(element.name)
            if element.name == "":
                raise UserError(
                    f"{path}: expected an object with images, annotations and categories, it is a list as results are; "
                    "annotations come first, then results"
                )
            if element.name in read:
                if element.number < 0:
                    raise UserError(f"{path}: expected a list of {element.name}, found {_shown(element.value)}")
                read[element.name](element.number, element.value)
            if element.number % 1000 == 0:
                progress(element.end)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {why(error)}") from None
    for name in ("images", "categories"):
        if name not in names:
            others = ", ".join(sorted(names)) or "nothing"
            raise UserError(f"{path}: no {name} in it, only {others}; expected COCO's images, annotations, categories")
    return reader.ended()


def why(error: Exception) -> str:
    """What is wrong with a file, without its name."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return f"not JSON that can be read: {error}"


class _Reader:
    """What was read so far."""

    def __init__(self, path: str, kind: str, federated: bool) -> None:
        self.path, self.kind, self.federated = path, kind, federated
        self.lists: Dict[Id, Tuple[List[Id], List[Id]]] = {}  # absent and not exhaustive categories of each picture
        self.frequencies: Dict[Id, str] = {}
        self.sizes: Dict[Id, Tuple[int, int]] = {}
        self.names: Dict[Id, Any] = {}
        self.image_of: List[Id] = []
        self.category_of: List[Id] = []
        self.boxes, self.areas = array("d"), array("d")
        self.crowds, self.numbers = array("b"), array("q")  # whether the id is 0, as 0 and 1
        self.ids: Dict[Any, int] = {}
        self.masks: List[Any] = []
        self.repeated = {"images": 0, "categories": 0}
        self.without_area = 0
        self.notices: List[str] = []

    def image(self, number: int, image: Any) -> None:
        place = f"images[{number}]"
        own = self._id(place, image, "id")
        self.repeated["images"] += own in self.sizes
        height, width = (image.get(side) for side in ("height", "width"))
        known = all(type(side) in (int, float) and 0 < side < 1 << 31 and side % 1 == 0 for side in (height, width))
        self.sizes[own] = (int(height), int(width)) if known else (-1, -1)
        if self.federated:
            lists = (image.get(name) for name in ("neg_category_ids", "not_exhaustive_category_ids"))
            absent, not_exhaustive = lists
            if not isinstance(absent, list) or not isinstance(not_exhaustive, list):
                raise UserError(f"{self.path}: {place} has no lists neg_category_ids and not_exhaustive_category_ids")
            self.lists[own] = absent, not_exhaustive

    def category(self, number: int, category: Any) -> None:
        own = self._id(f"categories[{number}]", category, "id")
        self.repeated["categories"] += own in self.names
        self.names[own] = category.get("name")
        self.frequencies[own] = str(category.get("frequency", ""))

    def annotation(self, number: int, annotation: Any) -> None:
        place = f"annotations[{number}]"
        own = self._id(place, annotation, "id")
        if own in self.ids:
            raise UserError(
                f"{self.path}: annotations[{self.ids[own]}] and {place} have the same id {own!r}; each needs its own"
            )
        self.ids[own] = number
        image_id = self._id(place, annotation, "image_id")
        self.image_of.append(image_id)
        self.category_of.append(self._id(place, annotation, "category_id"))
        crowd = annotation.get("iscrowd", 0)
        if not isinstance(crowd, (int, float)):
            raise UserError(f"{self.path}: {place}: iscrowd must be 0 or 1, found {_shown(crowd)}")
        box = annotation.get("bbox")
        if self.kind == BOXES or box is not None:
            check_box(self.path, place, box)
        area = annotation.get("area")
        if area is None:
            self.without_area += 1
            area = box[2] * box[3] if self.kind == BOXES else np.nan  # of its mask, which may not be known yet
        else:
            check_number(self.path, place, "area", area)
        self.boxes.extend(box if box is not None else (0.0, 0.0, 0.0, 0.0))
        self.areas.append(area)
        self.crowds.append(bool(crowd))
        self.numbers.append(own != 0)
        if self.kind == MASKS:
            self.masks.append(self._mask(number, annotation.get("segmentation"), self.sizes.get(image_id, (-1, -1))))

    def _mask(self, number: int, segmentation: Any, size: Tuple[int, int]) -> Any:
        """Compressed run lengths as bytes; or as it is, where the size of the picture is not known yet."""
        if segmentation is None:
            raise UserError(f"{self.path}: annotations[{number}] has no segmentation, and masks are to be compared")
        if size[0] < 0:
            return segmentation
        try:
            return text_of(segmentation, *size)
        except ValueError as error:
            raise UserError(f"{self.path}: annotations[{number}]: its segmentation {error}") from None

    def _id(self, place: str, entry: Any, name: str) -> Id:
        return check_id(self.path, place, entry, name)

    def ended(self) -> AnnotationFile:
        image_ids = in_order(self.path, "images", self.sizes)
        category_ids = in_order(self.path, "categories", self.names)
        position = {own: place for place, own in enumerate(image_ids)}
        label = {own: place for place, own in enumerate(category_ids)}
        pictures = np.array([position.get(own, -1) for own in self.image_of], np.int64)
        labels = np.array([label.get(own, -1) for own in self.category_of], np.int64)
        self._note(pictures, labels)
        order = np.argsort(pictures, kind="stable")
        order = order[(pictures[order] >= 0) & (labels[order] >= 0)]
        masks = None
        areas = np.array(self.areas)
        if self.kind == MASKS:
            masks = [self._late_mask(row) for row in order.tolist()]
            missing = np.isnan(areas[order])
            areas[order[missing]] = [area_of(masks[row]) for row in np.flatnonzero(missing)]
        truth = Truth(
            np.array(self.boxes).reshape(-1, 4)[order],
            labels[order],
            areas[order],
            np.array(self.crowds, bool)[order],
            np.array(self.numbers, np.int64)[order],
        )
        return AnnotationFile(
            self.path,
            image_ids,
            np.array([self.sizes[own] for own in image_ids], np.int64).reshape(-1, 2),
            category_ids,
            different_names(category_ids, [self.names[own] for own in category_ids]),
            truth,
            masks,
            np.searchsorted(pictures[order], np.arange(len(image_ids) + 1)),
            self.notices,
            [self._checked(own, label) for own in image_ids] if self.federated else None,
            [self.frequencies[own] for own in category_ids],
        )

    def _checked(self, image_id: Id, label: Dict[Id, int]) -> Federated:
        """What a picture was checked for."""
        try:
            return Federated(*(np.array([label[own] for own in some], np.int64) for some in self.lists[image_id]))
        except (KeyError, TypeError) as error:
            raise UserError(f"{self.path}: picture {image_id!r} lists category {error}, which is not there") from None

    def _late_mask(self, row: int) -> bytes:
        """The mask of an annotation that may stand before its picture in the file."""
        if isinstance(self.masks[row], bytes):
            return self.masks[row]
        size = self.sizes[self.image_of[row]]
        if size[0] < 0:
            raise UserError(
                f"{self.path}: picture {self.image_of[row]!r} has no height and width, which its masks need"
            )
        return self._mask(row, self.masks[row], size)

    def _note(self, pictures: np.ndarray, labels: np.ndarray) -> None:
        """Say what was passed over, and what COCO's tools take differently from what is meant."""
        told = [
            (self.repeated["images"], "pictures are listed twice: the last entry of each counts"),
            (self.repeated["categories"], "categories are listed twice: the last entry of each counts"),
            (int((pictures < 0).sum()), "annotations belong to pictures that are not listed: left out"),
            (
                int(((pictures >= 0) & (labels < 0)).sum()),
                "annotations are of categories that are not listed: left out",
            ),
            (self.without_area, "annotations have no area: that of their box or mask is taken"),
        ]
        self.notices += [f"{self.path}: {number:,} {what}" for number, what in told if number]
        if 0 in self.numbers:
            self.notices.append(
                f"{self.path}: an annotation has id 0, which COCO's tools take for 'nothing found': what finds it "
                "counts as wrong, here as there; number annotations from 1"
            )
        if not len(labels):
            self.notices.append(f"{self.path}: no annotations in it, so no score is defined")


def check_id(path: str, place: str, entry: Any, name: str) -> Id:
    """The id in an entry of a list.

    Raises:
        UserError: there is none, or it is neither a number nor a text.
    """
    if not isinstance(entry, dict):
        raise UserError(f"{path}: {place}: expected an object, found {_shown(entry)}")
    if name not in entry:
        raise UserError(f"{path}: {place} has no {name}")
    own = entry[name]
    if type(own) is int or type(own) is str or (type(own) is float and own == own // 1):
        return own
    raise UserError(f"{path}: {place}: {name} must be a whole number or a text, found {_shown(own)}")


def check_box(path: str, place: str, box: Any) -> None:
    """Refuse what is no box x, y, width, height.

    Raises:
        UserError: says what is in its place.
    """
    if box is None:
        raise UserError(f"{path}: {place} has no bbox; expected [x, y, width, height]")
    if not isinstance(box, list) or len(box) != 4:
        raise UserError(f"{path}: {place}: bbox must be [x, y, width, height], found {_shown(box)}")
    for number in box:
        if type(number) is not float or not -_LARGEST < number < _LARGEST:  # a call for each would take a second
            check_number(path, place, "bbox", number)


def check_number(path: str, place: str, name: str, number: Any) -> None:
    """Refuse what is no finite number.

    Raises:
        UserError: says what is in its place.
    """
    if not isinstance(number, (int, float)) or not -_LARGEST < number < _LARGEST:
        raise UserError(f"{path}: {place}: {name} must be of finite numbers, found {_shown(number)}")


def in_order(path: str, what: str, ids: Dict[Id, Any]) -> List[Id]:
    """Ids in ascending order: numbers as numbers, texts as texts.

    Raises:
        UserError: there are none, or numbers and texts.
    """
    if not ids:
        raise UserError(f"{path}: no {what} in it")
    kinds = {isinstance(own, str) for own in ids}
    if len(kinds) > 1:
        number = next(own for own in ids if not isinstance(own, str))
        text = next(own for own in ids if isinstance(own, str))
        raise UserError(
            f"{path}: ids of {what} are numbers and texts, such as {number!r} and {text!r}; expected one kind"
        )
    return sorted(ids)


def different_names(category_ids: Sequence[Id], names: Sequence[Any]) -> List[str]:
    """A name for each category: its own; with its id where several have the same, or "category 3" where it has none."""
    plain = [str(name) if name not in (None, "") else f"category {own}" for own, name in zip(category_ids, names)]
    result = []
    for own, name in zip(category_ids, plain):
        if plain.count(name) > 1:
            name = f"{name} (id {own})"
            while name in plain:  # the name of another
                name += "'"
        result.append(name)
    return result


def _shown(value: Any) -> str:
    """A value in a message: short, on one line."""
    text = "null" if value is None else ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
