"""Records of an evaluation, from which figures are built."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .detections import LARGEST_AREA, DetectedObjects, corners_to_boxes
from .evaluation.match_tables import IOU_THRESHOLDS, MatchTable
from .suspicious_labels import compute_overlaps, find_suspects

if TYPE_CHECKING:
    from .data.image_annotations import ImageAnnotations

_IN_ALL_AREAS = np.uint64((1 << len(IOU_THRESHOLDS)) - 1)
_OVERLAP = 0.5


class DetectionRecord(NamedTuple):
    """Record of an image without areas: about 9 bytes per detection, 40 per suspicious label, and 700 more."""

    labels: np.ndarray  # uint16 (d,)
    scores: np.ndarray  # float32 (d,)
    true_positives: np.ndarray  # uint16 (d,), bits of the IoU thresholds, as in ``MatchTable``
    ignored: np.ndarray  # uint16 (d,), likewise
    true_labels: np.ndarray  # uint16 (n,), labels of the annotations that count
    pairs: np.ndarray  # uint16 (m, 2), label of annotation and detection, see ``match_across_classes``
    suspects: np.ndarray  # float32 (k, 10), see ``find_suspects``

    @classmethod
    def from_table(
        cls, table: MatchTable, truth: "ImageAnnotations", detections: DetectedObjects, least_score: float
    ) -> "DetectionRecord":
        """Build the record of one image; ``least_score`` is the lowest score of detections in ``pairs``."""
        true_positives, ignored = (
            (bits & _IN_ALL_AREAS).astype(np.uint16) for bits in (table.true_positives, table.ignored)
        )
        true_labels = np.repeat(*table.annotated[:, 1:3].T).astype(np.uint16)
        matched_pairs = match_across_classes(truth, detections, table.num_classes, least_score)
        columns = table.labels, table.scores.astype(np.float32), true_positives, ignored, true_labels, matched_pairs
        return cls(*columns, find_suspects(truth, detections, least_score))


def match_across_classes(
    truth: "ImageAnnotations", detections: DetectedObjects, num_classes: int, least_score: float
) -> np.ndarray:
    """Match annotations and detections of one image regardless of their classes, the largest IoU first.

    Crowds, and annotations of areas that no score counts, count as neither missed nor detected; detections below
    ``least_score``, or unmatched inside a crowd, are ignored.

    Returns:
        uint16 (pairs, 2), label of annotation and detection; ``num_classes`` as annotation of unmatched detections, and
        as detection of missed annotations.
    """
    chosen = np.asarray(detections.scores) >= least_score
    boxes, labels = corners_to_boxes(detections.boxes)[chosen], np.asarray(detections.labels)[chosen]
    overlaps, crowd_fractions, _, true_labels = compute_overlaps(boxes, truth)
    areas = np.asarray(truth.areas)[~np.asarray(truth.is_crowd, bool)]
    is_counted = (areas >= 0) & (areas <= LARGEST_AREA)
    is_found, is_used = np.zeros(len(true_labels), bool), np.zeros(len(labels), bool)
    result = []
    for place in np.argsort(-overlaps, axis=None, kind="stable")[: np.count_nonzero(overlaps >= _OVERLAP)]:
        row, true_row = np.unravel_index(place, overlaps.shape)
        if not is_used[row] and not is_found[true_row]:
            is_used[row] = is_found[true_row] = True
            result += [(true_labels[true_row], labels[row])] if is_counted[true_row] else []
    is_used |= (crowd_fractions >= _OVERLAP).any(axis=1)
    result += [(label, num_classes) for label in true_labels[~is_found & is_counted]]
    result += [(num_classes, label) for label in labels[~is_used]]
    return np.array(result, np.uint16).reshape(-1, 2)
