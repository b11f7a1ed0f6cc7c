"""Figures about instances, and images of scenes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Figure
from ..data.images import CELL_PX, draw_classes, fit_in_cell
from ..data.scene import Scene
from ..scene_figures import Layers, SceneDrawing, SceneFigures, semantic_layers
from ..scene_task import get_slices
from .input import InstanceSamples
from .matching import InstancePrediction
from .stuff_classes import find_instance_classes
from .task import InstanceSegmentation
from .writer import draw_instances, instance_layers, precision_table


class InstanceFigures(SceneFigures):
    """Makes tables of instances and classes, and shows a few scenes."""

    task: InstanceSegmentation

    def figures(
        self, samples: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Return average precision by class, semantic tables, and a few scenes."""
        if not records:
            return []
        names = self.task.class_names
        class_names = [names[number] for number in find_instance_classes(names, self.task.keys.STUFF_CLASSES)]
        confusions = [(index, record.confusion) for index, record in records]
        precisions = precision_table([record.matches for _, record in records], class_names)
        return [precisions, *self.scene_figures(samples, confusions, model)]

    def build_layers(self, scene: Scene, prediction: tuple[np.ndarray, list[InstancePrediction]]) -> Layers:
        """Return the layers of a scene by instance and by class, and their legends."""
        classes, predictions = prediction
        layers, legends = instance_layers(scene, predictions, self.task.class_names)
        more_layers, more_legends = semantic_layers(scene, classes, self.task.class_names, "classes: ")
        return {**layers, **more_layers}, {**legends, **more_legends}


class InstanceDrawing(SceneDrawing):
    """Draws scenes from above, colored by instance and by class."""

    def visualize_batch(
        self, samples: InstanceSamples, batch: dict[str, Any], epoch: int
    ) -> list[tuple[np.ndarray, str]]:
        """Return the scenes of a training batch from above, colored by instance (left) and by class (right)."""
        return [
            self._image(batch["xyz"][part], batch["instance_labels"][part], batch["labels"][part])
            for part in get_slices(batch)
        ]

    def _image(self, xyz: np.ndarray, instance: np.ndarray, semantic: np.ndarray) -> tuple[np.ndarray, str]:
        views = [draw_instances(xyz, instance, CELL_PX), draw_classes(xyz, semantic, self.task.class_names, CELL_PX)]
        caption = f"{len(xyz):,} points, {len(np.unique(instance[instance >= 0]))} instances"
        return np.concatenate([fit_in_cell(view) for view in views], axis=1), caption

    def visualize_eval_samples(self, samples: InstanceSamples, indices: Sequence[int]) -> list[tuple[np.ndarray, str]]:
        """Return scenes without augmentation from above, colored by instance (left) and by class (right)."""
        scenes = [samples.dataset.read(index) for index in indices]
        return [self._image(scene.xyz, scene.instance, scene.semantic) for scene in scenes]
