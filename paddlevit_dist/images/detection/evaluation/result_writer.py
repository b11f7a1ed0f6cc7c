"""Detections in COCO's format, for COCO's own tools, for its server, and for ``evaluate detections``."""

from __future__ import annotations

from typing import Any, Iterator, Sequence

from .annotation_file import BOXES, MASKS
from .detections import Detections, as_written


def results_of(image_id: Any, detections: Detections, category_ids: Sequence[int], kind: str = BOXES) -> Iterator[dict]:
    """The results of one picture as they are written. Numbers are exact, so that scores are those of the network.

    Args:
        detections: of finite numbers; with masks where ``kind`` is ``MASKS``.
        category_ids: of the annotations, by label.
        kind: ``BOXES`` gives boxes; ``MASKS`` gives masks without boxes: COCO's tools would otherwise take the boxes'
            areas for small, medium and large.
    """
    boxes, scores = as_written(detections.boxes).tolist(), detections.scores.tolist()
    for row, label in enumerate(detections.labels.tolist()):
        result = {"image_id": image_id, "category_id": int(category_ids[label])}
        if kind == MASKS and detections.masks is not None:
            result["segmentation"] = detections.masks[row]
        else:
            result["bbox"] = boxes[row]
        yield {**result, "score": scores[row]}
