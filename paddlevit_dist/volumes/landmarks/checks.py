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
        counts = self.count_classes(samples)
        listed = ", ".join(f"{name} {number:,}" for name, number in (counts or {}).items())
        return count_samples(self.task, samples) + (f": {listed}" if listed else "")

    def count_classes(self, samples: TransformedDataset) -> dict[str, int] | None:
        """Count the volumes that have each landmark; None for custom samples."""
        placed = samples.dataset.placed() if isinstance(samples, VolumeSamples) else None
        return None if placed is None else dict(zip(self.task.names, placed))


class LandmarkMatching(TaskAspect, CheckpointMatching):
    """Knows how to have the landmarks of weights."""

    task: LandmarkDetection

    def mismatch_hint(self, name: str, trained_value: Any) -> str:
        """Return advice if the setting ``name`` of weights differs from this run's."""
        if name == "landmarks" and set(self.task.names) <= set(trained_value):  # some landmarks are in no file
            return f"set all landmarks of the weights with VOLUMES.LANDMARKS {shlex.quote(', '.join(trained_value))}"
        return super().mismatch_hint(name, trained_value)
