"""What a log says of scenes, and what ``doctor`` checks of them."""

import numpy as np

from ..core.tasks.aspects import TaskAspect
from ..core.tasks.dataset import TransformedDataset
from ..core.tasks.protocols import Checkable, LogContributor, count_samples
from .data.samples import VoxelizedSample
from .data.scene import IGNORED
from .scene_task import SceneTask


class SceneLog(TaskAspect, LogContributor):
    """Describes scenes for the log."""

    task: SceneTask

    def describe_samples(self, samples: TransformedDataset) -> str:
        """Return number, dataset and class names of samples for the log."""
        names = self.task.class_names
        return f"{count_samples(self.task, samples)} of {len(names)} classes: {', '.join(names)}"


class SceneChecks(TaskAspect, Checkable):
    """Lets ``doctor`` check labels."""

    def labels_in(self, sample: VoxelizedSample) -> np.ndarray | None:
        """Return the classes of all labeled points."""
        return sample.scene.semantic[sample.scene.semantic != IGNORED]
