"""Files of annotations and results, scored."""

from __future__ import annotations

from typing import Callable, List

from .annotation_file import MASKS, AnnotationFile
from .mask_matching import match_texts
from .matching import match_boxes
from .result_file import ResultFile
from .tables import MatchTable

_JOINED_AFTER = 256  # pictures: one table of many takes less memory than many tables


def table_of(
    annotations: AnnotationFile, results: ResultFile, kind: str, progress: Callable[[], None] = lambda: None
) -> MatchTable:
    """All pictures of the annotations, matched. ``image_ids`` of the table are positions in ``annotations.image_ids``.

    Args:
        kind: of what both were read for.
        progress: called after each picture.
    """
    num_classes = len(annotations.category_ids)
    tables: List[MatchTable] = [MatchTable.empty(num_classes)]
    for picture in range(len(annotations.image_ids)):
        truth, rows = annotations.truth_of(picture), results.rows_of(picture)
        scores, labels, areas = results.scores[rows], results.labels[rows], results.areas[rows]
        if kind == MASKS:
            masks = (annotations.masks_of(picture), results.masks_of(picture), int(annotations.sizes[picture, 0]))
            table = match_texts(picture, truth, *masks, scores, labels, num_classes, areas=areas)
        else:
            table = match_boxes(picture, truth, results.boxes[rows], scores, labels, num_classes, areas=areas)
        tables.append(table)
        if len(tables) > _JOINED_AFTER:
            tables = [MatchTable.joined(tables)]
        progress()
    return MatchTable.joined(tables)
