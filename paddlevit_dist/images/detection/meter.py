"""COCO's numbers of the outputs of any program."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.library.checks import check_corners, host, prefix_errors, require, require_parts
from ...core.library.meters import Meter
from ...core.tasks.metrics import PerSampleMetrics

if TYPE_CHECKING:
    from .detections import DetectedObjects

_OUTPUT, _TARGET = ("boxes", "scores", "labels"), ("boxes", "labels")


class CocoAP(Meter):
    """Compute COCO's numbers of boxes and, with the option ``masks=True``, of masks.

    An output is a dictionary of "boxes" (n, 4) x0, y0, x1, y1 in pixels, "scores" (n,) and "labels" (n,) from 0, or
    names of the classes. A target is a dictionary of "boxes" and "labels". It may have "is_crowd" (n,) and "areas"
    (n,), by default the areas of the boxes, or of the masks; "iscrowd" and "area", as of COCO and torchvision, are
    read, too. Masks are polygons or run lengths as of COCO, or arrays (n, height, width): "masks" in both, and "size",
    height and width, in the target. Predicted boxes or scores that are not finite are never found, and counted. Other
    keys are not read, and reported once. Several processes, and merged meters, need ``indices``.
    """

    def _build(self, names: list[str], masks: bool = False) -> PerSampleMetrics:
        from .metrics import DetectionMetrics

        self._with_masks = masks
        return DetectionMetrics(names, with_masks=masks)

    def _check(self, output: Mapping[str, Any], target: Mapping[str, Any]) -> tuple[Any, ...]:
        from .data.image_annotations import ObjectRules, make_annotations, rename_fields

        more = ["masks"] if self._with_masks else []
        require_parts(output, "output", [*_OUTPUT, *more])
        require_parts(target, "target", [*_TARGET, *more, *(["size"] if more else [])])
        of_target = ["boxes", "labels", "areas", "is_crowd", *more]
        with prefix_errors("the target"):
            fields = rename_fields(target)
            size = _read_size(target["size"]) if self._with_masks else None
            rules = ObjectRules(len(self._names), self._names, needs_masks=self._with_masks)
            known = {name: fields[name] for name in of_target if name in fields}
            truth = make_annotations({**known, "box_format": "xyxy"}, rules, size)
        with prefix_errors("the output"):
            detections = self._read_output(output, size)
        self._note_unread("outputs", output, [*_OUTPUT, *more])
        self._note_unread("targets", fields, [*of_target, *(["size"] if more else [])])
        return truth, detections, size

    def _read_output(self, output: Mapping[str, Any], size: tuple[int, int] | None) -> "DetectedObjects":
        """Return the detections of an output; those that are not finite are ignored later."""
        from .data.image_annotations import make_masks, read_array, read_labels
        from .detections import DetectedObjects

        corners, scores = (read_array(output[name], name, is_finite=False) for name in ("boxes", "scores"))
        corners = check_corners(corners)
        number = len(corners)
        require(scores.shape == (number,), f"scores of shape {scores.shape} for {number} boxes: expected ({number},)")
        labels = read_labels(output["labels"], number, len(self._names), self._names, "labels")
        masks = make_masks(output["masks"], number, True, size) if self._with_masks else None
        return DetectedObjects(corners, scores.astype(np.float64, copy=False), labels, masks)

    def _add(self, number: int, *sample: Any) -> None:
        self._metrics.update(number, *sample)


def _read_size(value: object) -> tuple[int, int]:
    """Return height and width as whole numbers."""
    size = host(value)
    is_size = size.shape == (2,) and size.dtype.kind in "iu" and bool((size > 0).all())
    require(is_size, f"size is {value!r}: expected height and width in pixels")
    return int(size[0]), int(size[1])
