"""What ``doctor`` checks of label maps."""

import math

import numpy as np

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Checkable
from .data.segmentation_dataset import IGNORED
from .samples import SegmentationSample
from .task import ImageSegmentation


class PixelChecks(TaskAspect, Checkable):
    """Lets ``doctor`` check labels and first losses."""

    task: ImageSegmentation

    def labels_in(self, sample: SegmentationSample) -> np.ndarray | None:
        """Return the classes in a sample."""
        return np.setdiff1d(sample.labels, IGNORED).astype(np.int64)

    def expected_losses(self) -> dict[str, float]:
        """Return the loss of uniform predictions, to compare the first loss with."""
        return {"loss": math.log(self.task.num_classes)}
