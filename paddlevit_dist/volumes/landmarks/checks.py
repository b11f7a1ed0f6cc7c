"""What a log says of landmarks, and what to do if weights have other landmarks."""

import shlex
from typing import Any

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.protocols import CheckpointMatching, LogContributor, count_samples
from ..samples import VolumeSamples
from .task import LandmarkDetection


class LandmarkLog(TaskAspect, LogContributor):
    """Describes volumes for the log."""

    task: LandmarkDetection

    def describe_samples(self, samples: TransformedDataset) -> str:
        """Format the number of volumes and, for each landmark, the number of volumes that have it."""
        text = count_samples(self.task, samples)
        if not isinstance(samples, VolumeSamples):  # custom samples
            return text
        placed = samples.dataset.placed()
        if placed is None:
            return text
        return f"{text}: " + ", ".join(f"{name} {number:,}" for name, number in zip(self.task.names, placed))


class LandmarkMatching(TaskAspect, CheckpointMatching):
    """Knows how to have the landmarks of weights."""

    task: LandmarkDetection

    def mismatch_hint(self, name: str, trained_value: Any) -> str:
        """Return advice if the setting ``name`` of weights differs from this run's."""
        if name == "landmarks" and set(self.task.names) <= set(trained_value):  # some landmarks are in no file
            return f"set all landmarks of the weights with VOLUMES.LANDMARKS {shlex.quote(', '.join(trained_value))}"
        return super().mismatch_hint(name, trained_value)
