"""COCO's annotation files, as an evaluation needs them."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....runtime.errors import UserError
from ..coco_files import CocoReader, Element, Id, as_id, in_order
from ..run_lengths import area_of, outline, text_of
from .detections import BOXES, MASKS
from .matching import Federated, Truth


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
    image_ids: list[Id]
    sizes: np.ndarray
    category_ids: list[Id]
    names: list[str]
    truth: Truth
    masks: list[bytes] | None
    first: np.ndarray
    notices: list[str]
    checked: list[Federated] | None = None
    frequencies: Sequence[str] = ()

    def truth_of(self, picture: int) -> Truth:
        """The annotations of a picture, by its position."""
        chosen = slice(self.first[picture], self.first[picture + 1])
        return Truth(*(column[chosen] for column in self.truth))

    def masks_of(self, picture: int) -> list[bytes]:
        """The masks of a picture's annotations."""
        return (self.masks or [])[self.first[picture] : self.first[picture + 1]]

    def size_of(self, picture: int) -> tuple[int, int]:
        """Height and width of a picture.

        Raises:
            UserError: the file does not say.
        """
        height, width = self.sizes[picture].tolist()
        if height < 1 or width < 1:
            raise _without_size(self.path, self.image_ids[picture])
        return height, width


def read_annotations(path: Any, kind: str = BOXES, federated: bool = False) -> AnnotationFile:
    """Read COCO's annotations from a JSON file; lists that an evaluation does not need are passed over.

    Args:
        kind: ``BOXES`` or ``MASKS``, what is going to be compared.
        federated: pictures say what they were checked for, as in LVIS.
    Raises:
        UserError: the file cannot be read, or is none of annotations; the message says where.
    """
    reader = _Reader(os.fspath(path), kind, federated)
    reader.read()
    return reader.ended()


class _Reader(CocoReader):
    """Gathers masks, and what LVIS's pictures and categories have besides."""

    takes_texts = True

    def __init__(self, path: str, kind: str, federated: bool) -> None:
        super().__init__(path)
        self.kind, self.federated = kind, federated
        self.lists: list[Any] = []  # absent and not exhaustive categories of each picture
        self.frequencies: dict[Id, str] = {}
        self.masks: list[bytes | None] = []

    def picture(self, element: Element) -> None:
        if self.federated:
            lists = [element.value.get(name) for name in ("neg_category_ids", "not_exhaustive_category_ids")]
            if not all(isinstance(one, list) for one in lists):
                expected = "expected lists neg_category_ids and not_exhaustive_category_ids"
                raise self.error(element, "", expected)
            self.lists.append(lists)

    def category(self, element: Element, number: Id) -> None:
        self.frequencies[number] = str(element.value.get("frequency", ""))

    def object(self, element: Element) -> None:
        if self.kind == MASKS:
            shape, is_kept = element.value.get("segmentation"), min(self.owners[-1], self.labels[-1]) >= 0
            self.masks.append(self._mask(shape, -1) if shape and is_kept else None)

    def _mask(self, segmentation: Any, row: int) -> bytes:
        """The compressed run lengths of an object."""
        picture = self.owners[row]
        height, width = self.sizes[2 * picture : 2 * picture + 2]
        if height < 1 or width < 1:
            raise _without_size(self.file, self.image_ids[picture])
        try:
            return text_of(segmentation, height, width)
        except ValueError as error:
            raise UserError(f"{self.file}: annotation {self.numbers[row]}: its segmentation {error}") from None

    def ended(self) -> AnnotationFile:
        image_ids, kept = in_order(self.image_ids), np.flatnonzero(self.kept)
        places = [self._positions[own] for own in image_ids]  # in the file, of the pictures in order
        pictures = np.argsort(places)[np.array(self.owners)[kept]] if len(kept) else kept
        order = kept[np.argsort(pictures, kind="stable")]
        boxes, areas = np.array(self.boxes).reshape(-1, 4), np.array(self.areas)
        masks = self._masks(order, boxes) if self.kind == MASKS else None
        missing = np.flatnonzero(np.isnan(areas[order]))
        areas[order[missing]] = (
            boxes[order[missing], 2:].prod(axis=1) if masks is None else [area_of(masks[row]) for row in missing]
        )
        labels, crowds = np.array(self.labels)[order], np.array(self.crowds, bool)[order]
        return AnnotationFile(
            self.file,
            image_ids,
            np.array(self.sizes).reshape(-1, 2)[places],
            list(self.categories),
            different_names(self.categories),
            Truth(boxes[order], labels, areas[order], crowds),
            masks,
            np.searchsorted(np.sort(pictures), np.arange(len(image_ids) + 1)),
            [
                *self.notices(),
                *([] if self.numbers else [f"{self.file}: no annotations in it, so no score is defined"]),
            ],
            [self._checked(place) for place in places] if self.federated else None,
            [self.frequencies[own] for own in self.categories],
        )

    def _masks(self, order: np.ndarray, boxes: np.ndarray) -> list[bytes]:
        """Compressed run lengths of the annotations; where only some have a mask, the box of the others."""
        without = [row for row in order.tolist() if self.masks[row] is None]
        if len(without) == len(order) and len(order):
            raise UserError(f"{self.file}: no annotation has a segmentation, and masks are to be compared")
        self.note_all("object", "without a mask: the box is taken", [self.numbers[row] for row in without])
        for row in without:
            self.masks[row] = self._mask(outline(boxes[row].tolist()), row)
        return [self.masks[row] for row in order.tolist()]  # type: ignore[misc] # no None is left

    def _checked(self, place: int) -> Federated:
        """What the picture at this place in the file was checked for."""
        try:
            lists = [[self._labels[as_id(own, True) or own] for own in some] for some in self.lists[place]]
            return Federated(*(np.array(some, np.int64) for some in lists))
        except (KeyError, TypeError) as error:
            listed = f"picture {self.image_ids[place]!r} lists category {error}"
            raise UserError(f"{self.file}: {listed}, which is not there") from None


def _without_size(path: str, image_id: Id) -> UserError:
    return UserError(f"{path}: picture {image_id!r} has no height and width, which its masks need")


def different_names(categories: Mapping[Id, str]) -> list[str]:
    """A name for each category: its own; with its id where several have the same."""
    names, result = list(categories.values()), []
    for own, name in categories.items():
        if names.count(name) > 1:
            name = f"{name} (id {own})"
            while name in names:  # the name of another
                name += "'"
        result.append(name)
    return result
