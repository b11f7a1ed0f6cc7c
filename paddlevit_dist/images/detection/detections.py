"""A network's detections in one image."""

from typing import Any, NamedTuple

import numpy as np

BOXES, MASKS = "bbox", "segm"  # COCO's names of what is compared
# Files of results. Masks are separate: COCO's tools use the areas of boxes if a result has both.
RESULT_FILES = {BOXES: "results.json", MASKS: "results_masks.json"}
LARGEST_AREA = 1e5**2  # pixels, of an object that counts


class DetectedObjects(NamedTuple):
    """Objects detected in one image, in any order; equal scores keep this order when they are ranked."""

    boxes: np.ndarray  # float32 (n, 4), x0, y0, x1, y1 in pixels of the original image
    scores: np.ndarray  # float32 (n,), higher is more certain
    labels: np.ndarray  # int64 (n,), classes from 0
    masks: list[dict[str, Any]] | None = None  # COCO's {"size": [height, width], "counts": ...} of the original image

    def finite(self) -> "DetectedObjects":
        """Return the detections whose box and score are finite."""
        is_finite = np.isfinite(self.boxes).all(axis=1) & np.isfinite(self.scores)
        return self if is_finite.all() else self.only(is_finite)

    def best_of_classes(self, most: int | None) -> "DetectedObjects":
        """Return the ``most`` best detections of each class, or all if None, in their order."""
        if most is None or len(self.scores) <= most:
            return self
        return self.only(choose_best(self.scores, self.labels, most))

    def only(self, chosen: np.ndarray) -> "DetectedObjects":
        """Return the ``chosen`` detections, bool (n,), in their order."""
        masks = None if self.masks is None else [mask for mask, is_chosen in zip(self.masks, chosen) if is_chosen]
        return DetectedObjects(self.boxes[chosen], self.scores[chosen], self.labels[chosen], masks)


def choose_best(scores: np.ndarray, labels: np.ndarray, most: int) -> np.ndarray:
    """Return which of n detections are among the ``most`` best of their class, bool (n,)."""
    order = np.lexsort((-scores.astype(np.float64), labels))  # stable, as an evaluation ranks them
    ordered = labels[order]
    is_chosen = np.zeros(len(order), bool)
    is_chosen[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered) < most
    return is_chosen


def corners_to_boxes(boxes: np.ndarray) -> np.ndarray:
    """Convert x0, y0, x1, y1, float (n, 4), to x, y, width, height, float64 (n, 4), as in results files and scoring."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)


def boxes_to_corners(boxes: np.ndarray) -> np.ndarray:
    """Convert boxes of annotations, float (n, 4) x, y, width, height, to x0, y0, x1, y1."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


class SpeedMeter:
    """Measures this process's time per image in an evaluation, without the first batch, which compiles."""

    def __init__(self) -> None:
        self._batches: list[tuple[float, ...]] = []

    def add(self, images: int, *seconds: float) -> None:
        """Add a batch: its images, and the seconds spent reading, in the network, and on its outputs."""
        self._batches.append((images, *seconds))

    def line(self) -> str:
        """Format the speed; empty after less than two batches."""
        counted = self._batches[1:]
        if not counted:
            return ""
        images, *seconds = np.sum(counted, axis=0).tolist()
        read, network, boxes = (1000 * total / images for total in seconds)
        rate, batch_size = 1000 / max(network + boxes, 1e-9), images / len(counted)
        return (
            f"{rate:.1f} images/s from pixels to boxes ({batch_size:.3g} at a time, one process): {network:.1f} ms per "
            f"image in the network, {boxes:.1f} ms from its outputs to boxes; plus {read:.1f} ms to read and "
            "prepare it, in a loader process"
        )
