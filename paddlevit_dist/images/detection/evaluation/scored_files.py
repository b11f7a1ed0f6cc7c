"""COCO's files of annotations and of results, as an evaluation needs them, and one scored against the other."""

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from tqdm import tqdm

from ....runtime.errors import UserError
from ....runtime.files import open_regular
from ....runtime.printing import shorten
from ...data.data_warnings import count
from ...run_lengths import compress_runs, compute_area, outline, parse_segmentation
from ..coco_files import (
    LARGEST,
    CocoFile,
    Id,
    JsonElement,
    as_id,
    elements,
    file_name,
    in_order,
    require_sides,
    segmentation_at,
    short,
)
from ..detections import BOXES, MASKS
from .accumulation import MAX_DETECTIONS, GrowingTable, MatchTable
from .matching import BoxGroundTruth, CandidateDetections, ImageMasks, match_found
from .named_results import match_names


class AnnotationFile(NamedTuple):
    """The images, categories and annotations of a file. Annotations are ordered by image, and those of an image as
    in the file.

    Attributes:
        path: of the file.
        image_ids: ascending; as texts where one is no number.
        sizes: int64 (images, 2), height and width; 0 where the file does not say.
        category_ids: likewise; label k stands for the k-th.
        names: of the categories, each different.
        truth: of all images.
        masks: of the annotations, as ``run_lengths.compress_runs`` returns them, where masks are compared.
        first: int64 (images + 1,), first annotation of each image.
        notices: what in the file differs from what COCO's tools write.
        file_names: of the images; "" where the file does not say.
        own_names: of the categories, as the file has them; "" where it has none.
    """

    path: str
    image_ids: list[Id]
    sizes: np.ndarray
    category_ids: list[Id]
    names: list[str]
    truth: BoxGroundTruth
    masks: list[bytes] | None
    first: np.ndarray
    notices: list[str]
    file_names: Sequence[str] = ()
    own_names: Sequence[str] = ()

    def get_truth(self, image: int) -> BoxGroundTruth:
        """The annotations of an image, by its position."""
        chosen = slice(self.first[image], self.first[image + 1])
        return BoxGroundTruth(*(column[chosen] for column in self.truth))

    def get_masks(self, image: int) -> list[bytes]:
        """The masks of an image's annotations."""
        return (self.masks or [])[self.first[image] : self.first[image + 1]]

    def get_size(self, image: int) -> tuple[int, int]:
        """Height and width of an image.

        Raises:
            UserError: the file does not say.
        """
        height, width = self.sizes[image].tolist()
        if height < 1 or width < 1:
            raise _without_size(self.path, self.image_ids[image])
        return height, width


def read_annotations(path: Any, kind: str = BOXES) -> AnnotationFile:
    """Read COCO's annotations from a JSON file; lists that an evaluation does not need are passed over.

    Args:
        kind: ``BOXES`` or ``MASKS``, what is going to be compared.
    Raises:
        UserError: the file cannot be read, or is none of annotations, or has LVIS's; the message says where.
    """
    coco = CocoFile(os.fspath(path), takes_texts=True)
    if coco.federated:
        told = "COCO's rules would take what nobody looked for as wrong; LVIS's own tools (lvis-api) score it"
        raise UserError(
            f"{coco.file}: image {coco.federated[0]!r} was not checked for every category, as in LVIS: {told}"
        )
    image_ids, kept = in_order(coco.positions), np.flatnonzero(coco.kept)
    places = [coco.positions[own] for own in image_ids]  # in the file, of the images in order
    images = np.argsort(places)[np.array(coco.owners)[kept]] if len(kept) else kept
    order = kept[np.argsort(images, kind="stable")]
    boxes, areas = np.array(coco.boxes).reshape(-1, 4)[order], np.array(coco.areas)[order]
    has_area = (boxes[:, 2:] > 0).all(axis=1)
    require_sides(coco.file, boxes[has_area], coco.sizes[np.array(coco.owners, int)[order]][has_area])
    masks = _masks(coco, order, boxes) if kind == MASKS else None
    missing = np.flatnonzero(np.isnan(areas))
    areas[missing] = boxes[missing, 2:].prod(axis=1) if masks is None else [compute_area(masks[row]) for row in missing]
    nothing = [] if coco.numbers else [f"{coco.file}: no annotations in it, so no score is defined"]
    return AnnotationFile(
        coco.file,
        image_ids,
        coco.sizes[places],
        list(coco.categories),
        different_names({own: category.name for own, category in coco.categories.items()}),
        BoxGroundTruth(boxes, np.array(coco.labels)[order], areas, np.array(coco.crowds, bool)[order]),
        masks,
        np.searchsorted(np.sort(images), np.arange(len(image_ids) + 1)),
        [*coco.odd.lines(), *nothing],
        [file_name(coco.images[place]) or "" for place in places],
        ["" if own in coco.unnamed else category.name for own, category in coco.categories.items()],
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
            number, image = coco.numbers[row], coco.images[coco.owners[row]]
            if image.height < 1 or image.width < 1:
                raise _without_size(coco.file, image.id)
            size = coco.bytes[row]
            shape = segmentation_at(stream, coco.starts[row], size, number) if size else outline(box)
            try:
                masks.append(compress_runs(shape, image.height, image.width))
            except ValueError as error:
                raise UserError(f"{coco.file}: annotation {number}: its segmentation {error}") from None
    return masks


def _without_size(path: str, image_id: Id) -> UserError:
    return UserError(f"{path}: image {image_id!r} has no height and width, which its masks need")


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


class ResultFile(NamedTuple):
    """Detections ordered by image, and those of an image as in the file.

    Attributes:
        path: of the file.
        boxes: float64 (n, 4), x, y, width, height.
        areas: float64 (n,).
        scores: float64 (n,).
        labels: int64 (n,), as in the annotations, -1 for categories that they do not have.
        masks: of each, as ``run_lengths.compress_runs`` returns them, where masks are compared.
        first: int64 (images + 1,), first detection of each image.
        notices: what differs from what COCO's tools expect.
        matched: how many images and categories were matched by their names, in words; empty where numbers decide.
    """

    path: str
    boxes: np.ndarray
    areas: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    masks: list[bytes] | None
    first: np.ndarray
    notices: list[str]
    matched: str = ""

    def find_rows(self, image: int) -> slice:
        """Where the detections of an image are, by its position."""
        return slice(self.first[image], self.first[image + 1])

    def get_masks(self, image: int) -> list[bytes]:
        """The masks of an image's detections."""
        return (self.masks or [])[self.find_rows(image)]


def read_results(path: Any, annotations: AnnotationFile, kind: str = BOXES) -> ResultFile:
    """Read a list of results from a JSON file.

    Args:
        annotations: whose images and categories they mean, by their names where results have them, else by their ids.
        kind: ``BOXES`` or ``MASKS``, what is going to be compared. As in COCO's tools the first result decides what all
            have: with a box, boxes are compared as they are, masks are drawn from boxes where there are none, and areas
            are those of boxes; without, boxes are drawn around masks, and areas are pixels.
    Raises:
        UserError: the file cannot be read, is none of results, or names images that the annotations do not have.
    """
    path = os.fspath(path)
    images, labels, scores, shapes = array("q"), array("q"), array("d"), _ResultShapes(annotations, kind)
    unknown: dict[Id, int] = {}  # images that the annotations do not have -> their first result
    try:
        found, named = _read_elements(path), match_names(path, annotations)
        for number, result, *_ in found:
            refused = f"{path}: result {number} has"
            named.require_plain(path, number, result)
            if not -LARGEST < result.score < LARGEST:
                raise UserError(f"{refused} score {result.score}: expected a finite number")
            own, category = (_id(refused, name, getattr(result, name)) for name in ("image_id", "category_id"))
            image = named.image(result, own)
            if image is None:
                unknown.setdefault(own, number)
                continue
            images.append(image)
            labels.append(named.label(result, category))
            scores.append(result.score)
            try:
                shapes.add(images[-1], result)
            except ValueError as error:
                raise UserError(f"{refused} {error}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON as COCO's results are: {error}") from None
    if unknown:
        own, number = next(iter(unknown.items()))
        told = f"{count(len(unknown), 'image')} of its results are not in {annotations.path}"
        raise UserError(f"{path}: {told}, as image_id {own!r} of result {number}{_hint(own, named.of_image_id)}")
    order, of_rows = np.argsort(images, kind="stable"), np.array(labels)
    if shapes.has_boxes:
        require_sides(path, np.array(shapes.boxes).reshape(-1, 4), annotations.sizes[np.array(images, int)])
    return ResultFile(
        path,
        np.array(shapes.boxes).reshape(-1, 4)[order],
        np.array(shapes.areas)[order],
        np.array(scores)[order],
        of_rows[order],
        [shapes.masks[row] for row in order.tolist()] if kind == MASKS else None,
        np.searchsorted(np.array(images)[order], np.arange(len(annotations.image_ids) + 1)),
        [*named.notices, *_notices(path, of_rows, kind == MASKS and bool(shapes.has_boxes), named.unknown)],
        named.matched,
    )


def _read_elements(path: str) -> Iterator[JsonElement]:
    """The results in a file, see ``coco_files.elements``.

    Raises:
        UserError: it is no list.
    """
    lists = elements(path, {"": _ResultRecord})
    if "" not in lists:
        raise UserError(
            f"{path}: expected a list of results, found an object, as annotations are; results are "
            '[{"image_id": 1, "category_id": 2, "bbox": [x, y, width, height], "score": 0.5}, ...]'
        )
    return lists[""]


def _id(refused: str, name: str, value: Any) -> Id:
    own = as_id(value, True)
    if own is None:
        raise UserError(f"{refused} {name} {short(value)}: expected a whole number or a text")
    return own


def _hint(own: Id, known: Iterable[Id]) -> str:
    """Say what to say of an unknown id where ids are of another kind."""
    example = next(iter(known))
    if isinstance(own, str) == isinstance(example, str):
        return ""
    kinds = ("a text", "numbers") if isinstance(own, str) else ("a number", "texts")
    return f"; it is {kinds[0]}, and ids of images are {kinds[1]} there, such as {example!r}"


def _notices(path: str, labels: np.ndarray, have_boxes_too: bool, names: Sequence[str]) -> list[str]:
    notices, unknown = [], int((labels < 0).sum())
    if unknown:
        shown = f", as {shorten(', '.join(names[:3]))}" if names else ""
        notices.append(f"{path}: {count(unknown, 'result')} of categories that are not listed{shown}: left out")
    if not len(labels):
        notices.append(f"{path}: no results in it")
    elif have_boxes_too:
        what = "areas are those of the boxes, as in COCO's tools; leave bbox out for those of the masks"
        notices.append(f"{path}: results have boxes too, so that their {what}")
    return notices


class _ResultRecord(msgspec.Struct, gc=False):
    image_id: int | float | str
    category_id: int | float | str
    score: float
    file_name: Any = None
    category_name: Any = None
    bbox: list[float] | None = None
    segmentation: Any = None


class _ResultShapes:
    """Boxes, areas and masks of results, read one by one."""

    def __init__(self, annotations: AnnotationFile, kind: str) -> None:
        self.annotations, self.kind = annotations, kind
        self.has_boxes: bool | None = None  # the first result's
        self.boxes, self.areas = array("d"), array("d")
        self.masks: list[bytes] = []

    def add(self, image: int, result: _ResultRecord) -> None:
        """Take the box or the mask of a result in this image, by its position.

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
                box, area = self._mask(image, result.segmentation, box, area)
            except ValueError as error:
                raise ValueError(f"a segmentation that {error}") from None
        self.boxes.extend(box)
        self.areas.append(area)

    def _mask(self, image: int, shape: Any, box: Sequence[float], area: float) -> tuple[Sequence[float], float]:
        """Box and area of a result with a mask, which is kept where masks are compared."""
        height, width = self.annotations.sizes[image].tolist()
        if self.kind == BOXES:  # the size need not be known
            runs = parse_segmentation(shape, *((height, width) if min(height, width) > 0 else (None, None)))
            return runs.box(), runs.area
        height, width = self.annotations.get_size(image)
        text = compress_runs(outline(box) if shape is None else shape, height, width)
        self.masks.append(text)
        return box, area if self.has_boxes else compute_area(text)


def build_match_table(
    annotations: AnnotationFile, results: ResultFile, kind: str, max_detections: Sequence[int] = MAX_DETECTIONS
) -> MatchTable:
    """All images of the annotations, matched. ``image_ids`` of the table are positions in ``annotations.image_ids``.

    Args:
        kind: of what both were read for.
        max_detections: see ``match_found``.
    """
    num_classes = len(annotations.category_ids)
    tables = GrowingTable(num_classes)
    images = range(len(annotations.image_ids))
    for image in tqdm(images, desc="matching", unit="image", delay=1.0, disable=None, leave=False):
        truth, rows = annotations.get_truth(image), results.find_rows(image)
        scores, labels = results.scores[rows], results.labels[rows]
        shapes: Any = results.boxes[rows]
        if kind == MASKS:
            height = int(annotations.sizes[image, 0])
            shapes = ImageMasks(results.get_masks(image), annotations.get_masks(image), height)
        found = CandidateDetections(shapes, scores, labels, results.areas[rows])
        tables.add(match_found(image, truth, found, num_classes, max_detections))
    return tables.joined()
