"""Figures about instances for the report: average precision, and instances of scenes to turn."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from ...contracts.figures import Table
from ..data.pictures import Colour
from ..data.scene import Scene
from .metrics import MatchTable, Prediction, ap, ap25, ap50, average_precisions
from .writer import coloured_instances


class InstanceRecord(NamedTuple):
    """What is kept of a scene: its points' confusion, int64 (classes, classes), and its contribution to AP."""

    confusion: np.ndarray
    matches: MatchTable


def precision_table(tables: Sequence[MatchTable], class_names: Sequence[str]) -> Table:
    """Average precision of each class that has instances.

    Args:
        tables: of all scenes.
        class_names: of the classes with instances, in the order of the tables' classes.
    """
    joined = MatchTable.joined(tables)
    precisions = average_precisions(joined)  # (classes, thresholds)
    kinds = [kind(precisions) for kind in (ap, ap50, ap25)]
    rows: List[Tuple[Any, ...]] = [
        (name, *(_percent(kind[number]) for kind in kinds), int(joined.num_true[number]))
        for number, name in enumerate(class_names)
    ]
    columns = ("class", "AP %", "AP50 %", "AP25 %", "true instances")
    return Table("Average precision of instances", columns, rows, "Empty: the class has no true instance.")


def instance_layers(
    scene: Scene, predictions: List[Prediction], class_names: Sequence[str]
) -> Tuple[Dict[str, np.ndarray], Dict[str, List[Tuple[str, Colour]]]]:
    """Layers of a scene with their legends: true and predicted instances, those that overlap most in one colour."""
    drawn = coloured_instances(scene.instance, predictions, len(scene.xyz))
    first = [int(np.flatnonzero(drawn.truth == number)[0]) for number in range(len(drawn.true_palette))]
    true_legend = [
        (class_names[label] if label >= 0 else "no class", tuple(colour))
        for label, colour in zip(scene.semantic[first].tolist(), drawn.true_palette.tolist())
    ]
    found_legend = [
        (f"{class_names[found.class_number]} {found.confidence:.2f}", tuple(colour))
        for found, colour in zip(predictions, drawn.palette.tolist())
    ]
    names = "true instances", "predicted instances"
    return dict(zip(names, drawn.colours)), dict(zip(names, (true_legend, found_legend)))


def _percent(value: float) -> Any:
    return None if np.isnan(value) else round(100 * float(value), 2)
