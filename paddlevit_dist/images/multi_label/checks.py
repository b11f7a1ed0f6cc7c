"""What ``doctor`` checks of images with several labels."""

import math
from typing import Any

import numpy as np

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Checkable
from .task import MultiLabel


class LabelChecks(TaskAspect, Checkable):
    """Lets ``doctor`` check labels and first losses."""

    task: MultiLabel

    def labels_in(self, sample: Any) -> np.ndarray | None:
        """Return the classes that a sample has."""
        return np.flatnonzero(np.asarray(sample[1]) == 1)

    def expected_losses(self) -> dict[str, float]:
        """Return the loss of probabilities of a half, to compare the first loss with."""
        keys = self.task.config.MULTI_LABEL
        is_plain = keys.LOSS == "bce" and keys.POSITIVE_WEIGHTS is None
        return {"loss": math.log(2.0)} if is_plain else {}
