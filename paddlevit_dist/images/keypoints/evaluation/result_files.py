"""Reads annotations and results with keypoints in COCO's formats, and matches one with the other. Needs no Paddle."""

import os
import struct
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ....core.runtime.errors import UserError
from ....core.tasks.score_kind import Arrays
from ...data.data_warnings import first_names
from ...detection.evaluation.matching import AnnotationFile
from ...detection.evaluation.named_results import NamedResult
from ...detection.evaluation.scored_files import arrange_annotations, read_rows, require_same_ids, shift_labels
from ..data.coco_points import KeypointFile
from ..described_points import DescribedPoints, choose_sigmas
from ..detected_keypoints import DetectedKeypoints
from ..keypoint_set import KeypointSet
from .matching import MAX_DETECTIONS, KeypointCandidates, KeypointMatches, KeypointTruth, PointTable, match_keypoints
from .point_scores import PCK_SHARE, compare_object

if TYPE_CHECKING:  # datasets are only read if they are given, and importing them takes time
    from ...detection.data.detection_dataset import DetectionDataset

_FARTHEST = 1e9  # pixels
_VALUES = 3  # of a point: x, y, score


class KeypointAnnotations(NamedTuple):
    """Annotations with keypoints, ordered by image."""

    file: AnnotationFile  # images, categories and boxes
    truth: KeypointTruth  # points of all annotations
    sets: tuple[KeypointSet, ...]  # points of each category
    remarks: list[str]  # where sigmas are from, one line each

    def match(self, results: "KeypointResults", most: int) -> KeypointMatches:
        """Match results with the annotations; image ids of the table are positions in ``file.image_ids``."""
        ids = np.arange(len(self.file.image_ids))
        return match_keypoints(ids, self.truth, results.found, PointTable.from_sets(self.sets), most)


class KeypointResults(NamedTuple):
    """Results in the order of their file."""

    path: str
    found: KeypointCandidates
    notices: list[str]  # what differs from what COCO's tools expect
    matched: str  # message on how images and categories were matched, by name or by position; empty if ids decide


def read_annotations(path: str, sigmas: Sequence[float] | None = None) -> KeypointAnnotations:
    """Read COCO's annotations with keypoints from a JSON file.

    Args:
        path: the file.
        sigmas: a sigma for each point, or one for all, of every category; None: by the file.

    Raises:
        UserError: the file cannot be read, has no keypoints, or another number of points than sigmas.
    """
    coco = KeypointFile(os.fspath(path), allows_text_ids=True)
    annotations, order = arrange_annotations(coco)
    sets, remarks = _build_sets(annotations.names, coco.described, sigmas)
    return KeypointAnnotations(annotations, _build_truth(annotations, coco.points[order]), sets, remarks)


def read_dataset(
    dataset: "DetectionDataset", source: str, sigmas: Sequence[float] | None = None
) -> KeypointAnnotations:
    """Return the annotations of a dataset, see ``read_annotations``; ``source`` is its name for messages.

    Raises:
        UserError: it has no keypoints, or another number of points than sigmas.
    """
    from ...detection.evaluation.yolo_results import load_annotations
    from ..data.keypoint_dataset import KeypointDataset  # needs Paddle

    if not isinstance(dataset, KeypointDataset):
        raise UserError(f"{source} has {dataset.holds}, not keypoints: choose a dataset of images with keypoints")
    annotations = load_annotations(dataset, source)
    order = np.argsort(dataset.image_ids).tolist()
    points: list[np.ndarray] = [np.zeros((0, dataset.num_points, _VALUES))]
    points += [own for index in order if (own := dataset.annotations(index).points) is not None]
    described = [
        DescribedPoints(len(own.names), own.names, None, own.sigmas, own.skeleton) for own in dataset.keypoint_sets
    ]
    sets, remarks = _build_sets(annotations.names, described, sigmas)
    return KeypointAnnotations(annotations, _build_truth(annotations, np.concatenate(points)), sets, remarks)


def _build_truth(annotations: AnnotationFile, points: np.ndarray) -> KeypointTruth:
    """Return the annotations with their points, float64 (objects, K, 3), in the order of the annotations."""
    boxes, labels, areas, is_crowd = annotations.truth
    images = np.repeat(np.arange(len(annotations.image_ids)), np.diff(annotations.first))
    is_excluded = is_crowd | ~(points[:, :, 2] > 0).any(axis=1)
    return KeypointTruth(images, points, boxes, areas, np.asarray(labels, np.int64), is_crowd, is_excluded)


def _build_sets(
    class_names: Sequence[str], described: Sequence[DescribedPoints], sigmas: Sequence[float] | None
) -> tuple[tuple[KeypointSet, ...], list[str]]:
    """Return the points of each category, and where their sigmas are from."""
    sets, categories = [], dict[str, list[str]]()
    values = sigmas[0] if sigmas is not None and len(sigmas) == 1 else sigmas
    for category, points in zip(class_names, described):
        names = tuple(points.names or (f"point {number}" for number in range(1, points.number + 1)))
        own, source = choose_sigmas(category, names, points, values, "-sigmas") if names else ((), "no points")
        sets.append(KeypointSet(names, (), own, ()))
        categories.setdefault(source, []).append(category)
    return tuple(sets), [f"OKS of {first_names(names)}: {source}" for source, names in categories.items()]


class _KeypointResult(NamedResult, gc=False, kw_only=True):
    """A result as its file has it."""

    form: ClassVar[str] = '"keypoints": [x, y, score, ...]'
    score: float
    keypoints: list[float] | None = None
    bbox: list[float] | None = None


def read_results(path: str, annotations: KeypointAnnotations) -> KeypointResults:
    """Read a list of results from a JSON file.

    Results refer to images and categories by name if they have names, else by id. As in COCO's tools, the first result
    decides for all: if it has a box, the areas of results are the areas of their boxes, else of their points' extents.

    Raises:
        UserError: the file cannot be read, is not a list of results with keypoints, or names images that the
            annotations lack.
    """
    path, shapes = os.fspath(path), _ResultShapes(annotations)
    rows = read_rows(path, annotations.file, _KeypointResult, shapes.add)
    points = shapes.read_points()
    if not max(points.max(initial=0.0), -points.min(initial=0.0)) < _FARTHEST:
        is_far = (np.abs(points) >= _FARTHEST).any(axis=(1, 2))
        image = annotations.file.image_ids[rows.images[np.argmax(is_far)]]
        raise UserError(f"{path}: a result of image_id {image!r} has keypoints far from any image: expected pixels")
    areas = np.array(shapes.areas) if shapes.has_boxes else None
    found = KeypointCandidates(rows.images, points, rows.scores, rows.labels, areas)

    def count_right(off: int) -> int:
        shifted = found._replace(labels=shift_labels(found.labels, off))
        table = annotations.match(KeypointResults(path, shifted, [], ""), MAX_DETECTIONS).table
        return np.count_nonzero(table.true_positives & np.uint64(1))  # all areas, OKS 0.5

    require_same_ids(path, rows.ids, annotations.file, count_right)
    by_position = [annotations.file.describe_ids()] if annotations.file.are_positions and rows.ids else []
    matched = "; ".join([*([rows.matched] if rows.matched else []), *by_position])
    return KeypointResults(path, found, rows.notices, matched)


class _ResultShapes:
    """Points and areas of results, read one by one."""

    def __init__(self, annotations: KeypointAnnotations) -> None:
        self.numbers = [_VALUES * len(points.names) for points in annotations.sets]
        # Their numbers as bytes, in a third of the time that an array takes to append them.
        self.packs = [struct.Struct(f"{number}d").pack for number in self.numbers]
        self.names = annotations.file.names
        self.has_boxes: bool | None = None  # the first result's
        self.content, self.counts, self.areas = bytearray(), array("q"), array("d")

    def add(self, image: int, label: int, result: _KeypointResult) -> None:
        """Add a result of a label, -1 for others; raise ValueError, what it has, if it cannot be used."""
        values = result.keypoints or ()
        if label < 0:
            values = ()
        elif len(values) != self.numbers[label]:
            number = self.numbers[label] // _VALUES
            expected = f"expected x, y and score of each of the {number} points of {self.names[label]}"
            raise ValueError(
                f"{len(values)} numbers of keypoints: {expected}" if values else f"no keypoints: {expected}"
            )
        if self.has_boxes is None:
            self.has_boxes = bool(result.bbox)
        if self.has_boxes:
            box = result.bbox or ()
            if len(box) != 4 or not all(abs(side) < _FARTHEST for side in box):
                raise ValueError("no bbox of x, y, width and height in pixels, unlike the first result")
            self.areas.append(box[2] * box[3])
        if values:
            self.content += self.packs[label](*values)
        self.counts.append(len(values))

    def read_points(self) -> np.ndarray:
        """Return the points of all results, float64 (n, K, 3), zeros where a category has no more."""
        counts, most, values = np.array(self.counts, np.int64), max(self.numbers), np.frombuffer(self.content)
        if (counts == most).all():
            return values.reshape(-1, most // _VALUES, _VALUES)
        points = np.zeros((len(counts), most))
        points[np.arange(most) < counts[:, None]] = values
        return points.reshape(-1, most // _VALUES, _VALUES)


def measure_results(annotations: KeypointAnnotations, results: KeypointResults, spacings: Sequence[Any]) -> Arrays:
    """Return the arrays of ``KeypointErrorScores``, of the first annotation and the best result of each image.

    ``spacings`` are width and height of a pixel of each image in millimeters, or None.
    """
    from ...detection.data.image_annotations import ImageAnnotations

    truth, found, number = annotations.truth, results.found, len(annotations.sets[0].names)
    known = np.flatnonzero(found.labels >= 0)
    known = known[np.argsort(found.images[known], kind="stable")]
    ends = np.searchsorted(found.images[known], np.arange(len(spacings) + 1))
    first, rows = annotations.file.first, []
    for image, spacing in enumerate(spacings):
        own, shown = slice(first[image], first[image + 1]), known[ends[image] : ends[image + 1]]
        annotated = ImageAnnotations(
            truth.boxes[own], truth.labels[own], truth.areas[own], truth.is_crowd[own], truth.labels[own],
            points=truth.points[own],
        )  # fmt: skip
        detected = DetectedKeypoints(found.points[shown], found.scores[shown], found.labels[shown])
        rows.append(compare_object(annotated, detected, number, spacing))
    columns: dict[str, np.ndarray] = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {**columns, "share": np.array(PCK_SHARE)}
