"""Data sets of predicted keypoints, as labelling tools and this package read them: COCO and YOLO pose."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..detection.detections import boxes_to_corners
from ..detection.predicted_dataset import COCO, YOLO, PredictedDataset, format_yolo, quote_for_yaml
from .data.coco_points import surround
from .detected_keypoints import DetectedKeypoints
from .drawing import POINT_SCORE
from .keypoint_set import KeypointSet

_VISIBLE = 2  # COCO's visibility of a labeled point


class PredictedKeypoints(PredictedDataset):
    """Writes images with the boxes and points of their objects.

    A point is labeled if its score is at least ``POINT_SCORE``. An object without a box gets one around these points,
    or else around its points with a score above 0.

    Args:
        keypoint_sets: points of each category; ``PredictedDataset`` describes the other arguments.
    """

    coco_file = "person_keypoints_train.json"
    datasets = {COCO: "coco_keypoints", YOLO: "yolo_pose"}
    noun = "object"

    def __init__(self, *arguments: Any, keypoint_sets: Sequence[KeypointSet]) -> None:
        super().__init__(*arguments)
        self.keypoint_sets = keypoint_sets

    def choose(self, prediction: DetectedKeypoints, size: tuple[int, int]) -> DetectedKeypoints:
        """Return the objects of at least the score, with boxes clipped to the image."""
        prediction = prediction.finite()
        if prediction.boxes is None:
            rows = [(self._label(points), points) for points in prediction.points.astype(np.float64)]
            found = [surround(own if own[:, 2].any() else points) for own, points in rows]
            boxes = boxes_to_corners(np.array([box or (0.0,) * 4 for box in found]))
            prediction = prediction._replace(boxes=boxes)
        chosen: DetectedKeypoints = super().choose(prediction, size)
        return chosen

    def format_labels(self, shown: DetectedKeypoints, size: tuple[int, int]) -> str:
        """Return YOLO's lines: class, box, and x, y and visibility of each point, as shares of the image."""
        boxes: Any = shown
        lines = []
        for line, points, label in zip(format_yolo(boxes, size).splitlines(), shown.points, shown.labels.tolist()):
            number = len(self.keypoint_sets[label].names)
            own = np.zeros_like(points)
            own[:number] = self._label(points[:number])
            places = own[:, :2] / np.array([size[1], size[0]], np.float64)
            values = (f"{x:.7f} {y:.7f} {seen:.0f}" for (x, y), seen in zip(places.tolist(), own[:, 2].tolist()))
            lines.append(f"{line} {' '.join(values)}\n")
        return "".join(lines)

    def build_entry(self, shown: Any, number: int, size: tuple[int, int]) -> dict[str, Any]:
        """Return the annotation of an object, without ids, in COCO's format."""
        own = self._label(shown.points[number, : len(self.keypoint_sets[shown.labels[number]].names)])
        values = [round(value, 2) for value in own.ravel().tolist()]
        values[2::3] = own[:, 2].astype(int).tolist()
        entry = super().build_entry(shown, number, size)
        return {**entry, "keypoints": values, "num_keypoints": int((own[:, 2] > 0).sum())}

    def build_categories(self) -> list[dict[str, Any]]:
        """Return the categories with their points: names, skeleton from 1 as in COCO, sigmas and mirrored pairs."""
        return [
            {
                **category,
                "keypoints": list(points.names),
                "skeleton": [[one + 1, other + 1] for one, other in points.skeleton],
                "sigmas": list(points.sigmas),
                "flip_pairs": [[points.names[one], points.names[other]] for one, other in points.pairs],
            }
            for category, points in zip(super().build_categories(), self.keypoint_sets)
        ]

    def format_yaml(self) -> str:
        """Return YOLO's data.yaml with ``kpt_shape``, the names of points, and ``flip_idx`` if all categories agree.

        Categories with fewer points than the largest have points that are never labeled after them.
        """
        most = max(len(points.names) for points in self.keypoint_sets)
        lines = [f"kpt_shape: [{most}, 3]\n"]
        mirrors = {(*points.mirror.tolist(), *range(len(points.names), most)) for points in self.keypoint_sets}
        if len(mirrors) == 1 and all(points.pairs for points in self.keypoint_sets):
            lines.append(f"flip_idx: {list(mirrors.pop())}\n")
        lines.append("kpt_names:\n")
        for label, points in enumerate(self.keypoint_sets):
            names = [*points.names, *(f"unused {number}" for number in range(len(points.names) + 1, most + 1))]
            lines.append(f"  {label}: [{', '.join(map(quote_for_yaml, names))}]\n")
        return f"{super().format_yaml()}{''.join(lines)}"

    @staticmethod
    def _label(points: np.ndarray) -> np.ndarray:
        """Return x, y and visibility of points (K, 3) with scores; zeros where a point is not labeled."""
        is_labeled = points[:, 2] >= POINT_SCORE
        rows = np.zeros(points.shape, np.float64)
        rows[is_labeled, :2], rows[is_labeled, 2] = points[is_labeled, :2], _VISIBLE
        return rows
