"""What a log says of images whose objects are cropped, and how weights fit other settings."""

from ....core.runtime.printing import one_line
from ....core.tasks.dataset import TransformedDataset
from ....core.tasks.protocols import SAME_SETTINGS, CheckpointMatching
from ...backbone_aspects import BackboneLog
from .samples import ObjectCrops, ObjectsOfImages
from .task import KeypointHeatmaps


class CropLog(BackboneLog, CheckpointMatching):
    """Describes images with keypoints, and names the keys to set for weights of other crops."""

    task: KeypointHeatmaps

    def describe_samples(self, dataset: TransformedDataset) -> str | None:
        """Describe the dataset of a split in one line."""
        if isinstance(dataset, ObjectCrops):
            return one_line(dataset.whole.summary())
        return one_line(dataset.dataset.summary()) if isinstance(dataset, ObjectsOfImages) else None

    def count_classes(self, dataset: TransformedDataset) -> dict[str, int] | None:
        """Count the boxes of each category."""
        if isinstance(dataset, ObjectCrops):
            return dataset.whole.count_categories()
        return dataset.dataset.count_categories() if isinstance(dataset, ObjectsOfImages) else None

    def mismatch_hint(self, name: str, trained_value: object) -> str:
        """Return how to resolve a difference from a checkpoint's setting."""
        return f"set {name} {trained_value}" if name.startswith("HEATMAPS.") else SAME_SETTINGS
