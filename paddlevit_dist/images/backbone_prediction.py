"""Prediction of images by tasks whose network uses the backbone of a classifier."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.tasks.aspects import TaskAspect
from ..core.tasks.prediction import InputSamples
from ..core.tasks.protocols import Predictable
from .backbone_task import BackboneTask
from .data.inputs import EXAMPLE_IMAGE, open_image_inputs
from .data.reading import ReadConfig


class BackbonePrediction(TaskAspect, Predictable):
    """Base class of the predictions of tasks with a backbone."""

    task: BackboneTask
    example_input = EXAMPLE_IMAGE

    def _open_images(self, inputs: Sequence[Any], cache_folder: Path, transform: Any) -> InputSamples:
        """Open the result of ``open_inputs`` as samples with the given transform."""
        reading = ReadConfig(self.task.turns, self.task.config.DATA.MAX_PIXELS)
        return open_image_inputs(inputs, cache_folder, transform, "RGB", reading)
