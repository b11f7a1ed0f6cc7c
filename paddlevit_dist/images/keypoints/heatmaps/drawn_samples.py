"""Crops of objects with the points that they are learned with, as images."""

from typing import Any

import numpy as np

from ....core.runtime.printing import count
from ....core.tasks.dataset import TransformedDataset
from ....core.tasks.protocols import CaptionedImage
from ..drawn_samples import KeypointDrawing, draw_crop
from ..keypoint_set import KeypointSet
from .task import KeypointHeatmaps


class CropDrawing(KeypointDrawing):
    """Draws crops with the points of their object."""

    task: KeypointHeatmaps

    def visualize_batch(self, dataset: TransformedDataset, batch: dict[str, Any], epoch: int) -> list[CaptionedImage]:
        """Return the crops of a training batch as the model receives them, and captions with the number of points."""
        sides = zip(reversed(self.task.crop_size), reversed(self.task.crops.heatmap_size))
        factors = np.array([(side - 1) / (cells - 1) for side, cells in sides])  # as ``find_cells`` divides
        points, drawings = join_points(self.task), []
        for crop, cells, weights in zip(batch["images"], batch["cells"], batch["weights"]):
            is_shown = np.asarray(weights) > 0
            caption = count(int(is_shown.sum()), "point")
            drawings.append((draw_crop(np.asarray(crop), np.asarray(cells) * factors, is_shown, points), caption))
        return drawings


def join_points(task: KeypointHeatmaps) -> KeypointSet:
    """Return the points of all heatmaps as one set, with the skeletons of all categories."""
    channels, skeleton = task.channels, []
    for label, points in enumerate(task.keypoint_sets):
        own = channels.collect(np.arange(len(channels))[None], np.array([label]))[0]  # heatmap of each point
        skeleton += [(int(own[one]), int(own[other])) for one, other in points.skeleton]
    mirror = channels.mirror.tolist()
    pairs = tuple((one, other) for one, other in enumerate(mirror) if one < other)
    return KeypointSet(tuple(channels.names), pairs, (1.0,) * len(channels), tuple(dict.fromkeys(skeleton)))
