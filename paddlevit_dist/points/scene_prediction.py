"""Prediction of scenes in files."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..core.runtime.errors import UserError
from ..core.tasks.aspects import TaskAspect
from ..core.tasks.prediction import InputSamples, pack_array
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


def pack_numbers(numbers: np.ndarray, count: int, index: int, samples: InputSamples) -> Callable[[], np.ndarray]:
    """Return a function that makes an array of the rows of a scene's file, in the smallest unsigned type.

    ``numbers`` are integers (points,) below ``count``; where they are negative, and in rows without coordinates, the
    array has the largest number of its type. The function reads the file again, to know these rows.
    """
    dtype = np.min_scalar_type(count)
    filled = np.where(numbers < 0, np.iinfo(dtype).max, numbers).astype(dtype)
    return partial(_read_rows, samples.dataset, index, pack_array(filled))


def _read_rows(dataset: InputScenes, index: int, unpack: Callable[[], np.ndarray]) -> np.ndarray:
    numbers, scene = unpack(), dataset.read(index)
    if len(scene.xyz) != len(numbers):
        raise UserError(f"{dataset.describe(index)} has changed since it was predicted: predict it again")
    return scene.to_source_rows(numbers, np.iinfo(numbers.dtype).max)
