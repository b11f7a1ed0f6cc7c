"""Figures about scenes for the report: scores by class and scene, and a few interactive scenes."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from ..core.metrics.counts import reduce_confusions
from ..core.metrics.tables import class_tables, sample_table, score_samples
from ..core.tasks.aspects import TaskAspect
from ..core.tasks.dataset import TransformedDataset
from ..core.tasks.figures import Figure, PointSet
from ..core.tasks.protocols import Drawable, Reportable, predict_again
from .data.images import UNLABELED_PIXELS, Color, build_legend, color, get_palette
from .data.samples import SceneSamples
from .data.scene import Scene
from .scene_task import SceneTask

_MAX_POINTS = 150_000  # of a scene in the report
_NUM_SCENES = 4  # in the report
_WRONG, _RIGHT = (220, 40, 40), (150, 170, 150)

# Colors of a scene's points by layer name, uint8 (points, 3), and each layer's legend.
Layers = tuple[dict[str, np.ndarray], dict[str, list[tuple[str, Color]]]]


class SceneFigures(TaskAspect, Reportable):
    """Base class of the figures of point cloud tasks."""

    task: SceneTask

    def scene_figures(
        self, samples: TransformedDataset, confusions: Sequence[tuple[int, np.ndarray]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Return tables of classes and scenes, and a few interactive scenes; ``confusions`` have indices of scenes."""
        figures: list[Figure] = []
        for place in select_scenes([confusion for _, confusion in confusions]):
            index = confusions[place][0]
            if isinstance(samples, SceneSamples):  # not a program's samples
                scene, prediction = samples.dataset.read(index), predict_again(self.task, samples, index, model)
                figures.append(build_point_set(scene.name, scene, *self.build_layers(scene, prediction)))
        names = [get_scene_name(samples.describe(i)) for i, _ in confusions]
        return [*semantic_tables([confusion for _, confusion in confusions], names, self.task.class_names), *figures]

    def build_layers(self, scene: Scene, prediction: Any) -> Layers:
        """Return the layers of a scene, with truth and prediction, and their legends."""
        raise NotImplementedError


class SceneDrawing(TaskAspect, Drawable):
    """Base class of the drawings of point cloud tasks."""

    task: SceneTask

    def image_legend(self) -> list[tuple[str, tuple[int, int, int]]]:
        """Return name and color of each class."""
        names = self.task.class_names
        return [(name, tuple(color)) for name, color in zip(names, get_palette(names).tolist())]


def semantic_tables(
    confusions: Sequence[np.ndarray], scenes: Sequence[str], class_names: Sequence[str]
) -> list[Figure]:
    """Return tables of scores by class and by scene, and the confusion matrix, from scenes' ``count_confusion``."""
    statistics = np.stack([reduce_confusions(confusion) for confusion in confusions])
    return [
        *class_tables(np.sum(confusions, axis=0), class_names, "points"),
        sample_table("Scenes", "scene", scenes, score_samples(statistics), "points"),
    ]


def get_scene_name(description: str) -> str:
    """Return a scene's name for a table: its file without folder and suffix."""
    return os.path.splitext(os.path.basename(description))[0] if os.sep in description else description


def select_scenes(confusions: Sequence[np.ndarray]) -> list[int]:
    """Return the indices of the scenes to show, by share of correct points: the worst, a median one, and the best."""
    shares = np.array([np.trace(confusion) / max(confusion.sum(), 1) for confusion in confusions])
    order = np.argsort(shares, kind="stable")
    selected = [*order[: _NUM_SCENES - 2], order[len(order) // 2], order[-1]] if len(order) else []
    return list(dict.fromkeys(int(place) for place in selected))


def build_point_set(
    title: str, scene: Scene, layers: Mapping[str, np.ndarray], legends: Mapping[str, Sequence[tuple[str, Color]]]
) -> PointSet:
    """Return an interactive scene, with its colors as the last layer; large scenes are subsampled.

    ``layers`` are uint8 (points, 3) by name, ``legends`` name and color of the entries, by layer.
    """
    step = -(-len(scene.xyz) // _MAX_POINTS) or 1
    note = f"every {step}. of {len(scene.xyz):,} points" if step > 1 else f"{len(scene.xyz):,} points"
    colors = {name: values[::step] for name, values in {**layers, "colors": scene.rgb}.items()}
    return PointSet(title, np.ascontiguousarray(scene.xyz[::step]), colors, legends, note)


def semantic_layers(scene: Scene, predicted: np.ndarray, class_names: Sequence[str], prefix: str = "") -> Layers:
    """Return the layers of a scene and their legends: true and predicted classes, and where they differ."""
    true, palette = scene.semantic, get_palette(class_names)
    mistakes = np.where((true == predicted)[:, None], _RIGHT, _WRONG)
    mistakes[true < 0] = UNLABELED_PIXELS
    names = f"{prefix}truth", f"{prefix}prediction", f"{prefix}mistakes"
    layers = dict(zip(names, (color(true, palette), color(predicted, palette), mistakes.astype(np.uint8))))
    correctness: list[tuple[str, Color]] = [("wrong", _WRONG), ("right", _RIGHT), ("no label", UNLABELED_PIXELS)]
    return layers, dict(
        zip(names, (build_legend(true, class_names), build_legend(predicted, class_names), correctness))
    )
