"""COCO's files of results: what a detector says of many pictures."""

from __future__ import annotations

import os
from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ....errors import UserError
from ....files import open_regular
from ..coco_reader import LARGEST, Id, as_id, short
from ..json_stream import elements
from ..run_lengths import area_of, rectangle, runs_of, text_of
from .annotation_file import BOXES, MASKS, AnnotationFile


class ResultFile(NamedTuple):
    """Detections ordered by picture, and those of a picture as in the file.

    Attributes:
        path: of the file.
        boxes: float64 (n, 4), x, y, width, height.
        areas: float64 (n,).
        scores: float64 (n,).
        labels: int64 (n,), as in the annotations, -1 for categories that they do not have.
        masks: of each, as ``run_lengths.text_of`` returns them, where masks are compared.
        numbers: int64 (n,), places in the file.
        first: int64 (pictures + 1,), first detection of each picture.
        notices: what differs from what COCO's tools expect.
    """

    path: str
    boxes: np.ndarray
    areas: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    masks: Optional[List[bytes]]
    numbers: np.ndarray
    first: np.ndarray
    notices: List[str]

    def rows_of(self, picture: int) -> slice:
        """Where the detections of a picture are, by its position."""
        return slice(self.first[picture], self.first[picture + 1])

    def masks_of(self, picture: int) -> List[bytes]:
        """The masks of a picture's detections."""
        return (self.masks or [])[self.rows_of(picture)]


def read_results(
    path: Any, annotations: AnnotationFile, kind: str = BOXES, progress: Callable[[int], None] = lambda place: None
) -> ResultFile:
    """Read a list of results from a JSON file.

    Args:
        annotations: whose pictures and categories they name.
        kind: ``BOXES`` or ``MASKS``, what is going to be compared. As in COCO's tools the first result decides what all
            have: with a box, boxes are compared as they are, masks are drawn from boxes where there are none, and areas
            are those of boxes; without, boxes are drawn around masks, and areas are pixels.
        progress: called with the place in the file, in bytes.
    Raises:
        UserError: the file cannot be read, is none of results, or names pictures that the annotations do not have.
    """
    reader = _Reader(os.fspath(path), annotations, kind)
    try:
        _require_list(path)
        for element in elements(path):
            reader.result(element.number, element.value)
            if element.number % 1000 == 0:
                progress(element.end)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON as COCO's results are: {error}") from None
    return reader.ended()


def _require_list(path: Any) -> None:
    """Refuse a file that begins as an object does."""
    with open_regular(path, "rb") as stream:
        beginning = stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if beginning.startswith(b"{"):
        raise UserError(
            f"{path}: expected a list of results, found an object, as annotations are; results are "
            '[{"image_id": 1, "category_id": 2, "bbox": [x, y, width, height], "score": 0.5}, ...]'
        )


class _Reader:
    """What was read so far."""

    def __init__(self, path: str, annotations: AnnotationFile, kind: str) -> None:
        self.path, self.annotations, self.kind = path, annotations, kind
        self.position = {own: place for place, own in enumerate(annotations.image_ids)}
        self.label = {own: place for place, own in enumerate(annotations.category_ids)}
        self.boxes, self.areas, self.scores = array("d"), array("d"), array("d")
        self.pictures, self.labels = array("l"), array("l")
        self.masks: List[bytes] = []
        self.has_boxes = True
        self.unknown_pictures: Dict[Id, int] = {}  # id -> its first result

    def result(self, number: int, result: Any) -> None:
        place = f"result {number}"
        image_id = _id(self.path, place, result, "image_id")
        category_id = _id(self.path, place, result, "category_id")
        if "score" not in result:
            raise UserError(f"{self.path}: {place} has no score")
        _check_number(self.path, place, "score", result["score"])
        picture = self.position.get(image_id, -1)
        if picture < 0:
            self.unknown_pictures.setdefault(image_id, number)
        if number == 0:
            self.has_boxes = result.get("bbox") not in (None, [])
            if not self.has_boxes and "segmentation" not in result:
                raise UserError(f"{self.path}: {place} has neither bbox nor segmentation")
        self.pictures.append(picture)
        self.labels.append(self.label.get(category_id, -1))
        self.scores.append(result["score"])
        if picture >= 0:
            self._shape(place, picture, result)
        else:
            self._add((0.0, 0.0, 0.0, 0.0), 0.0, b"")

    def _shape(self, place: str, picture: int, result: Dict[str, Any]) -> None:
        """Add the box or mask of a result."""
        box: Any = (0.0, 0.0, 0.0, 0.0)
        if self.has_boxes:
            box = result.get("bbox")
            _check_box(self.path, place, box)
            if self.kind == BOXES:  # most files have no more, and may have millions of them
                self._add(box, box[2] * box[3])
                return
        elif "segmentation" not in result:
            raise UserError(f"{self.path}: {place} has no segmentation, unlike the first result")
        height, width = self._size(picture)
        try:
            if self.kind == BOXES:
                runs = runs_of(result["segmentation"], height, width)
                self._add(runs.box(), runs.area)
            elif "segmentation" in result:
                text = text_of(result["segmentation"], height, width)
                self._add(box, box[2] * box[3] if self.has_boxes else area_of(text), text)
            else:
                self._add(box, box[2] * box[3], rectangle(box, height, width).text())  # type: ignore[arg-type]
        except ValueError as error:
            raise UserError(f"{self.path}: {place}: its segmentation {error}") from None

    def _size(self, picture: int) -> Tuple[Optional[int], Optional[int]]:
        """Height and width of a picture; where boxes are drawn around masks they need not be known."""
        if self.kind == BOXES and self.annotations.sizes[picture].min() < 1:
            return None, None
        return self.annotations.size_of(picture)

    def _add(self, box: Sequence[float], area: float, mask: bytes = b"") -> None:
        self.boxes.extend(box)
        self.areas.append(area)
        if self.kind == MASKS:
            self.masks.append(mask)

    def ended(self) -> ResultFile:
        self._refuse_unknown_pictures()
        pictures, labels = np.array(self.pictures, np.int64), np.array(self.labels, np.int64)
        order = np.argsort(pictures, kind="stable")
        return ResultFile(
            self.path,
            np.array(self.boxes).reshape(-1, 4)[order],
            np.array(self.areas)[order],
            np.array(self.scores)[order],
            labels[order],
            [self.masks[row] for row in order.tolist()] if self.kind == MASKS else None,
            order,
            np.searchsorted(pictures[order], np.arange(len(self.annotations.image_ids) + 1)),
            self._notices(labels),
        )

    def _refuse_unknown_pictures(self) -> None:
        if not self.unknown_pictures:
            return
        own, number = next(iter(self.unknown_pictures.items()))
        known = self.annotations.image_ids[0]
        hint = ""
        if isinstance(own, str) != isinstance(known, str):
            kinds = ("a text", "numbers") if isinstance(own, str) else ("a number", "texts")
            hint = f"; it is {kinds[0]}, and ids of pictures are {kinds[1]} there, such as {known!r}"
        raise UserError(
            f"{self.path}: {len(self.unknown_pictures):,} pictures are not in {self.annotations.path}, the first is "
            f"image_id {own!r} (result {number}){hint}"
        )

    def _notices(self, labels: np.ndarray) -> List[str]:
        notices = []
        unknown = int((labels < 0).sum())
        if unknown:
            notices.append(f"{self.path}: {unknown:,} results are of categories that are not listed: left out")
        if not len(labels):
            notices.append(f"{self.path}: no results in it")
        elif self.kind == MASKS and self.has_boxes:
            what = "areas are those of the boxes, as in COCO's tools; leave bbox out for those of the masks"
            notices.append(f"{self.path}: results have boxes too, so that their {what}")
        return notices


def _id(path: str, place: str, entry: Any, name: str) -> Id:
    if not isinstance(entry, dict):
        raise UserError(f"{path}: {place}: expected an object, found {short(entry)}")
    if name not in entry:
        raise UserError(f"{path}: {place} has no {name}")
    own = as_id(entry[name], True)
    if own is None:
        raise UserError(f"{path}: {place}: {name} must be a whole number or a text, found {short(entry[name])}")
    return own


def _check_box(path: str, place: str, box: Any) -> None:
    if box is None:
        raise UserError(f"{path}: {place} has no bbox; expected [x, y, width, height]")
    if not isinstance(box, list) or len(box) != 4:
        raise UserError(f"{path}: {place}: bbox must be [x, y, width, height], found {short(box)}")
    for number in box:
        if type(number) is not float or not -LARGEST < number < LARGEST:  # a call for each would take a second
            _check_number(path, place, "bbox", number)


def _check_number(path: str, place: str, name: str, number: Any) -> None:
    if not isinstance(number, (int, float)) or not -LARGEST < number < LARGEST:
        raise UserError(f"{path}: {place}: {name} must be of finite numbers, found {short(number)}")
