"""Files of annotations and results, scored."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import numpy as np

from .accumulation import UNDEFINED
from .annotation_file import MASKS, AnnotationFile
from .matching import Masks, match_boxes, match_masks
from .result_file import ResultFile
from .tables import MAX_DETECTIONS, GrowingTable, MatchTable

FEDERATED_LIMITS = (1, 10, 300)


def table_of(
    annotations: AnnotationFile, results: ResultFile, kind: str, progress: Callable[[], None] = lambda: None
) -> MatchTable:
    """All pictures of the annotations, matched. ``image_ids`` of the table are positions in ``annotations.image_ids``.

    Args:
        kind: of what both were read for.
        progress: called after each picture.
    """
    num_classes = len(annotations.category_ids)
    tables = GrowingTable(num_classes)
    for picture in range(len(annotations.image_ids)):
        truth, rows = annotations.truth_of(picture), results.rows_of(picture)
        scores, labels = results.scores[rows], results.labels[rows]
        checked = annotations.checked[picture] if annotations.checked else None
        if checked is not None:  # LVIS's tools leave out what has no area
            labels = np.where(results.areas[rows] > 0, labels, -1)
            truth = truth._replace(labels=np.where(truth.areas > 0, truth.labels, -1))
        options: Dict[str, Any] = {
            "areas": results.areas[rows],
            "max_detections": limits_of(annotations),
            "federated": checked,
        }
        if kind == MASKS:
            height = int(annotations.sizes[picture, 0])
            masks = Masks(results.masks_of(picture), annotations.masks_of(picture), height)
            tables.add(match_masks(picture, truth, masks, scores, labels, num_classes, **options))
        else:
            tables.add(match_boxes(picture, truth, results.boxes[rows], scores, labels, num_classes, **options))
        progress()
    return tables.joined()


def limits_of(annotations: AnnotationFile) -> Tuple[int, ...]:
    """The numbers of detections that recall is told for."""
    return FEDERATED_LIMITS if annotations.checked else MAX_DETECTIONS


def by_frequency(annotations: AnnotationFile, class_ap: np.ndarray) -> Dict[str, float]:
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
