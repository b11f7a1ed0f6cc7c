"""Average precision of instances and IoU of classes over all scenes of all ranks."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import numpy as np

from ...engine.task import Metrics
from ...parallel import all_gather
from ..semantic_metrics import SemanticMetrics
from .average_precision import ap, ap25, ap50, average_precisions, mean_over_classes
from .matching import MatchTable, Prediction, match_scene


class InstanceMetrics(Metrics):
    """Match tables of scenes, which ``compute`` gathers from all ranks, and the counts of the semantic metrics.

    Args:
        class_names: one per semantic class.
        instance_classes: those of them that have instances, in any order; all others are void to the matching.
    """

    def __init__(self, class_names: List[str], instance_classes: Sequence[int]) -> None:
        super().__init__()
        self.class_names = class_names
        self.instance_classes = list(instance_classes)
        self.semantic = SemanticMetrics(class_names)
        self.state = self.semantic.state
        self.tables: List[MatchTable] = [MatchTable.empty(len(self.instance_classes))]

    def update_instances(
        self, true_class: np.ndarray, true_instance: np.ndarray, predictions: Sequence[Prediction]
    ) -> None:
        """Add one scene.

        Args:
            true_class: integers (N,), semantic class of each point, any other number where it has none.
            true_instance: integers (N,), below 0 for points of no instance. All points of an instance count for the
                class of its first point, as in the ground truth that PointGroup writes.
            predictions: with semantic classes.
        """
        position = {number: place for place, number in enumerate(self.instance_classes)}
        places = _class_of_instance(np.asarray(true_class), np.asarray(true_instance), position)  # (N,)
        renumbered = [p._replace(class_number=position.get(p.class_number, -1)) for p in predictions]
        self.tables.append(match_scene(places, true_instance, renumbered, len(self.instance_classes)))

    def update_semantic(self, predictions: Any, labels: Any, loss: Any) -> None:
        """Add points, as ``SemanticMetrics.update``."""
        self.semantic.update(predictions, labels, loss)
        self.state = self.semantic.state

    def compute(self, state: Dict[str, Any]) -> Dict[str, float]:
        """AP, AP50 and AP25 as shares, mean and for each class that occurs, and the semantic values. Every rank must
        call this."""
        gathered = all_gather(MatchTable.joined(self.tables))
        precisions = average_precisions(MatchTable.joined(gathered))  # (instance classes, thresholds)
        kinds = {"AP": ap(precisions), "AP50": ap50(precisions), "AP25": ap25(precisions)}
        values = {kind: mean_over_classes(per_class) for kind, per_class in kinds.items()}
        values.update(self.semantic.compute(state))
        for place, number in enumerate(self.instance_classes):
            for kind, per_class in kinds.items():
                if not np.isnan(per_class[place]):  # a class without true instances has no value
                    values[f"{kind} {self.class_names[number]}"] = float(per_class[place])
        return values

    def summary(self, values: Dict[str, float]) -> str:
        shown = " ".join(f"{kind} {values[kind]:.4f}" for kind in ("AP", "AP50", "AP25", "mIoU"))
        return f"{shown} loss {values['loss']:.4f}"


def _class_of_instance(true_class: np.ndarray, true_instance: np.ndarray, position: Dict[int, int]) -> np.ndarray:
    """Place among the instance classes of each point, -1 for void; int64 (N,)."""
    places = np.full(len(true_class), -1, np.int64)
    members = np.flatnonzero(true_instance >= 0)
    if len(members):
        _, first, inverse = np.unique(true_instance[members], return_index=True, return_inverse=True)
        of_instance = [position.get(int(number), -1) for number in true_class[members[first]]]
        places[members] = np.array(of_instance)[inverse.reshape(-1)]
    return places
