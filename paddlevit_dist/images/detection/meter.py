"""COCO's numbers of the outputs of any program."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...core.library.checks import check_corners, host, require, require_classes, require_parts
from ...core.library.meters import Meter
from ...core.tasks.metrics import PerSampleMetrics


class CocoAP(Meter):
    """Compute COCO's numbers of boxes and, with the option ``masks=True``, of masks.

    An output is a dictionary of "boxes" (n, 4) x0, y0, x1, y1 in pixels, "scores" (n,) and "labels" (n,) from 0. A
    target is a dictionary of "boxes" and "labels". It may have "is_crowd" (n,) and "areas" (n,), by default the areas
    of the boxes. Masks are COCO's run lengths: "masks" in both, and "size", height and width, in the target. Several
    processes, and merged meters, need ``indices``.
    """

    def _build(self, names: list[str], masks: bool = False) -> PerSampleMetrics:
        from .metrics import DetectionMetrics

        self._with_masks = masks
        return DetectionMetrics(names, with_masks=masks)

    def _check(self, output: Mapping[str, Any], target: Mapping[str, Any]) -> tuple[Any, ...]:
        from .detections import DetectedObjects, corners_to_boxes

        more = ["masks"] if self._with_masks else []
        require_parts(output, "output", ["boxes", "scores", "labels", *more])
        require_parts(target, "target", ["boxes", "labels", *more, *(["size"] if more else [])])
        corners, true_corners = check_corners(output["boxes"]), check_corners(target["boxes"])
        for side, record, number in (("output", output, len(corners)), ("target", target, len(true_corners))):
            for name in ("scores", "labels", "areas", "is_crowd", "masks"):
                if (values := record.get(name)) is not None:
                    kind = type(values).__name__
                    require(hasattr(values, "__len__"), f"the {side}'s {name} have to be a list, not a {kind}")
                    require(len(values) == number, f"the {side} has {number} boxes and {len(values)} {name}")
        require(
            bool((true_corners[:, :2] <= true_corners[:, 2:]).all()),
            "a true box has x1 < x0 or y1 < y0: expected corners x0, y0, x1, y1, not x, y, width, height",
        )
        scores = host(output["scores"]).astype(np.float64, copy=False)
        labels, true_labels = (host(fields["labels"]) for fields in (output, target))
        boxes = corners_to_boxes(true_corners)
        areas = host(target.get("areas", boxes[:, 2] * boxes[:, 3])).astype(np.float64)
        is_crowd = host(target.get("is_crowd", np.zeros(len(boxes)))).astype(bool)
        require_classes(labels, len(self._names), "labels of the output")
        require_classes(true_labels, len(self._names), "labels of the target")
        detections = DetectedObjects(corners, scores, labels.astype(np.int64), output.get("masks"))
        truth = SimpleNamespace(
            boxes=boxes, labels=true_labels.astype(np.int64), areas=areas, is_crowd=is_crowd, masks=target.get("masks")
        )
        return truth, detections, target.get("size")

    def _add(self, number: int, *sample: Any) -> None:
        self._metrics.update(number, *sample)
