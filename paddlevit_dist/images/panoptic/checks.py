"""What ``doctor`` checks of segments, and what a log says of their losses."""

import numpy as np

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Checkable
from ..backbone_aspects import BackboneLog
from .samples import PanopticSample
from .task import PanopticSegmentation


class SegmentChecks(TaskAspect, Checkable):
    """Lets ``doctor`` check labels."""

    task: PanopticSegmentation

    def labels_in(self, sample: PanopticSample) -> np.ndarray | None:
        """Return the classes of the segments in a sample."""
        return None if sample.segments is None else sample.segments.labels


class SegmentLog(BackboneLog):
    """Lists images that could not be read, and what the losses could not learn."""

    task: PanopticSegmentation

    def finish_epoch(self) -> list[str]:
        """Return log lines on the epoch's losses, and merge all ranks' unreadable images; every rank must call it."""
        return [*self.task.criterion.epoch_lines(), *super().finish_epoch()]
