"""The cells of ``interval_coverage.py``: models of data, each with its scores, sizes and parameters."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import drawn_tables
import numpy as np
from drawn_tables import Arrays, assign_groups, name_classes

from paddlevit_dist.core.tasks.score_kind import ScoreKind, require_score_kind


class Model(NamedTuple):
    """A model of data, and what is measured of it."""

    kind: str  # of scores, a registered name
    scores: Sequence[str]
    draw: Callable[..., Arrays]  # of ``drawn_tables``
    is_slow: bool = False  # half of the data sets


MODELS = {
    "classes": Model("classes", ("top-1", "balanced accuracy", "recall 0", "loss"), drawn_tables.draw_classes),
    "labels": Model(
        "labels", ("mAP", "macro F1", "micro F1", "AUC", "micro AP", "exact match", "AP 0"), drawn_tables.draw_labels
    ),
    "maps": Model("confusions", ("mIoU", "mean Dice", "accuracy", "boundary IoU"), drawn_tables.draw_maps),
    "instances": Model("instances", ("PQ", "SQ", "RQ", "AP"), drawn_tables.draw_instances),
    "boxes": Model("boxes", ("AP", "AP50"), drawn_tables.draw_boxes, is_slow=True),
    "masks": Model("boxes", ("AP", "mask AP"), drawn_tables.draw_masks, is_slow=True),
    "keypoints": Model("keypoints", ("AP", "AP50"), drawn_tables.draw_keypoints, is_slow=True),
    "points": Model("keypoint_errors", ("PCK", "mre_px"), drawn_tables.draw_points),
    "decisions": Model("keypoint_errors", ("PCK",), drawn_tables.draw_decisions),
    "volumes": Model(
        "volume classes",
        ("Dice", "labeled Dice", "pooled Dice", "assd_mm", "hd95_mm", "labeled Dice 0", "assd_mm 0"),
        drawn_tables.draw_volumes,
    ),
    "landmarks": Model("landmarks", ("mre_mm", "sd_mm", "sdr_2mm", "sdr_4mm"), drawn_tables.draw_landmarks),
}


class Cell(NamedTuple):
    """A model with sizes and parameters."""

    model: str  # of ``MODELS``
    samples: int
    classes: int
    groups: int = 0  # 0: samples are independent
    options: Mapping[str, Any] = {}  # of the model
    has_even_groups: bool = True

    @property
    def name(self) -> str:
        """Such as "labels 60 x 40, rate 0.05"."""
        parts = [f"{self.model} {self.samples} x {self.classes}"]
        for name, value in self.options.items():
            values = value if isinstance(value, (tuple, list)) else [value]
            parts.append(f"{name} {'/'.join(map(str, values))}")
        of_sizes = "" if self.has_even_groups else " of unequal sizes"
        return ", ".join([*parts, *([f"{self.groups} groups{of_sizes}"] if self.groups else [])])

    @property
    def kind(self) -> ScoreKind:
        return require_score_kind(MODELS[self.model].kind, name_classes(self.classes))

    @property
    def group_numbers(self) -> np.ndarray | None:
        return assign_groups(self.samples, self.groups, self.has_even_groups)

    def draw(self, rng: np.random.Generator) -> Arrays:
        """Draw a data set."""
        return MODELS[self.model].draw(rng, self.samples, self.classes, self.group_numbers, **self.options)


CELLS = (
    Cell("classes", 20, 10, options={"recall": 0.9}),
    Cell("classes", 50, 2, options={"recall": 0.98}),
    Cell("classes", 100, 2, options={"recall": (0.6, 0.9), "prior": (0.05, 0.95)}),
    Cell("classes", 200, 10, options={"recall": 0.5}),
    Cell("classes", 200, 20, options={"recall": 0.8, "prior": "zipf"}),
    Cell("classes", 500, 100, options={"recall": 0.8}),
    Cell("classes", 1000, 10, options={"recall": 0.05}),
    Cell("classes", 60, 3, 6, {"recall": 0.8}),
    Cell("classes", 200, 5, 10, {"recall": 0.97}),
    Cell("classes", 200, 5, 20, {"recall": 0.8}),
    Cell("classes", 200, 5, 20, {"recall": 0.8}, has_even_groups=False),
    Cell("classes", 400, 2, 40, {"prior": (0.9, 0.1), "of_group": True}),
    Cell("classes", 400, 3, 40, {"prior": (0.8, 0.13, 0.07), "of_group": True, "recall": 0.9}, has_even_groups=False),
    Cell("labels", 60, 40, options={"rate": 0.05, "distance": 1.0}),
    Cell("labels", 200, 40, options={"rate": 0.02}),
    Cell("labels", 500, 10, options={"rate": 0.02}),
    Cell("labels", 200, 3, options={"rate": 0.3, "distance": 1.0}),
    Cell("labels", 60, 10, options={"rate": 0.2, "distance": 4.0}),
    Cell("labels", 200, 5, 20, {"rate": 0.2, "distance": 1.0}),
    Cell("maps", 20, 20, options={"presence": 0.1}),
    Cell("maps", 50, 30, options={"presence": 0.04}),
    Cell("maps", 200, 20, options={"presence": "zipf"}),
    Cell("maps", 1000, 10, options={"presence": 0.3, "quality": 0.1}),
    Cell("maps", 40, 3, options={"quality": 0.99}),
    Cell("maps", 60, 5, 6, {"quality": 0.9}),
    Cell("instances", 20, 10, options={"rate": 0.3, "found": 0.7, "false": 0.3}),
    Cell("instances", 50, 40, options={"rate": 0.03, "found": 0.7, "false": 0.3}),
    Cell("instances", 300, 20, options={"rate": 0.2, "found": 0.7, "false": 0.3}),
    Cell("boxes", 40, 30, options={"rate": 0.05}),
    Cell("boxes", 100, 30, options={"rate": 0.03}),
    Cell("boxes", 200, 10, options={"rate": 0.1}),
    Cell("boxes", 100, 3, options={"rate": 0.5, "found": 0.2, "false": 4.0, "skill": 0.5}),
    Cell("boxes", 60, 3, options={"rate": 0.3, "crowding": 1.5}),
    Cell("boxes", 100, 5, 10, {"rate": 0.3}),
    Cell("masks", 300, 5, options={"rate": 0.2, "found": 0.95, "false": 0.2, "skill": 3.0}),
    Cell("keypoints", 50, 1, options={"rate": 1.5}),
    Cell("points", 50, 10, options={"deviation": 0.4}),
    Cell("decisions", 200, 10, options={"right": 0.998, "failing": 0.005}),
    Cell("decisions", 200, 10, options={"right": 0.99, "failing": 0.005}),
    Cell("decisions", 30, 17, options={"right": 0.9, "failing": 0.05}),
    Cell("decisions", 200, 10, options={"right": 0.998}),
    Cell("decisions", 200, 10, options={"right": 0.99}),
    Cell("decisions", 50, 10, options={"right": 0.9}),
    Cell("decisions", 10, 10, options={"right": 0.8, "likeness": 0.2}),
    Cell("decisions", 20, 19, options={"right": 0.9, "likeness": 0.1}),
    Cell("decisions", 30, 17, options={"right": 0.95, "likeness": 0.4}),
    Cell("decisions", 30, 10, options={"right": 0.05, "likeness": 0.2}),
    Cell("decisions", 300, 10, options={"right": 0.97, "likeness": 0.3}),
    Cell("decisions", 15, 20, options={"right": 0.85, "likeness": 0.3, "uneven": True}),
    Cell("volumes", 20, 3),
    Cell("volumes", 100, 1, options={"presence": 0.05}),
    Cell("volumes", 100, 3, options={"presence": 0.08}),
    Cell("volumes", 20, 10, options={"presence": 0.2}),
    Cell("volumes", 100, 3),
    Cell("landmarks", 10, 5, options={"deviation": 0.4}),
    Cell("landmarks", 10, 5, options={"deviation": 1.2}),
    Cell("landmarks", 30, 5, options={"deviation": 1.2}),
    Cell("landmarks", 30, 5, options={"deviation": 0.4, "gross": 0.004}),
    Cell("landmarks", 100, 5, options={"deviation": 1.2}),
)
