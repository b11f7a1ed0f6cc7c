"""Prediction of scenes in files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.tasks.aspects import TaskAspect
from ..core.tasks.protocols import Predictable
from .data.features import COLORS, build_channels
from .inputs import InputScenes, SceneInputs, find_scenes
from .scene_task import SceneTask


class ScenePrediction(TaskAspect, Predictable):
    """Base class of the predictions of point cloud tasks."""

    task: SceneTask

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> SceneInputs:
        """Return the samples of the scenes in paths, for ``predict``."""
        task = self.task
        scenes, unreadable, skipped = find_scenes(inputs)
        uses_colors = COLORS in task.features
        needs = uses_colors, task.class_names, build_channels(task.features), task.config.DATA.UNIT_M
        dataset = InputScenes(scenes, task.coordinates, *needs)
        notices = [*skipped, *task.list_notices(dataset), *(f"note: {remark}" for remark in dataset.remarks())]
        return SceneInputs(task.build_samples(dataset, is_training=False), unreadable, notices)
