"""COCO's annotation files, as an evaluation needs them."""

from __future__ import annotations

import os
from array import array
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ....errors import UserError
from ..coco_reader import CocoReader, Id, Object, as_id
from ..json_stream import Element
from ..run_lengths import area_of, text_of
from .matching import Federated, Truth

BOXES, MASKS = "bbox", "segm"


class AnnotationFile(NamedTuple):
    """The pictures, categories and annotations of a file. Annotations are ordered by picture, and those of a picture as
    in the file.

    Attributes:
        path: of the file.
        image_ids: ascending; as texts where one is no number.
        sizes: int64 (pictures, 2), height and width; 0 where the file does not say.
        category_ids: likewise; label k stands for the k-th.
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
            raise _without_size(self.path, self.image_ids[picture])
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

    def passed(element: Element) -> None:
        if element.number % 1000 == 0:
            progress(element.end)

    reader.read(passed)
    return reader.ended()


class _Reader(CocoReader):
    """Gathers columns of annotations."""

    takes_texts = True

    def __init__(self, path: str, kind: str, federated: bool) -> None:
        super().__init__(path)
        self.kind, self.federated = kind, federated
        self.lists: Dict[Id, Any] = {}  # absent and not exhaustive categories of each picture
        self.frequencies: Dict[Id, str] = {}
        self.image_of: List[Id] = []
        self.category_of: List[Id] = []
        self.boxes, self.areas = array("d"), array("d")
        self.crowds, self.numbers = array("b"), array("q")
        self.masks: List[Any] = []
        self.size_of: Dict[Id, Tuple[int, int]] = {}  # of the pictures so far

    def picture(self, element: Element) -> None:
        self.size_of[self.image_ids[-1]] = (self.sizes[-2], self.sizes[-1])
        if self.federated:
            lists = [element.value.get(name) for name in ("neg_category_ids", "not_exhaustive_category_ids")]
            if not all(isinstance(one, list) for one in lists):
                expected = "expected lists neg_category_ids and not_exhaustive_category_ids"
                raise self.error(element, "", expected)
            self.lists[self.image_ids[-1]] = lists

    def category(self, element: Element, number: Id) -> None:
        self.frequencies[number] = str(element.value.get("frequency", ""))

    def object(self, element: Element, found: Object) -> None:
        self.image_of.append(found.picture)
        self.category_of.append(found.category)
        self.boxes.extend(found.box)
        self.areas.append(found.area if found.has_area or self.kind == BOXES else np.nan)  # else of the mask
        self.crowds.append(found.is_crowd)
        self.numbers.append(found.number)
        if self.kind == MASKS:
            is_known = found.segmentation is not None and min(self.size_of.get(found.picture, (0, 0))) > 0
            mask = self._mask(found.segmentation, found.picture, found.number) if is_known else found.segmentation
            self.masks.append(mask)  # as objects of Python, those of a large file would not fit into memory

    def _mask(self, segmentation: Any, picture: Id, number: int) -> bytes:
        """Compressed run lengths."""
        height, width = self.size_of[picture]
        if height < 1 or width < 1:
            raise _without_size(self.file, picture)
        try:
            return text_of(segmentation, height, width)
        except ValueError as error:
            raise UserError(f"{self.file}: annotation {number}: its segmentation {error}") from None

    def ended(self) -> AnnotationFile:
        image_ids = in_order(self.image_ids)
        category_ids = in_order(self.categories)
        position = {own: place for place, own in enumerate(image_ids)}
        label = {own: place for place, own in enumerate(category_ids)}
        pictures = np.array([position.get(own, -1) for own in self.image_of], np.int64)
        labels = np.array([label.get(own, -1) for own in self.category_of], np.int64)
        numbers = np.array(self.numbers, np.int64)
        self.note_objects(numbers, pictures, labels)
        order = np.argsort(pictures, kind="stable")
        order = order[(pictures[order] >= 0) & (labels[order] >= 0)]
        areas = np.array(self.areas)
        masks = None
        if self.kind == MASKS:
            masks = self._masks(order, numbers)
            missing = np.isnan(areas[order])
            areas[order[missing]] = [area_of(masks[row]) for row in np.flatnonzero(missing)]
        truth = Truth(
            np.array(self.boxes).reshape(-1, 4)[order], labels[order], areas[order], np.array(self.crowds, bool)[order]
        )
        return AnnotationFile(
            self.file,
            image_ids,
            np.array([self.size_of[own] for own in image_ids], np.int64),
            category_ids,
            different_names(category_ids, [self.categories[own] for own in category_ids]),
            truth,
            masks,
            np.searchsorted(pictures[order], np.arange(len(image_ids) + 1)),
            [*self.notices(), *([] if len(labels) else [f"{self.file}: no annotations in it, so no score is defined"])],
            [self._checked(own, label) for own in image_ids] if self.federated else None,
            [self.frequencies[own] for own in category_ids],
        )

    def _masks(self, order: np.ndarray, numbers: np.ndarray) -> List[bytes]:
        """Compressed run lengths of the annotations; where only some have a mask, the box of the others."""
        without = [row for row in order.tolist() if self.masks[row] is None]
        if len(without) == len(order) and len(order):
            raise UserError(f"{self.file}: no annotation has a segmentation, and masks are to be compared")
        self.note_all("object", "without a mask: the box is taken", numbers[without])
        masks = []
        for row in order.tolist():
            x, y, across, down = self.boxes[4 * row : 4 * row + 4]
            shape = self.masks[row] or [[x, y, x + across, y, x + across, y + down, x, y + down]]
            is_made = isinstance(shape, bytes)
            masks.append(shape if is_made else self._mask(shape, self.image_of[row], numbers[row]))
        return masks

    def _checked(self, image_id: Id, label: Dict[Any, int]) -> Federated:
        """What a picture was checked for."""
        try:
            lists = [[label[as_id(own, True) or own] for own in some] for some in self.lists[image_id]]
            return Federated(*(np.array(some, np.int64) for some in lists))
        except (KeyError, TypeError) as error:
            raise UserError(f"{self.file}: picture {image_id!r} lists category {error}, which is not there") from None


def _without_size(path: str, image_id: Id) -> UserError:
    return UserError(f"{path}: picture {image_id!r} has no height and width, which its masks need")


def in_order(ids: Collection[Id]) -> List[Id]:
    """Ids in ascending order; where one is no number, all are ordered as the texts that they are in the file."""
    return sorted(ids, key=str if any(isinstance(own, str) for own in ids) else None)  # type: ignore[type-var]


def different_names(category_ids: Sequence[Id], names: Sequence[str]) -> List[str]:
    """A name for each category: its own; with its id where several have the same."""
    result = []
    for own, name in zip(category_ids, names):
        if names.count(name) > 1:
            name = f"{name} (id {own})"
            while name in names:  # the name of another
                name += "'"
        result.append(name)
    return result
