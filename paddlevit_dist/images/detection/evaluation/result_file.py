"""COCO's files of results: what a detector says of many pictures."""

import os
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from tqdm import tqdm

from ....runtime.errors import UserError
from ..coco_files import LARGEST, Id, as_id, elements, short
from ..run_lengths import area_of, outline, runs_of, text_of
from .accumulation import MAX_DETECTIONS, UNDEFINED, GrowingTable, MatchTable
from .annotation_file import AnnotationFile
from .detections import BOXES, MASKS
from .matching import Candidates, Masks, match_found

FEDERATED_LIMITS = (1, 10, 300)


class ResultFile(NamedTuple):
    """Detections ordered by picture, and those of a picture as in the file.

    Attributes:
        path: of the file.
        boxes: float64 (n, 4), x, y, width, height.
        areas: float64 (n,).
        scores: float64 (n,).
        labels: int64 (n,), as in the annotations, -1 for categories that they do not have.
        masks: of each, as ``run_lengths.text_of`` returns them, where masks are compared.
        first: int64 (pictures + 1,), first detection of each picture.
        notices: what differs from what COCO's tools expect.
    """

    path: str
    boxes: np.ndarray
    areas: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    masks: list[bytes] | None
    first: np.ndarray
    notices: list[str]

    def rows_of(self, picture: int) -> slice:
        """Where the detections of a picture are, by its position."""
        return slice(self.first[picture], self.first[picture + 1])

    def masks_of(self, picture: int) -> list[bytes]:
        """The masks of a picture's detections."""
        return (self.masks or [])[self.rows_of(picture)]


def read_results(path: Any, annotations: AnnotationFile, kind: str = BOXES) -> ResultFile:
    """Read a list of results from a JSON file.

    Args:
        annotations: whose pictures and categories they name.
        kind: ``BOXES`` or ``MASKS``, what is going to be compared. As in COCO's tools the first result decides what all
            have: with a box, boxes are compared as they are, masks are drawn from boxes where there are none, and areas
            are those of boxes; without, boxes are drawn around masks, and areas are pixels.
    Raises:
        UserError: the file cannot be read, is none of results, or names pictures that the annotations do not have.
    """
    reader = _Reader(os.fspath(path), annotations, kind)
    try:
        lists = elements(path, {"": _Result})
        if "" not in lists:
            raise UserError(
                f"{path}: expected a list of results, found an object, as annotations are; results are "
                '[{"image_id": 1, "category_id": 2, "bbox": [x, y, width, height], "score": 0.5}, ...]'
            )
        for element in lists[""]:
            reader.result(element.number, element.value)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON as COCO's results are: {error}") from None
    return reader.ended()


class _Result(msgspec.Struct, gc=False):
    image_id: int | float | str
    category_id: int | float | str
    score: float
    bbox: list[float] | None = None
    segmentation: Any = None


class _Reader:
    """What was read so far."""

    def __init__(self, path: str, annotations: AnnotationFile, kind: str) -> None:
        self.path, self.annotations, self.kind = path, annotations, kind
        self.position = {own: place for place, own in enumerate(annotations.image_ids)}
        self.label = {own: place for place, own in enumerate(annotations.category_ids)}
        self.boxes, self.areas, self.scores = array("d"), array("d"), array("d")
        self.pictures, self.labels = array("q"), array("q")
        self.masks: list[bytes] = []
        self.has_boxes = True
        self.unknown_pictures: dict[Id, int] = {}  # id -> its first result

    def result(self, number: int, result: _Result) -> None:
        if number == 0:
            self.has_boxes = bool(result.bbox)
            if not (result.bbox or result.segmentation):
                raise self._error(0, "has neither bbox nor segmentation")
        if not -LARGEST < result.score < LARGEST:
            raise self._error(number, f"has score {result.score}: expected a finite number")
        image_id = self._id(number, result.image_id, "image_id")
        picture = self.position.get(image_id, -1)
        self.pictures.append(picture)
        self.labels.append(self.label.get(self._id(number, result.category_id, "category_id"), -1))
        self.scores.append(result.score)
        if picture >= 0:
            self._shape(number, picture, result)
        else:
            self.unknown_pictures.setdefault(image_id, number)
            self._add((0.0, 0.0, 0.0, 0.0), 0.0)

    def _shape(self, number: int, picture: int, result: _Result) -> None:
        """Add the box or mask of a result."""
        box: Sequence[float] = (0.0, 0.0, 0.0, 0.0)
        if self.has_boxes:
            box = result.bbox or ()
            if len(box) != 4 or not all(-LARGEST < value < LARGEST for value in box):
                shown = short(result.bbox)
                raise self._error(number, f"has bbox {shown}: expected four finite numbers, x, y, width, height")
            if self.kind == BOXES:  # most files have no more, and may have millions of them
                self._add(box, box[2] * box[3])
                return
        elif result.segmentation is None:
            raise self._error(number, "has no segmentation, unlike the first result")
        height, width = self._size(picture)
        try:
            if self.kind == BOXES:
                runs = runs_of(result.segmentation, height, width)
                self._add(runs.box(), runs.area)
            elif result.segmentation is None:
                self._add(box, box[2] * box[3], text_of(outline(box), height, width))
            else:
                text = text_of(result.segmentation, height, width)
                self._add(box, box[2] * box[3] if self.has_boxes else area_of(text), text)
        except ValueError as error:
            raise self._error(number, f"has a segmentation that {error}") from None

    def _size(self, picture: int) -> tuple[int | None, int | None]:
        """Height and width of a picture; where boxes are drawn around masks they need not be known."""
        if self.kind == BOXES and self.annotations.sizes[picture].min() < 1:
            return None, None
        return self.annotations.size_of(picture)

    def _add(self, box: Sequence[float], area: float, mask: bytes = b"") -> None:
        self.boxes.extend(box)
        self.areas.append(area)
        self.masks.append(mask)

    def _id(self, number: int, value: Any, name: str) -> Id:
        own = as_id(value, True)
        if own is None:
            raise self._error(number, f"has {name} {short(value)}: expected a whole number or a text")
        return own

    def _error(self, number: int, message: str) -> UserError:
        return UserError(f"{self.path}: result {number} {message}")

    def ended(self) -> ResultFile:
        self._refuse_unknown_pictures()
        pictures, labels = np.array(self.pictures), np.array(self.labels)
        order = np.argsort(pictures, kind="stable")
        return ResultFile(
            self.path,
            np.array(self.boxes).reshape(-1, 4)[order],
            np.array(self.areas)[order],
            np.array(self.scores)[order],
            labels[order],
            [self.masks[row] for row in order.tolist()] if self.kind == MASKS else None,
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

    def _notices(self, labels: np.ndarray) -> list[str]:
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


def table_of(annotations: AnnotationFile, results: ResultFile, kind: str) -> MatchTable:
    """All pictures of the annotations, matched. ``image_ids`` of the table are positions in ``annotations.image_ids``.

    Args:
        kind: of what both were read for.
    """
    num_classes = len(annotations.category_ids)
    tables = GrowingTable(num_classes)
    pictures = range(len(annotations.image_ids))
    for picture in tqdm(pictures, desc="matching", unit="picture", delay=1.0, disable=None, leave=False):
        truth, rows = annotations.truth_of(picture), results.rows_of(picture)
        scores, labels = results.scores[rows], results.labels[rows]
        checked = annotations.checked[picture] if annotations.checked else None
        if checked is not None:  # LVIS's tools leave out what has no area
            labels = np.where(results.areas[rows] > 0, labels, -1)
            truth = truth._replace(labels=np.where(truth.areas > 0, truth.labels, -1))
        shapes: Any = results.boxes[rows]
        if kind == MASKS:
            height = int(annotations.sizes[picture, 0])
            shapes = Masks(results.masks_of(picture), annotations.masks_of(picture), height)
        found = Candidates(shapes, scores, labels, results.areas[rows])
        tables.add(match_found(picture, truth, found, num_classes, limits_of(annotations), checked))
    return tables.joined()


def limits_of(annotations: AnnotationFile) -> tuple[int, ...]:
    """The numbers of detections that recall is told for."""
    return FEDERATED_LIMITS if annotations.checked else MAX_DETECTIONS


def by_frequency(annotations: AnnotationFile, class_ap: np.ndarray) -> dict[str, float]:
    """Mean AP of the categories of each frequency, by the names that the file gives them; -1 where none is annotated.

    Args:
        class_ap: float64 (categories, 3), of ``Accumulated``.
    """
    frequencies = np.array(annotations.frequencies)
    result = {}
    for name in sorted(set(annotations.frequencies) - {""}):
        values = class_ap[frequencies == name, 0]
        values = values[values > UNDEFINED]
        result[name] = float(values.mean()) if len(values) else UNDEFINED
    return result
