"""Matches the detected boxes or masks of one image with its annotations, by the rules of COCO's tools (pycocotools).

In each class and area range, detections are processed by falling score. Each takes the unmatched annotation with the
largest IoU; of equal ones, the last. Annotations that cannot count (crowds, areas out of range) come after those that
can, and a crowd may be matched many times. A detection that matches such an annotation, or that matches none and is out
of range itself, counts as neither true nor false.

pycocotools stores the id of the match, with 0 for none, so that a detection matched to an annotation of id 0 counts as
wrong. Here ids do not matter.

Source: T.-Y. Lin et al., "Microsoft COCO", ECCV 2014, arXiv 1405.0312, and the behavior of pycocotools 2.0.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.runtime.compiled import compiled
from ....core.runtime.errors import UserError
from ...run_lengths import ManyRuns
from ..coco_files import Id
from ..detections import DetectedObjects, corners_to_boxes
from .match_tables import AREA_RANGES, IOU_THRESHOLDS, MAX_DETECTIONS, MatchTable

if TYPE_CHECKING:
    from ..data.image_annotations import ImageAnnotations

_MOST_CLASSES = 1 << 16
_HIGHEST_THRESHOLD = 1 - 1e-10  # so that rounding cannot miss an IoU of 1; pycocotools has the same value


class BoxGroundTruth(NamedTuple):
    """All annotations of one image; other objects with these attributes can replace it."""

    boxes: np.ndarray  # float64 (n, 4), x, y, width, height
    labels: np.ndarray  # int64 (n,), classes from 0
    areas: np.ndarray  # float64 (n,), which decide the area range
    is_crowd: np.ndarray  # bool (n,)


class AnnotationFile(NamedTuple):
    """The images, categories and annotations of a file, with annotations ordered by image, then as in the file."""

    path: str  # path of the file
    image_ids: list[Id]  # ids in ascending order; strings if one is not a number
    sizes: np.ndarray  # int64 (images, 2), height and width; 0 where the file does not give them
    category_ids: list[Id]  # ids of the categories, in the order of the labels
    names: list[str]  # names of the categories, made unique
    truth: BoxGroundTruth  # annotations of all images
    masks: list[bytes] | None  # as ``run_lengths.compress_runs`` returns them, if masks are compared
    first: np.ndarray  # int64 (images + 1,), first annotation of each image
    notices: list[str]  # what in the file differs from what COCO's tools write
    file_names: Sequence[str] = ()  # file names of the images; "" where the file does not give them
    original_names: Sequence[str] = ()  # names of the categories as in the file; "" where there is none
    root: str = ""  # folder of the data set that the images are in; "" for a file
    #: the ids are positions in a list of names, as in YOLO's files, and not declared, as in COCO's
    are_positions: bool = False

    def describe_ids(self) -> str:
        """Name the category of the first id, for results that have no names."""
        return f"category_id {self.category_ids[0]} is {self.names[0]}, and so on by ascending number"

    def get_truth(self, image: int) -> BoxGroundTruth:
        """Return the annotations of an image, by its position."""
        chosen = slice(self.first[image], self.first[image + 1])
        return BoxGroundTruth(*(column[chosen] for column in self.truth))

    def get_masks(self, image: int) -> list[bytes]:
        """Return the masks of an image's annotations, by its position."""
        return (self.masks or [])[self.first[image] : self.first[image + 1]]

    def get_size(self, image: int) -> tuple[int, int]:
        """Return an image's height and width, by its position; raise UserError if the file does not give them."""
        height, width = self.sizes[image].tolist()
        if height < 1 or width < 1:
            raise make_size_error(self.path, self.image_ids[image])
        return height, width


def make_size_error(path: str, image_id: Id) -> UserError:
    """Build the error for an image whose size is unknown."""
    return UserError(f"{path}: image {image_id!r} needs 'height' and 'width' for its masks")


class ImageMasks(NamedTuple):
    """The masks of one image."""

    detected: Sequence[bytes]  # mask of each detection, as ``run_lengths.compress_runs`` returns it
    annotated: Sequence[bytes]  # mask of each annotation, likewise
    height: int  # height of the image in pixels


class CandidateDetections(NamedTuple):
    """The n detections of one image to be matched."""

    shapes: np.ndarray | ImageMasks  # boxes as files have them, float64 (n, 4) of x, y, width, height; or masks
    scores: np.ndarray  # (n,), finite
    labels: np.ndarray  # int (n,)
    areas: np.ndarray | None = None  # float64 (n,); None: width times height, or pixels of the masks


def match(
    image_id: int,
    truth: "BoxGroundTruth | ImageAnnotations",
    detections: DetectedObjects,
    num_classes: int,
    max_detections: Sequence[int] = MAX_DETECTIONS,
) -> MatchTable:
    """Match the detections of one image by the IoU of boxes; all values must be finite."""
    candidates = CandidateDetections(corners_to_boxes(detections.boxes), detections.scores, detections.labels)
    return match_detections(image_id, truth, candidates, num_classes, max_detections)


def match_detections(
    image_id: int,
    truth: "BoxGroundTruth | ImageAnnotations",
    candidates: CandidateDetections,
    num_classes: int,
    max_detections: Sequence[int] = MAX_DETECTIONS,
) -> MatchTable:
    """Match the detections of one image and return its table.

    Args:
        image_id: detections of equal score are ranked by it.
        num_classes: at most 65,536; detections with a label of at least this number are ignored.
        max_detections: limits on detections; the last is the number of detections matched in each class.
    """
    if not 0 < num_classes <= _MOST_CLASSES:
        raise UserError(f"{num_classes:,} classes: expected 1 to {_MOST_CLASSES:,}")
    true_labels, labels = np.asarray(truth.labels, np.int64), np.asarray(candidates.labels, np.int64)
    true_rows, rows = _by_class(true_labels, num_classes), _by_class(labels, num_classes)
    scores = np.asarray(candidates.scores)
    rows = rows[np.lexsort((-scores[rows].astype(np.float64), labels[rows]))]  # stable
    rank = np.arange(len(rows)) - np.searchsorted(labels[rows], labels[rows])  # in its class
    rows = rows[rank < max_detections[-1]]
    groups = _groups(labels[rows], true_labels[true_rows], num_classes)
    is_crowd = np.asarray(truth.is_crowd, bool)[true_rows]
    overlaps, areas = _overlaps(candidates.shapes, rows, truth.boxes, true_rows, is_crowd, groups)
    if candidates.areas is not None:
        areas = np.asarray(candidates.areas)[rows]
    true_areas = np.asarray(truth.areas, np.float64)[true_rows]
    totals = np.zeros((num_classes, len(AREA_RANGES)), np.int64)
    right, ignored, _ = decide_matches(
        groups, overlaps, areas.astype(np.float64), true_areas, is_crowd, is_crowd, AREA_RANGES,
        IOU_THRESHOLDS, totals,
    )  # fmt: skip
    present = np.flatnonzero(totals.any(axis=1))
    annotated = np.column_stack([np.zeros_like(present), present, totals[present]]).astype(np.int32)
    return MatchTable(
        np.array([image_id], np.int64),
        np.array([len(rows)], np.int32),
        totals[:, :1].sum(axis=0, dtype=np.int32),
        labels[rows].astype(np.uint16),
        scores[rows],
        right,
        ignored,
        annotated,
        num_classes,
    )


def _overlaps(
    shapes: np.ndarray | ImageMasks,
    rows: np.ndarray,
    true_boxes: np.ndarray,
    true_rows: np.ndarray,
    is_crowd: np.ndarray,
    groups: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the IoUs of the pairs of all groups, concatenated, and the areas of the detections ``rows``."""
    overlaps = np.zeros(((groups[:, 2] - groups[:, 1]) * (groups[:, 4] - groups[:, 3])).sum())
    if isinstance(shapes, ImageMasks):
        masks = ManyRuns.decode([shapes.detected[row] for row in rows.tolist()], shapes.height)
        annotated = ManyRuns.decode([shapes.annotated[row] for row in true_rows.tolist()], shapes.height)
        _mask_overlaps(*masks, *annotated, is_crowd, groups, overlaps)
        return overlaps, masks.areas
    boxes, true_boxes_xywh = (np.asarray(values, np.float64).reshape(-1, 4) for values in (shapes, true_boxes))
    boxes = boxes[rows]
    _box_overlaps(boxes, true_boxes_xywh[true_rows], is_crowd, groups, overlaps)
    return overlaps, boxes[:, 2] * boxes[:, 3]


def _by_class(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return the positions of known classes, ordered by class and then by position."""
    order = np.argsort(labels, kind="stable")
    return order[(labels[order] >= 0) & (labels[order] < num_classes)]


def _groups(labels: np.ndarray, true_labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return int64 (classes in the image, 5): class, first and end of its detections, and of its annotations."""
    limits = np.arange(num_classes + 1)
    ends, true_ends = np.searchsorted(labels, limits), np.searchsorted(true_labels, limits)
    groups = np.stack([limits[:-1], ends[:-1], ends[1:], true_ends[:-1], true_ends[1:]], axis=1)
    return groups[(groups[:, 1] < groups[:, 2]) | (groups[:, 3] < groups[:, 4])]


@compiled(needs_numba=False, error_model="numpy")
def _box_overlaps(boxes, true_boxes, is_crowd, groups, overlaps):
    """Fill in the IoU of each detection with its class's annotations; for crowds, the detection's share inside."""
    position = 0
    for group in range(len(groups)):
        for row in range(groups[group, 1], groups[group, 2]):
            x, y, width, height = boxes[row]
            area = width * height
            is_box = np.isfinite(x + y + width + height)  # comparisons below may be true of what is not a number
            for true_row in range(groups[group, 3], groups[group, 4]):
                left, top, true_width, true_height = true_boxes[true_row]
                across = min(width + x, true_width + left) - max(x, left)
                down = min(height + y, true_height + top) - max(y, top)
                is_true_box = np.isfinite(left + top + true_width + true_height)
                if across > 0 and down > 0 and is_box and is_true_box:
                    shared = across * down
                    union = area if is_crowd[true_row] else area + true_width * true_height - shared
                    overlaps[position] = shared / union
                position += 1


@compiled(needs_numba=False, error_model="numpy")
def decide_matches(groups, overlaps, areas, true_areas, is_crowd, is_excluded, ranges, thresholds, totals):
    """Match detections with annotations in each group, for every range of areas and every threshold.

    Args:
        groups: int64 (groups, 5), see ``_groups``, by falling score in each; their first column is a row of ``totals``.
        overlaps: float64, of the pairs of all groups, concatenated.
        areas: float64 (d,), of the detections.
        true_areas: float64 (n,), of the annotations.
        is_crowd: bool (n,), annotations that many detections can match.
        is_excluded: bool (n,), annotations that do not count in any range, such as crowds.
        ranges: float64 (ranges, 2), lowest and highest area.
        thresholds: float64 (thresholds,), ascending.
        totals: int64 (rows, ranges), to which the annotations that count are added.

    Returns:
        Bits of true positives and of ignored detections, uint64 (d,) each, and the annotation that each detection
        matches at the first threshold in the first range, int64 (d,), -1 for none.
    """
    true_positives, ignored = np.zeros(len(areas), np.uint64), np.zeros(len(areas), np.uint64)
    matches = np.full(len(areas), -1, np.int64)
    is_ignored = np.zeros(len(true_areas), np.bool_)
    is_taken = np.zeros(len(true_areas), np.bool_)
    order = np.zeros(len(true_areas), np.int64)
    start = 0
    for group in range(len(groups)):
        label, first, end, true_first, true_end = groups[group]
        number = true_end - true_first
        for area in range(len(ranges)):
            low, high = ranges[area]
            place = 0
            for can_be_ignored in range(2):  # first annotations that can count, then the others
                for true_row in range(true_first, true_end):
                    is_out = is_excluded[true_row] or not low <= true_areas[true_row] <= high
                    is_ignored[true_row] = is_out
                    if is_out == (can_be_ignored == 1):
                        order[place] = true_row
                        place += 1
                if can_be_ignored == 0:
                    totals[label, area] += place
            for step in range(len(thresholds)):
                bit = np.uint64(1) << np.uint64(area * len(thresholds) + step)
                is_taken[true_first:true_end] = False
                for row in range(first, end):
                    best, needed = -1, min(thresholds[step], _HIGHEST_THRESHOLD)
                    row_start = start + (row - first) * number
                    for place in range(number):
                        true_row = order[place]
                        if is_taken[true_row] and not is_crowd[true_row]:
                            continue
                        if best >= 0 and not is_ignored[best] and is_ignored[true_row]:
                            break
                        overlap = overlaps[row_start + true_row - true_first]
                        if overlap >= needed:  # never, if it is not a number
                            best, needed = true_row, overlap
                    if best >= 0:
                        is_taken[best] = True
                        if area == 0 and step == 0:
                            matches[row] = best
                    if best >= 0 and is_ignored[best]:
                        ignored[row] |= bit
                    elif best >= 0:
                        true_positives[row] |= bit
                    elif areas[row] < low or areas[row] > high:
                        ignored[row] |= bit
        start += (end - first) * number
    return true_positives, ignored, matches


@compiled(needs_numba=False)
def _mask_overlaps(
    starts,
    ends,
    first,
    areas,
    rows,
    true_starts,
    true_ends,
    true_first,
    true_areas,
    true_rows,
    is_crowd,
    groups,
    overlaps,
):
    """Fill in the IoUs of masks, as ``_box_overlaps`` does for boxes."""
    position = -1
    for group in range(len(groups)):
        for mask in range(groups[group, 1], groups[group, 2]):
            for true_mask in range(groups[group, 3], groups[group, 4]):
                position += 1
                if rows[mask, 0] >= true_rows[true_mask, 1] or true_rows[true_mask, 0] >= rows[mask, 1]:
                    continue
                run, last = first[mask], first[mask + 1]
                true_run, true_last = true_first[true_mask], true_first[true_mask + 1]
                if ends[last - 1] <= true_starts[true_run] or true_ends[true_last - 1] <= starts[run]:
                    continue
                shared = 0
                while run < last and true_run < true_last:
                    common = min(ends[run], true_ends[true_run]) - max(starts[run], true_starts[true_run])
                    shared += max(common, 0)
                    if ends[run] < true_ends[true_run]:
                        run += 1
                    else:
                        true_run += 1
                if shared > 0:
                    union = areas[mask] if is_crowd[true_mask] else areas[mask] + true_areas[true_mask] - shared
                    overlaps[position] = shared / union
