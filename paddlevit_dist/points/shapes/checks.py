"""What ``doctor`` checks of shapes."""

import math

import numpy as np

from ...core.metrics.classification import require_num_classes
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Checkable
from .task import ShapeClassification, ShapeSamples


class ShapeChecks(TaskAspect, Checkable):
    """Lets ``doctor`` check labels and first losses."""

    task: ShapeClassification

    def get_labels(self, samples: ShapeSamples) -> np.ndarray | None:
        """Return the label of each sample."""
        return samples.dataset.labels

    def expected_losses(self) -> dict[str, float]:
        """Return the loss of a network that predicts all classes with the same probability."""
        return {"loss": math.log(require_num_classes(self.task.num_classes))}
