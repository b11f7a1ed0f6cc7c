"""What a log says of volumes with labels, and what ``doctor`` checks of them."""

import math
from typing import Any

import numpy as np

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.protocols import Checkable, LogContributor, count_samples
from .dataset import IGNORED
from .task import VolumeSegmentation


class VolumeLabelLog(TaskAspect, LogContributor):
    """Describes volumes for the log."""

    task: VolumeSegmentation

    def describe_samples(self, samples: TransformedDataset) -> str:
        """Format the number of volumes, the channels and the classes."""
        channels = f", channels {', '.join(self.task.channels)}" if len(self.task.channels) > 1 else ""
        what = "regions" if self.task.regions else "classes"
        return f"{count_samples(self.task, samples)}{channels}, {what} {', '.join(self.task.class_names)}"


class VolumeLabelChecks(TaskAspect, Checkable):
    """Lets ``doctor`` check labels and first losses."""

    task: VolumeSegmentation

    def labels_in(self, sample: dict[str, Any]) -> np.ndarray | None:
        """Return the classes or regions that occur in a sample."""
        labels = np.setdiff1d(sample["labels"], IGNORED).astype(np.int64)
        if self.task.regions:
            return np.array([i for i, region in enumerate(self.task.regions) if np.isin(region.labels, labels).any()])
        return labels

    def expected_losses(self) -> dict[str, float]:
        """Return the cross-entropy of an untrained network."""
        return {"cross_entropy": math.log(2 if self.task.regions else len(self.task.class_names))}
