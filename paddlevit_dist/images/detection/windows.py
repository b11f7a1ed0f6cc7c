"""Detection in windows of large images: where windows are, and how their detections are merged.

A detector is run on the whole image and on overlapping windows, as F. C. Akyon et al. do ("Slicing Aided Hyper
Inference and Fine-tuning for Small Object Detection", ICIP 2022). Detections of one class are merged by greedy
non-maximum suppression between different passes. A detection that a window's border cuts is ranked by half its score,
and is also suppressed if a better one covers it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..run_lengths import decode, encode
from .detections import DetectedObjects

Size = tuple[int, int]  # height, width
_CUT_MARGIN = 0.02  # share of a window's side: boxes that end this near to its border may be cut
_CUT_WEIGHT = 0.5  # factor of the scores of cut boxes, for their rank only


class ImagePart(NamedTuple):
    """A part of a stored image that one forward pass sees; all in its pixels."""

    top: int  # first row
    left: int  # first column
    height: int  # number of rows
    width: int  # number of columns
    is_mirrored: bool = False  # whether the pass sees the part mirrored left to right


class WindowPlan(NamedTuple):
    """Chooses the parts of images."""

    size: Size | None  # height and width of a window; None: there are no windows
    overlap: float  # smallest share of its sides by which a window overlaps the next
    mirrors: bool  # whether each part is also seen mirrored

    def find_parts(self, size: Size) -> list[ImagePart]:
        """Return the parts of an image of this height and width: all of it, then windows by rows if it is larger."""
        parts = [ImagePart(0, 0, *size)]
        if self.size is not None and (size[0] > self.size[0] or size[1] > self.size[1]):
            height, width = min(self.size[0], size[0]), min(self.size[1], size[1])
            rows, columns = (find_starts(*pair, self.overlap) for pair in ((size[0], height), (size[1], width)))
            parts += [ImagePart(row, column, height, width) for row in rows for column in columns]
        return [part._replace(is_mirrored=mirror) for part in parts for mirror in ((False, True)[: 1 + self.mirrors])]

    def describe(self, iou: float) -> str:
        """Describe the parts and how their detections are merged, for the line after a score."""
        seen = []
        if self.size is not None:
            seen = [f"whole and in windows of {self.size[0]} x {self.size[1]} pixels that overlap by {self.overlap:g}"]
        seen += ["mirrored and not"] if self.mirrors else []
        return f"images {', '.join(seen)}, merged by class-wise suppression at IoU {iou:g}"

    def to_description(self, iou: float) -> dict[str, Any]:
        """Return what a user of an exported model needs, which is one pass and does not cut or merge windows."""
        return {
            "note": "this model is one pass: run it on the whole image and on each window, and merge as said here",
            "window": None if self.size is None else list(self.size),
            "overlap": self.overlap,
            "mirrored": self.mirrors,
            "merge": "non-maximum suppression of each class between passes; boxes cut by a window's border rank by "
            f"half their score, and are also suppressed where a better box covers more than {iou:g} of them",
            "iou": iou,
        }


def find_starts(length: int, window: int, overlap: float) -> list[int]:
    """Return the first pixel of each window along an axis; the last window ends at the image's border."""
    stride = max(int(window * (1 - overlap)), 1)
    return [*range(0, length - window, stride), length - window]


def merge_parts(
    results: Sequence[DetectedObjects], parts: Sequence[ImagePart], size: Size, iou: float
) -> DetectedObjects:
    """Merge the detections in all parts of an image of height and width ``size``, in its pixels, best first.

    A detection is removed if a better one of its class in another part has an IoU above ``iou`` with it, or, if a
    window's border cuts it, covers more than the share ``iou`` of its box. ``results`` are in pixels of the part as the
    pass saw it.
    """
    placed, cut = zip(*(_place(result.finite(), part, size) for result, part in zip(results, parts)))
    boxes, scores, labels = (np.concatenate([getattr(one, name) for one in placed]) for name in placed[0]._fields[:3])
    origin = np.repeat(np.arange(len(placed)), [len(one.scores) for one in placed])
    is_cut = np.concatenate(cut)
    kept = _suppress(boxes, scores, labels, origin, is_cut, iou)
    masks = None
    if all(one.masks is not None for one in placed):
        first = np.cumsum([0, *(len(one.scores) for one in placed)])
        masks = []
        for index in kept.tolist():
            number = origin[index]
            masks.append(_place_mask((placed[number].masks or [])[index - first[number]], parts[number], size))
    return DetectedObjects(boxes[kept], scores[kept], labels[kept], masks)


def merge_images(
    results: Sequence[DetectedObjects], rows: np.ndarray, sizes: np.ndarray, iou: float
) -> list[DetectedObjects]:
    """Merge the detections in the parts of each image of a batch, see ``merge_parts``.

    Args:
        rows: int64 (parts, 6), the position of the part's image in the batch, and the fields of ``ImagePart``.
        sizes: int64 (images, 2), height and width of the stored images.
    """
    merged = []
    for image, (height, width) in enumerate(sizes.tolist()):
        chosen = np.flatnonzero(rows[:, 0] == image).tolist()
        places = (rows[row, 1:].tolist() for row in chosen)
        parts = [ImagePart(top, left, down, across, bool(mirror)) for top, left, down, across, mirror in places]
        merged.append(merge_parts([results[row] for row in chosen], parts, (height, width), iou))
    return merged


def _place(result: DetectedObjects, part: ImagePart, size: Size) -> tuple[DetectedObjects, np.ndarray]:
    """Return detections of a part in pixels of the image, masks unchanged, and whether its border cuts each."""
    boxes = result.boxes
    if part.is_mirrored:
        boxes = boxes[:, [2, 1, 0, 3]] * np.array([-1, 1, -1, 1], boxes.dtype)
        boxes = boxes + np.array([part.width, 0, part.width, 0], boxes.dtype)
    margin_x, margin_y = max(_CUT_MARGIN * part.width, 1), max(_CUT_MARGIN * part.height, 1)
    is_cut = np.zeros(len(boxes), bool)
    if part.left > 0:
        is_cut |= boxes[:, 0] < margin_x
    if part.top > 0:
        is_cut |= boxes[:, 1] < margin_y
    if part.left + part.width < size[1]:
        is_cut |= boxes[:, 2] > part.width - margin_x
    if part.top + part.height < size[0]:
        is_cut |= boxes[:, 3] > part.height - margin_y
    return result._replace(boxes=boxes + np.array([part.left, part.top] * 2, boxes.dtype)), is_cut


def _suppress(
    boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, origin: np.ndarray, is_cut: np.ndarray, limit: float
) -> np.ndarray:
    """Return the positions of the detections that remain, best first; see ``merge_parts``."""
    corners = boxes.astype(np.float64)
    areas = np.clip(corners[:, 2:] - corners[:, :2], 0, None).prod(axis=1)
    rank = np.where(is_cut, _CUT_WEIGHT, 1.0) * scores.astype(np.float64)
    kept: list[int] = []
    for label in np.unique(labels).tolist():
        rest = np.flatnonzero(labels == label)
        rest = rest[np.argsort(-rank[rest], kind="stable")]
        while len(rest):
            best, rest = rest[0], rest[1:]
            kept.append(int(best))
            low = np.maximum(corners[best, :2], corners[rest, :2])
            high = np.minimum(corners[best, 2:], corners[rest, 2:])
            shared = np.clip(high - low, 0, None).prod(axis=1)
            union = areas[best] + areas[rest] - shared
            is_same = (shared > limit * union) | (is_cut[rest] & (shared > limit * areas[rest]))
            rest = rest[~is_same | (origin[rest] == origin[best])]
    positions = np.array(sorted(kept), np.int64)
    return positions[np.argsort(-scores[positions].astype(np.float64), kind="stable")]


def _place_mask(mask: dict[str, Any], part: ImagePart, size: Size) -> dict[str, Any]:
    """Return the run lengths of a mask of a part as a mask of the image."""
    pixels = decode(mask, part.height, part.width)
    whole = np.zeros(size, np.uint8)
    whole[part.top : part.top + part.height, part.left : part.left + part.width] = (
        pixels[:, ::-1] if part.is_mirrored else pixels
    )
    return encode(whole)
