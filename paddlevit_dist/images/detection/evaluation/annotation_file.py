"""COCO's annotation files, as an evaluation needs them."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....runtime.errors import UserError
from ....runtime.files import open_regular
from ..coco_files import CocoFile, Id, as_id, in_order, segmentation_at
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
    coco = CocoFile(os.fspath(path), takes_texts=True)
    image_ids, kept = in_order(coco.positions), np.flatnonzero(coco.kept)
    places = [coco.positions[own] for own in image_ids]  # in the file, of the pictures in order
    pictures = np.argsort(places)[np.array(coco.owners)[kept]] if len(kept) else kept
    order = kept[np.argsort(pictures, kind="stable")]
    boxes, areas = np.array(coco.boxes).reshape(-1, 4)[order], np.array(coco.areas)[order]
    masks = _masks(coco, order, boxes) if kind == MASKS else None
    missing = np.flatnonzero(np.isnan(areas))
    areas[missing] = boxes[missing, 2:].prod(axis=1) if masks is None else [area_of(masks[row]) for row in missing]
    nothing = [] if coco.numbers else [f"{coco.file}: no annotations in it, so no score is defined"]
    return AnnotationFile(
        coco.file,
        image_ids,
        coco.sizes[places],
        list(coco.categories),
        different_names({own: category.name for own, category in coco.categories.items()}),
        Truth(boxes, np.array(coco.labels)[order], areas, np.array(coco.crowds, bool)[order]),
        masks,
        np.searchsorted(np.sort(pictures), np.arange(len(image_ids) + 1)),
        [*coco.odd.lines(), *nothing],
        [_checked(coco, place) for place in places] if federated else None,
        [str(category.frequency) for category in coco.categories.values()],
    )


def _masks(coco: CocoFile, order: np.ndarray, boxes: np.ndarray) -> list[bytes]:
    """Compressed run lengths of the objects ``order``; where only some have a mask, the box of the others."""
    without = [row for row in order.tolist() if not coco.bytes[row]]
    if len(without) == len(order) and len(order):
        raise UserError(f"{coco.file}: no annotation has a segmentation, and masks are to be compared")
    coco.odd.note_all("object", "without a mask: the box is taken", [coco.numbers[row] for row in without])
    masks = []
    with open_regular(coco.file, "rb") as stream:
        for row, box in zip(order.tolist(), boxes.tolist()):
            number, picture = coco.numbers[row], coco.pictures[coco.owners[row]]
            if picture.height < 1 or picture.width < 1:
                raise _without_size(coco.file, picture.id)
            size = coco.bytes[row]
            shape = segmentation_at(stream, coco.starts[row], size, number) if size else outline(box)
            try:
                masks.append(text_of(shape, picture.height, picture.width))
            except ValueError as error:
                raise UserError(f"{coco.file}: annotation {number}: its segmentation {error}") from None
    return masks


def _checked(coco: CocoFile, place: int) -> Federated:
    """What the picture at this place in the file was checked for."""
    picture = coco.pictures[place]
    lists = picture.neg_category_ids, picture.not_exhaustive_category_ids
    if not all(isinstance(one, list) for one in lists):
        expected = "expected lists neg_category_ids and not_exhaustive_category_ids"
        raise coco.error(place, picture, "", expected)
    try:
        return Federated(
            *(np.array([coco.label_of[as_id(own, True) or own] for own in one], np.int64) for one in lists)
        )
    except (KeyError, TypeError) as error:
        listed = f"picture {picture.id!r} lists category {error}"
        raise UserError(f"{coco.file}: {listed}, which is not there") from None


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
