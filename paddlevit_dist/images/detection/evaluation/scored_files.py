"""Reads COCO's files of annotations and of results, and matches one with the other."""

import os
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from ....core.runtime.errors import UserError
from ....core.runtime.files import open_regular
from ....core.runtime.printing import count, shorten
from ....core.tasks.class_labels import require_class_numbers
from ....core.tasks.class_names import make_unique
from ...run_lengths import compress_runs, compute_area, outline, parse_segmentation
from ..coco_files import (
    LARGEST,
    CocoFile,
    Id,
    as_id,
    file_name,
    in_order,
    segmentation_at,
    short,
)
from ..detections import BOXES, MASKS
from ..json_lists import JsonElement, Place, elements
from ..odd_objects import require_sides
from .match_tables import MAX_DETECTIONS, MatchTable
from .matching import AnnotationFile, BoxGroundTruth, CandidateDetections, ImageMasks, make_size_error, match_detections
from .named_results import NamedResult, match_names


def read_annotations(path: Place, kind: str = BOXES) -> AnnotationFile:
    """Read COCO's annotations from a JSON file, skipping lists that the comparison of ``kind`` does not need.

    Raises:
        UserError: the file cannot be read, is not a file of annotations, or is in LVIS's format; the message says
            where.
    """
    return arrange_annotations(CocoFile(os.fspath(path), allows_text_ids=True), kind)[0]


def arrange_annotations(coco: CocoFile, kind: str = BOXES) -> tuple[AnnotationFile, np.ndarray]:
    """Return the annotations of a file by image, and the position in the file of each, int64 (objects,).

    Raises:
        UserError: see ``read_annotations``.
    """
    if coco.federated:
        advice = "COCO's rules count unchecked objects as wrong, so score it with LVIS's tools (lvis-api)"
        raise UserError(
            f"{coco.file}: image {coco.federated[0]!r} was not checked for every category, as in LVIS: {advice}"
        )
    image_ids, usable = in_order(coco.positions), np.flatnonzero(coco.has_owner)
    places = [coco.positions[image_id] for image_id in image_ids]  # in the file, of the images in order
    images = np.argsort(places)[np.array(coco.owners)[usable]] if len(usable) else usable
    order = usable[np.argsort(images, kind="stable")]
    boxes, areas = np.array(coco.boxes).reshape(-1, 4)[order], np.array(coco.areas)[order]
    has_area = (boxes[:, 2:] > 0).all(axis=1)
    require_sides(f"{coco.file}: bbox", boxes[has_area], coco.sizes[np.array(coco.owners, int)[order]][has_area])
    masks = _masks(coco, order, boxes) if kind == MASKS else None
    missing = np.flatnonzero(np.isnan(areas))
    areas[missing] = boxes[missing, 2:].prod(axis=1) if masks is None else [compute_area(masks[row]) for row in missing]
    empty_notice = [] if coco.numbers else [f"{coco.file} has no annotations, so scores are undefined"]
    annotations = AnnotationFile(
        coco.file,
        image_ids,
        coco.sizes[places],
        list(coco.categories),
        make_unique([category.name for category in coco.categories.values()], [f"id {id_}" for id_ in coco.categories]),
        BoxGroundTruth(boxes, np.array(coco.labels)[order], areas, np.array(coco.crowds, bool)[order]),
        masks,
        np.searchsorted(np.sort(images), np.arange(len(image_ids) + 1)),
        [*coco.odd.lines(), *empty_notice],
        [file_name(coco.images[place]) or "" for place in places],
        ["" if category_id in coco.unnamed else category.name for category_id, category in coco.categories.items()],
    )
    return annotations, order


def _masks(coco: CocoFile, order: np.ndarray, boxes: np.ndarray) -> list[bytes]:
    """Return compressed run lengths of the objects ``order``, with the box for an object without a mask."""
    without = [index for index in order.tolist() if not coco.bytes[index]]
    if len(without) == len(order) and len(order):
        raise UserError(f"{coco.file}: annotations need a 'segmentation' to compare masks")
    coco.odd.note_all("object", "without a mask: its box is used", [coco.numbers[index] for index in without])
    masks = []
    with open_regular(coco.file, "rb") as stream:
        for row, box in zip(order.tolist(), boxes.tolist()):
            number, image = coco.numbers[row], coco.images[coco.owners[row]]
            if image.height < 1 or image.width < 1:
                raise make_size_error(coco.file, image.id)
            size = coco.bytes[row]
            shape = segmentation_at(stream, coco.starts[row], size, number) if size else outline(box)
            try:
                masks.append(compress_runs(shape, image.height, image.width))
            except ValueError as error:
                name = file_name(image) or f"image {image.id}"
                raise UserError(f"{coco.file}: annotation {number} of {name}: its segmentation {error}") from None
    return masks


class ResultFile(NamedTuple):
    """Detections ordered by image, then as in the file."""

    path: str  # path of the file
    boxes: np.ndarray  # float64 (n, 4), x, y, width, height
    areas: np.ndarray  # float64 (n,)
    scores: np.ndarray  # float64 (n,)
    labels: np.ndarray  # int64 (n,), as in the annotations; -1 for categories that they do not have
    masks: list[bytes] | None  # as ``run_lengths.compress_runs`` returns them, if masks are compared
    first: np.ndarray  # int64 (images + 1,), first detection of each image
    notices: list[str]  # what differs from what COCO's tools expect
    matched: str = ""  # message on how many images and categories were matched by name; empty if ids decide
    ids: Collection[Id] = ()  # categories of the results, if ids decide
    has_masks: bool = False  # some results do, whether masks or boxes are compared

    def find_rows(self, image: int) -> slice:
        """Return the slice of the detections of an image, by its position."""
        return slice(self.first[image], self.first[image + 1])

    def get_masks(self, image: int) -> list[bytes]:
        """Return the masks of an image's detections, by its position."""
        return (self.masks or [])[self.find_rows(image)]


def read_results(path: Place, annotations: AnnotationFile, kind: str = BOXES) -> ResultFile:
    """Read a list of results from a JSON file.

    Results refer to images and categories by name if they have names, else by id. As in COCO's tools, the first result
    decides for all: if it has a box, boxes are compared unchanged, missing masks are drawn from boxes, and areas are
    the areas of boxes; else boxes are drawn around masks, and areas are pixels.

    Raises:
        UserError: the file cannot be read, is not a list of results, or names images that the annotations lack.
    """
    path, shapes = os.fspath(path), _ResultShapes(annotations, kind)
    rows = read_rows(path, annotations, _ResultRecord, lambda image, label, result: shapes.add(image, result))
    boxes = np.array(shapes.boxes).reshape(-1, 4)
    if shapes.has_boxes:
        require_sides(f"{path}: bbox", boxes, annotations.sizes[rows.images])
    notices, order = rows.notices, np.argsort(rows.images, kind="stable")
    if kind == MASKS and shapes.has_boxes:
        text = "areas are taken from boxes, as in COCO's tools; remove bbox to take them from masks"
        notices = [*notices, f"{path}: results also have boxes, so {text}"]
    found = ResultFile(
        path,
        boxes[order],
        np.array(shapes.areas)[order],
        rows.scores[order],
        rows.labels[order],
        [shapes.masks[row] for row in order.tolist()] if kind == MASKS else None,
        np.searchsorted(rows.images[order], np.arange(len(annotations.image_ids) + 1)),
        notices,
        rows.matched,
        rows.ids,
        shapes.has_masks,
    )

    def count_right(off: int) -> int:
        shifted = found._replace(labels=shift_labels(found.labels, off))
        table = build_match_table(annotations, shifted, kind)
        return np.count_nonzero(table.true_positives & np.uint64(1))  # all areas, IoU 0.5

    require_same_ids(path, rows.ids, annotations, count_right)
    return found


def require_same_ids(
    path: str, ids: Collection[Id], annotations: AnnotationFile, count_right: Callable[[int], int]
) -> None:
    """Refuse results that number the categories in another way, see ``require_class_numbers``.

    ``ids``: categories of the results where ids decide; else empty.
    """
    found, known = ([id_ for id_ in own if isinstance(id_, int)] for own in (ids, annotations.category_ids))
    if len(found) == len(ids) and len(known) == len(annotations.category_ids):
        advice = "give each result its category_name (predictions.json of Ultralytics counts from 1 since 8.3.49)"
        require_class_numbers(path, found, annotations.path, known, count_right, advice, annotations.are_positions)


def shift_labels(labels: np.ndarray, off: int) -> np.ndarray:
    """Return labels with ``off`` subtracted; -1, an unknown category, is kept."""
    return np.where(labels < 0, labels, labels - off)


class ResultRows(NamedTuple):
    """What any results have, in the order of their file."""

    images: np.ndarray  # int64 (n,), position of each result's image in the annotations
    labels: np.ndarray  # int64 (n,), -1 for categories that the annotations do not have
    scores: np.ndarray  # float64 (n,)
    notices: list[str]  # what differs from what COCO's tools expect
    matched: str  # message on how many images and categories were matched by name; empty if ids decide
    ids: Collection[Id]  # categories of the results, if ids decide


def read_rows(
    path: str, annotations: AnnotationFile, kind: type[NamedResult], add: Callable[[int, int, Any], None]
) -> ResultRows:
    """Read images, categories and scores of a list of results in a JSON file.

    Args:
        kind: type of the results, with a ``score``.
        add: called with position of the image, label and result, in their order; its ValueError is what the result has
            that cannot be used.

    Raises:
        UserError: the file cannot be read, is not a list of results, or names images that the annotations lack.
    """
    images, labels, scores = array("q"), array("q"), array("d")
    ids: dict[Id, None] = {}  # categories in the results
    unknown: dict[Id, int] = {}  # images missing from the annotations -> their first result
    try:
        elements, names = _read_elements(path, kind), match_names(path, annotations)
        for number, result, *_ in elements:
            names.require_plain(path, number, result)
            image_id, category, score = result.image_id, result.category_id, result.score
            if not -LARGEST < score < LARGEST:
                raise UserError(f"{path}: result {number} has score {score}: expected a finite number")
            if type(image_id) is not int or type(category) is not int:
                context = f"{path}: result {number} has"
                image_id, category = _id(context, "image_id", image_id), _id(context, "category_id", category)
            image = names.image(result, image_id)
            if image is None:
                unknown.setdefault(image_id, number)
                continue
            label = names.label(result, category)
            ids[category] = None
            images.append(image)
            labels.append(label)
            scores.append(score)
            try:
                add(image, label, result)
            except ValueError as error:
                raise UserError(f"{path}: result {number} has {error}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON in COCO's results format: {error}") from None
    if unknown:
        image_id, number = next(iter(unknown.items()))
        message = f"{count(len(unknown), 'image')} of its results are missing from {annotations.path}"
        hint = _hint(image_id, names.image_id_positions)
        raise UserError(f"{path}: {message}, such as image_id {image_id!r} of result {number}{hint}")
    rows = np.array(images, np.int64), np.array(labels, np.int64), np.array(scores)
    if len(labels) and max(labels) < 0 and not annotations.are_positions:
        theirs = shorten(", ".join(map(repr, ids)), 80)
        ours = shorten(", ".join(map(repr, annotations.category_ids)), 80)
        raise UserError(
            f"{path}: no result is of a category of {annotations.path}: category_id {theirs}, but it has {ours}: use "
            "its ids, or give each result its category_name"
        )
    notices = [*names.notices, *_notices(path, rows[1], names.unknown)]
    return ResultRows(*rows, notices, names.matched, ids if names.labels is None else ())


def _read_elements(path: str, kind: type[NamedResult]) -> Iterator[JsonElement]:
    """Read the results in a file, see ``coco_files.elements``; raise UserError if it is not a list."""
    lists = elements(path, {"": kind}, has_places=False)
    if "" not in lists:
        raise UserError(
            f"{path}: expected a list of results, found an object, as in annotation files; results are "
            f'[{{"image_id": 1, "category_id": 2, {kind.form}, "score": 0.5}}, ...]'
        )
    return lists[""]


def _id(context: str, name: str, value: object) -> Id:
    """Return the id of a result's image or category; raise UserError if it cannot be one."""
    id_ = as_id(value, True)
    if id_ is None:
        raise UserError(f"{context} {name} {short(value)}: expected an integer or a string")
    return id_


def _hint(id_: Id, known_ids: Iterable[Id]) -> str:
    """Explain an unknown id if the known ids have another type."""
    example = next(iter(known_ids))
    if isinstance(id_, str) == isinstance(example, str):
        return ""
    kinds = ("a string", "numbers") if isinstance(id_, str) else ("a number", "strings")
    return f"; it is {kinds[0]}, but image ids are {kinds[1]} there, such as {example!r}"


def _notices(path: str, labels: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return notices on results with unknown categories, and without results."""
    notices, unknown = [], int((labels < 0).sum())
    if unknown:
        examples = f", such as {shorten(', '.join(names[:3]))}," if names else ""
        notices.append(f"{path}: {count(unknown, 'result')} of unlisted categories{examples} ignored")
    if not len(labels):
        notices.append(f"{path} has no results")
    return notices


class _ResultRecord(NamedResult, gc=False, kw_only=True):
    """A result as its file has it."""

    score: float
    bbox: list[float] | None = None
    segmentation: Any = None


class _ResultShapes:
    """Boxes, areas and masks of results, read one by one."""

    def __init__(self, annotations: AnnotationFile, kind: str) -> None:
        self.annotations, self.kind = annotations, kind
        self.has_boxes: bool | None = None  # the first result's
        self.has_masks = False  # any result's
        self.boxes, self.areas = array("d"), array("d")
        self.masks: list[bytes] = []

    def add(self, image: int, result: _ResultRecord) -> None:
        """Add a result's box or mask in the image at this position; raise ValueError, what it has, if unusable."""
        if self.has_boxes is None:
            self.has_boxes = bool(result.bbox)
            if not (result.bbox or result.segmentation):
                raise ValueError("neither bbox nor segmentation")
        self.has_masks = self.has_masks or bool(result.segmentation)
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

    def _mask(self, image: int, shape: object, box: Sequence[float], area: float) -> tuple[Sequence[float], float]:
        """Return box and area of a result with a mask; keep the mask if masks are compared."""
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
    """Match all images of the annotations; ``image_ids`` of the table are positions in ``annotations.image_ids``."""
    num_classes = len(annotations.category_ids)
    tables = [MatchTable.empty(num_classes)]
    images = range(len(annotations.image_ids))
    for image in tqdm(images, desc="matching", unit="image", delay=1.0, disable=None, leave=False):
        truth, rows = annotations.get_truth(image), results.find_rows(image)
        scores, labels = results.scores[rows], results.labels[rows]
        shapes: np.ndarray | ImageMasks = results.boxes[rows]
        if kind == MASKS:
            height = int(annotations.sizes[image, 0])
            shapes = ImageMasks(results.get_masks(image), annotations.get_masks(image), height)
        candidates = CandidateDetections(shapes, scores, labels, results.areas[rows])
        tables.append(match_detections(image, truth, candidates, num_classes, max_detections))
    return MatchTable.joined(tables)
