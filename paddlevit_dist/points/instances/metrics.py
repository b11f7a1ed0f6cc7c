"""Table of instances: for each scene its matches with the truth, and the counts of its points and of its segments."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.tasks.score_kind import Arrays
from ..segmentation.metrics import SemanticMetrics
from .matching import (
    MIN_INSTANCE_POINTS,
    InstanceMatchTable,
    InstancePrediction,
    flatten_tables,
    map_instance_classes,
    match_scene,
)
from .panoptic import combine_segments, count_segments


class InstanceRecord(NamedTuple):
    """Evaluation record of a scene: its points' confusion, int64 (classes, classes), and its contribution to AP."""

    confusion: np.ndarray
    matches: InstanceMatchTable


class InstanceMetrics(SemanticMetrics):
    """Collect the matches, the counts of points and, for panoptic quality, the counts of segments of each scene.

    Add the points of each scene by ``update``, in the same order each scene by ``update_instances``, and either all
    or none by ``update_panoptic``.

    Args:
        class_names: names of the classes.
        instance_classes: numbers of the classes with instances. Others are void for matching, and stuff for panoptic
            quality.
        min_points: points of the smallest instance that AP counts.
    """

    lists = (*SemanticMetrics.lists, "tables", "segments")

    def __init__(
        self, class_names: Sequence[str], instance_classes: Sequence[int], min_points: int = MIN_INSTANCE_POINTS
    ) -> None:
        self.instance_classes = [int(number) for number in instance_classes]
        super().__init__(class_names, "instances", {"instance_classes": np.array(self.instance_classes, np.int64)})
        self.min_points = min_points
        self.is_thing = np.isin(np.arange(len(self.class_names)), self.instance_classes)
        self.tables: list[InstanceMatchTable] = []
        self.segments: list[tuple[np.ndarray, np.ndarray]] = []  # results of ``count_segments``

    def update_instances(
        self, true_class: np.ndarray, true_instance: np.ndarray, predictions: Sequence[InstancePrediction]
    ) -> None:
        """Add one scene: true class, integers (N,), any other number for none, and instance (N,), negative for none.

        All points of an instance are assigned the class of its first point, as in the ground truth that PointGroup
        writes. Predictions have semantic classes.
        """
        position = {number: index for index, number in enumerate(self.instance_classes)}
        instance_class = map_instance_classes(np.asarray(true_class), np.asarray(true_instance), position)  # (N,)
        renumbered = [p._replace(class_number=position.get(p.class_number, -1)) for p in predictions]
        number = len(self.instance_classes)
        self.tables.append(match_scene(instance_class, true_instance, renumbered, number, self.min_points))

    def update_panoptic(
        self,
        true_class: np.ndarray,
        true_instance: np.ndarray,
        classes: np.ndarray,
        predictions: Sequence[InstancePrediction],
        min_points: int,
    ) -> None:
        """Add one scene, see ``combine_segments`` and ``count_segments``."""
        combined = combine_segments(classes, predictions, self.is_thing)
        self.segments.append(count_segments(true_class, true_instance, *combined, self.is_thing, min_points))

    def rows(self) -> dict[str, np.ndarray]:
        """Return the columns of this rank's scenes; "matches" are of type ``InstanceMatchTable``."""
        rows = super().rows()
        if self.tables:
            rows["matches"] = np.empty(len(self.tables), object)
            rows["matches"][:] = self.tables
        if self.segments:
            rows["segment_counts"], rows["segment_ious"] = map(np.stack, zip(*self.segments))
        return rows

    def to_arrays(self, table: Sequence[np.ndarray]) -> Arrays:
        """Return the arrays that ``InstanceScores`` reads, from the columns of all scenes."""
        arrays = dict(super().to_arrays(table))
        tables = arrays.pop("matches")
        return {**arrays, **flatten_tables(tables)}
