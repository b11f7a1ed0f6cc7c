"""Writes detections in COCO's format, for COCO's own tools, for its server, and for ``evaluate detections``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterable, Iterator, Sequence, Tuple

from ....files import atomic_file
from .annotation_file import BOXES, MASKS
from .detections import Detections, as_written


def write_results(
    path: Path, found: Iterable[Tuple[Any, Detections]], category_ids: Sequence[int], kind: str = BOXES
) -> int:
    """Write a file of results that is complete or absent, one result a line; returns how many.

    Args:
        found: id and detections of each picture; pictures without any leave no trace in the file.
        category_ids: of the annotations, by label.
        kind: ``BOXES`` writes boxes; ``MASKS`` writes masks without boxes: COCO's tools would otherwise take the
            boxes' areas for small, medium and large.
    Raises:
        UserError: the file system refuses.
    """
    number = 0
    with atomic_file(Path(path)) as file:
        file.write(b"[")
        for image_id, detections in found:
            for result in results_of(image_id, detections, category_ids, kind):
                file.write((",\n" if number else "\n").encode() + json.dumps(result, allow_nan=False).encode())
                number += 1
        file.write(b"\n]\n")
    return number


def results_of(image_id: Any, detections: Detections, category_ids: Sequence[int], kind: str = BOXES) -> Iterator[dict]:
    """The results of one picture as they are written. Numbers are exact, so that scores are those of the network.

    Args:
        detections: of finite numbers; with masks where ``kind`` is ``MASKS``.
        others: as ``write_results``.
    """
    boxes, scores = as_written(detections.boxes).tolist(), detections.scores.tolist()
    for row, label in enumerate(detections.labels.tolist()):
        result = {"image_id": image_id, "category_id": int(category_ids[label])}
        if kind == MASKS and detections.masks is not None:
            result["segmentation"] = detections.masks[row]
        else:
            result["bbox"] = boxes[row]
        yield {**result, "score": scores[row]}
