"""COCO's files of results: what a detector says of many pictures."""

import os
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from tqdm import tqdm

from ....runtime.errors import UserError
from ..coco_files import LARGEST, Id, as_id, elements, short
from ..odd_data import count
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
    path = os.fspath(path)
    position = {own: place for place, own in enumerate(annotations.image_ids)}
    label = {own: place for place, own in enumerate(annotations.category_ids)}
    pictures, labels, scores, shapes = array("q"), array("q"), array("d"), _Shapes(annotations, kind)
    try:
        lists = elements(path, {"": _Result})
        if "" not in lists:
            raise UserError(
                f"{path}: expected a list of results, found an object, as annotations are; results are "
                '[{"image_id": 1, "category_id": 2, "bbox": [x, y, width, height], "score": 0.5}, ...]'
            )
        for number, result, *_ in lists[""]:
            refused = f"{path}: result {number} has"
            if not -LARGEST < result.score < LARGEST:
                raise UserError(f"{refused} score {result.score}: expected a finite number")
            own = _id(refused, "image_id", result.image_id)
            if own not in position:
                raise UserError(f"{refused} image_id {own!r}, which is not in {annotations.path}{_hint(own, position)}")
            pictures.append(position[own])
            labels.append(label.get(_id(refused, "category_id", result.category_id), -1))
            scores.append(result.score)
            try:
                shapes.add(pictures[-1], result)
            except ValueError as error:
                raise UserError(f"{refused} {error}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON as COCO's results are: {error}") from None
    order, of_rows = np.argsort(pictures, kind="stable"), np.array(labels)
    return ResultFile(
        path,
        np.array(shapes.boxes).reshape(-1, 4)[order],
        np.array(shapes.areas)[order],
        np.array(scores)[order],
        of_rows[order],
        [shapes.masks[row] for row in order.tolist()] if kind == MASKS else None,
        np.searchsorted(np.array(pictures)[order], np.arange(len(position) + 1)),
        _notices(path, of_rows, kind == MASKS and bool(shapes.has_boxes)),
    )


def _id(refused: str, name: str, value: Any) -> Id:
    own = as_id(value, True)
    if own is None:
        raise UserError(f"{refused} {name} {short(value)}: expected a whole number or a text")
    return own


def _hint(own: Id, known: Iterable[Id]) -> str:
    """What to say of an unknown id where ids are of another kind."""
    example = next(iter(known))
    if isinstance(own, str) == isinstance(example, str):
        return ""
    kinds = ("a text", "numbers") if isinstance(own, str) else ("a number", "texts")
    return f"; it is {kinds[0]}, and ids of pictures are {kinds[1]} there, such as {example!r}"


def _notices(path: str, labels: np.ndarray, have_boxes_too: bool) -> list[str]:
    notices, unknown = [], int((labels < 0).sum())
    if unknown:
        notices.append(f"{path}: {count(unknown, 'result')} of categories that are not listed: left out")
    if not len(labels):
        notices.append(f"{path}: no results in it")
    elif have_boxes_too:
        what = "areas are those of the boxes, as in COCO's tools; leave bbox out for those of the masks"
        notices.append(f"{path}: results have boxes too, so that their {what}")
    return notices


class _Result(msgspec.Struct, gc=False):
    image_id: int | float | str
    category_id: int | float | str
    score: float
    bbox: list[float] | None = None
    segmentation: Any = None


class _Shapes:
    """Boxes, areas and masks of results, read one by one."""

    def __init__(self, annotations: AnnotationFile, kind: str) -> None:
        self.annotations, self.kind = annotations, kind
        self.has_boxes: bool | None = None  # the first result's
        self.boxes, self.areas = array("d"), array("d")
        self.masks: list[bytes] = []

    def add(self, picture: int, result: _Result) -> None:
        """Take the box or the mask of a result in this picture, by its position.

        Raises:
            ValueError: it has none that can be used; the message continues "result 7 has ...".
        """
        if self.has_boxes is None:
            self.has_boxes = bool(result.bbox)
            if not (result.bbox or result.segmentation):
                raise ValueError("neither bbox nor segmentation")
        box: Sequence[float] = result.bbox or ()
        if not self.has_boxes:
            box = (0.0, 0.0, 0.0, 0.0)
            if result.segmentation is None:
                raise ValueError("no segmentation, unlike the first result")
        elif len(box) != 4 or not all(-LARGEST < value < LARGEST for value in box):
            raise ValueError(f"bbox {short(result.bbox)}: expected four finite numbers, x, y, width, height")
        area = box[2] * box[3]
        if self.kind == MASKS or not self.has_boxes:  # most files have no more than boxes, and may have millions
            try:
                box, area = self._mask(picture, result.segmentation, box, area)
            except ValueError as error:
                raise ValueError(f"a segmentation that {error}") from None
        self.boxes.extend(box)
        self.areas.append(area)

    def _mask(self, picture: int, shape: Any, box: Sequence[float], area: float) -> tuple[Sequence[float], float]:
        """Box and area of a result with a mask, which is kept where masks are compared."""
        height, width = self.annotations.sizes[picture].tolist()
        if self.kind == BOXES:  # the size need not be known
            runs = runs_of(shape, *((height, width) if min(height, width) > 0 else (None, None)))
            return runs.box(), runs.area
        height, width = self.annotations.size_of(picture)
        text = text_of(outline(box) if shape is None else shape, height, width)
        self.masks.append(text)
        return box, area if self.has_boxes else area_of(text)


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
