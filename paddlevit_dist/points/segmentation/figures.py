"""Figures about classes of points, and images of scenes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle

from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Figure
from ..data.augment import to_meters
from ..data.features import feature_channels
from ..data.images import CELL_PX, draw, draw_classes, fit_in_cell
from ..data.scene import IGNORED, Scene
from ..scene_figures import Layers, SceneDrawing, SceneFigures, semantic_layers
from .task import PointSamples


class SemanticFigures(SceneFigures):
    """Makes tables of classes and scenes, and shows a few scenes."""

    def figures(
        self, samples: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Return tables of classes and scenes, and a few scenes."""
        return self.scene_figures(samples, records, model) if records else []

    def build_layers(self, scene: Scene, prediction: np.ndarray) -> Layers:
        """Return the layers of a scene by class, and their legends."""
        return semantic_layers(scene, prediction, self.task.class_names)


class SemanticDrawing(SceneDrawing):
    """Draws scenes from above."""

    def visualize_batch(self, samples: PointSamples, batch: dict[str, Any], epoch: int) -> list[tuple[np.ndarray, str]]:
        """Return the voxels of a training batch from above, with their counts.

        They are shown in the network's input colors, if it has any, and next to that in the colors of their classes.
        """
        labels = np.full(len(batch["coordinates"]), IGNORED)
        labels[batch["inverse"]] = np.tile(batch["labels"], len(batch["inverse"]) // max(len(batch["labels"]), 1))
        colors, names = None, list(samples.features)
        if "rgb" in names:
            first = feature_channels(names[: names.index("rgb")])
            low, high = samples.color_range
            shares = (batch["features"][:, first : first + 3] - low) / (high - low)
            colors = np.rint(255 * shares).astype(np.uint8)
        return [self._image(batch, labels, colors, number) for number in range(len(batch["offsets"]) - 1)]

    def _image(
        self, batch: dict[str, Any], labels: np.ndarray, colors: np.ndarray | None, number: int
    ) -> tuple[np.ndarray, str]:
        """Return image and caption of one scene of a batch, in its first view."""
        is_in_scene = batch["coordinates"][:, 0] == number
        voxels = batch["coordinates"][is_in_scene, 1:].astype(np.float32)
        points = int(np.diff(batch["offsets"])[number])
        views = [fit_in_cell(draw_classes(voxels, labels[is_in_scene], self.task.class_names, CELL_PX))]
        if colors is not None:
            views.insert(0, fit_in_cell(draw(voxels, colors[is_in_scene], np.ones(len(voxels), bool), CELL_PX)))
        return np.concatenate(views, axis=1), f"{len(voxels):,} voxels of {points:,} points"

    def visualize_eval_samples(self, samples: PointSamples, indices: Sequence[int]) -> list[tuple[np.ndarray, str]]:
        """Return scenes without augmentation from above, in their colors and in the colors of their classes."""
        plain = replace(samples, steps=to_meters(self.task.config.DATA.UNIT_M))
        generator = np.random.default_rng(0)
        return self.visualize_batch(plain, self.task.collate([plain.sample(index, generator) for index in indices]), 0)
