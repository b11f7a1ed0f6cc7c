"""A network's answers for one image."""

from typing import Any, NamedTuple

import numpy as np

BOXES, MASKS = "bbox", "segm"  # what is compared, in the words of COCO's tools


class DetectedObjects(NamedTuple):
    """Objects found in one image, in any order. Equal scores keep this order when they are ranked.

    Attributes:
        boxes: float32 (n, 4), x0, y0, x1, y1 in pixels of the original image.
        scores: float32 (n,), higher is more certain.
        labels: int64 (n,), classes from 0.
        masks: None, or one COCO run length for each: {"size": [height, width], "counts": ...}, of the original image.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    masks: list[dict[str, Any]] | None = None

    def finite(self) -> "DetectedObjects":
        """The detections whose box and score are finite numbers."""
        is_finite = np.isfinite(self.boxes).all(axis=1) & np.isfinite(self.scores)
        return self if is_finite.all() else self.only(is_finite)

    def best_of_classes(self, most: int | None) -> "DetectedObjects":
        """The ``most`` best detections of each class, all of them for None, in their order."""
        if most is None or len(self.scores) <= most:
            return self
        order = np.lexsort((-self.scores.astype(np.float64), self.labels))  # stable, as an evaluation ranks them
        labels = self.labels[order]
        chosen = np.zeros(len(order), bool)
        chosen[order] = np.arange(len(order)) - np.searchsorted(labels, labels) < most
        return self.only(chosen)

    def only(self, chosen: np.ndarray) -> "DetectedObjects":
        """The ``chosen`` detections, bool (n,), in their order."""
        masks = None if self.masks is None else [mask for mask, is_chosen in zip(self.masks, chosen) if is_chosen]
        return DetectedObjects(self.boxes[chosen], self.scores[chosen], self.labels[chosen], masks)


def as_written(boxes: np.ndarray) -> np.ndarray:
    """Boxes as files of results have them, and as they are scored: float64 (n, 4) x, y, width, height.

    Scores must not depend on whether detections come from the network or from the file that was written of them.

    Args:
        boxes: float (n, 4), x0, y0, x1, y1.
    """
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)


def boxes_to_corners(boxes: np.ndarray) -> np.ndarray:
    """Boxes of annotations, float (n, 4) x, y, width, height, as x0, y0, x1, y1."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


class SpeedMeter:
    """How long this process takes for an image in an evaluation; its first batch, which compiles, is left out."""

    def __init__(self) -> None:
        self._batches: list[tuple[float, ...]] = []

    def add(self, images: int, *seconds: float) -> None:
        """Include a batch, and the seconds that took reading and preparing it, the network, and making boxes of its
        outputs."""
        self._batches.append((images, *seconds))

    def line(self) -> str:
        """How fast it was, in words; empty where there was one batch."""
        counted = self._batches[1:]
        if not counted:
            return ""
        images, *seconds = np.sum(counted, axis=0).tolist()
        read, network, boxes = (1000 * one / images for one in seconds)
        rate, together = 1000 / max(network + boxes, 1e-9), images / len(counted)
        return (
            f"{rate:.1f} images/s from pixels to boxes ({together:.3g} at a time, one process): {network:.1f} ms an "
            f"image in the network, {boxes:.1f} ms from its outputs to boxes; besides {read:.1f} ms to read and "
            "prepare it, in a loader process"
        )
