"""Table of panoptic segmentation: the counts of the segments of each image at its stored size."""

from collections.abc import Sequence

import numpy as np

from ...core.tasks.metrics import TableMetrics
from .data.segments import Segments
from .quality import count_image


class PanopticMetrics(TableMetrics):
    """Collect the counts of each image's segments, from which ``PanopticScores`` computes all values.

    Args:
        class_names: names of the classes.
        is_thing: bool (classes,), classes with instances.
    """

    def __init__(self, class_names: Sequence[str], is_thing: np.ndarray) -> None:
        super().__init__("panoptic", class_names, {"is_thing": np.asarray(is_thing, bool)})

    def update(self, truth: Segments, found: Segments) -> tuple[np.ndarray, np.ndarray]:
        """Add an image; return its counts and sums as ``count_image``."""
        counts, ious = count_image(truth, found, len(self.class_names))
        self.add(segment_counts=counts, segment_ious=ious)
        return counts, ious
