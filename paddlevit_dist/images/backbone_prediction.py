"""Prediction of images by tasks whose network uses the backbone of a classifier."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..runtime.transfers import to_device
from ..tasks.aspects import TaskAspect, get_aspect
from ..tasks.prediction import InputSamples
from ..tasks.protocols import Predictable
from ..tasks.task import Task
from .backbone_task import BackboneTask
from .data.inputs import open_image_inputs
from .data.reading import ReadConfig


class BackbonePrediction(TaskAspect, Predictable):
    """Base class of the predictions of tasks with a backbone."""

    task: BackboneTask

    def _open_images(self, inputs: Sequence[Any], cache_folder: Path, transform: Any) -> InputSamples:
        """Open the result of ``open_inputs`` as samples with the given transform."""
        reading = ReadConfig(self.task.turns, self.task.config.DATA.MAX_PIXELS)
        return open_image_inputs(inputs, cache_folder, transform, "RGB", reading)


def predict_again(task: Task, dataset: Any, index: int, model: paddle.nn.Layer) -> Any:
    """Read a sample again and return its ``predict_step`` result."""
    batch = task.collate([dataset.sample(index, np.random.default_rng(0))])
    tensors = {name: to_device(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}
    predicting = get_aspect(task, Predictable)
    assert predicting is not None
    return predicting.predict_step(model, tensors)[0]
