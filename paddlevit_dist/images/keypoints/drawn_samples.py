"""Samples with keypoints as images, for both tasks."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...core.runtime.printing import count
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Color
from ...core.tasks.protocols import CaptionedImage, Drawable
from ..detection.data.samples import host_facts
from ..detection.data.split_checks import list_crowds
from .data.keypoint_dataset import KeypointDataset
from .drawing import FILLED, NOT_DRAWN, DrawnObjects, fit_in_cell, list_colors
from .evaluation.score_kind import name_points
from .keypoint_set import KeypointSet


class KeypointDrawing(TaskAspect, Drawable):
    """Draws images of a batch with the skeletons of their objects, and lists how often each point is labeled."""

    task: Any  # with ``class_names`` and ``keypoint_sets``

    def visualize_batch(self, dataset: TransformedDataset, batch: dict[str, Any], epoch: int) -> list[CaptionedImage]:
        """Return the images of a training batch as the model receives them, and captions with the number of objects."""
        facts, drawings = host_facts(batch), []
        for row, ((height, width), number) in enumerate(zip(facts["sizes"].tolist(), facts["box_counts"].tolist())):
            pixels = np.ascontiguousarray(batch["images"][row, :, :height, :width].transpose(1, 2, 0))
            points, boxes = (np.asarray(batch[name][row, :number], np.float64) for name in ("points", "boxes"))
            objects = DrawnObjects(points[..., :2], points[..., 2], batch["labels"][row, :number], boxes)
            cell = fit_in_cell(pixels, objects, self.task.keypoint_sets, self.task.class_names)
            drawings.append((cell, f"{width} x {height}, {count(number, 'object')}"))
        return drawings

    def visualize_eval_samples(self, dataset: TransformedDataset, indices: Sequence[int]) -> list[CaptionedImage]:
        """Return stored images with all annotations, and captions; crowds are gray, hidden points hollow."""
        drawings = []
        for index in indices:
            image, truth = dataset.dataset.read(index)
            objects = DrawnObjects.from_annotations(truth)
            cell = fit_in_cell(np.asarray(image), objects, self.task.keypoint_sets, self.task.class_names)
            drawings.append((cell, f"{image.width} x {image.height}, {len(truth.labels)} annotated"))
        return drawings

    def image_legend(self) -> list[tuple[str, Color]]:
        """Return what the colors of points mean."""
        return list_colors(self.task.keypoint_sets)

    def summarize_samples(self, dataset: TransformedDataset) -> Iterable[str]:
        """Return a table of the visible, hidden and unlabeled points, without crowds and empty boxes."""
        whole = getattr(dataset, "whole", dataset.dataset)
        if not isinstance(whole, KeypointDataset):
            return []
        counts, sets = whole.count_points(), self.task.keypoint_sets
        names = name_points(self.task.class_names, sets)
        rows = [row for label, points in enumerate(sets) for row in counts[label, : len(points.names)].tolist()]
        width = max(map(len, [*names, "point"]))
        return [
            f"{'point':{width}}   visible    hidden unlabeled",
            *(f"{name:{width}} {row[2]:9,} {row[1]:9,} {row[0]:9,}" for name, row in zip(names, rows)),
            *list_crowds(whole),
        ]


def draw_crop(image: np.ndarray, places: np.ndarray, is_shown: np.ndarray, points: KeypointSet) -> np.ndarray:
    """Draw the points of the object in a crop, uint8 (3, height, width), in a white square.

    ``places`` are x, y of each point in pixels, float (K, 2), and ``is_shown`` which of them are learned, bool (K,).
    """
    pixels = np.ascontiguousarray(image.transpose(1, 2, 0))
    marks = np.where(is_shown, FILLED, NOT_DRAWN)[None]
    objects = DrawnObjects(places[None].astype(np.float64), marks, np.zeros(1, int), np.zeros((1, 4)))
    return fit_in_cell(pixels, objects, [points], [""])
