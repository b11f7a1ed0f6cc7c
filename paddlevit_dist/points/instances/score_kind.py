"""Scores of tables of instances, which ``InstanceMetrics`` and ``PanopticMetrics`` write."""

from collections.abc import Sequence

import numpy as np

from ...intervals import panoptic_scores
from ...intervals.resampling import Recompute
from ...metrics.confusion import ConfusionScores
from ...tasks.score_kind import Arrays, are_below, join_arrays


class InstanceScores(ConfusionScores):
    """AP of instances with the scores of the classes of points, and panoptic quality if segments are counted."""

    class_score = "AP {}"
    swaps = 1_000

    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
        """Return a function that computes these scores."""
        from .metrics import InstanceMatchTable, InstanceMetrics  # need Paddle

        scenes = []
        for part in parts:
            ends = np.cumsum(part["rows"])
            for number, (first, end) in enumerate(zip(ends - part["rows"], ends)):
                decisions = (part[name][first:end] for name in InstanceMatchTable._fields[:4])
                scenes.append(InstanceMatchTable._make([*decisions, part["missed"][number], part["num_true"][number]]))
        statistics, losses = (join_arrays(parts, name) for name in ("statistics", "losses"))
        metrics = InstanceMetrics(list(classes), parts[0]["instance_classes"].tolist())
        tables = np.empty(len(scenes), object)
        tables[:] = scenes
        if not all("segment_counts" in piece for piece in parts):
            return lambda weights: metrics.bootstrap_values([statistics, losses, tables], weights)
        is_thing = np.isin(np.arange(len(classes)), parts[0]["instance_classes"])
        counts, ious = join_arrays(parts, "segment_counts"), join_arrays(parts, "segment_ious")
        panoptic = panoptic_scores(counts, ious, classes, is_thing)
        return lambda weights: {**metrics.bootstrap_values([statistics, losses, tables], weights), **panoptic(weights)}

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether the decisions fit the scenes and classes; compiled loops do not check bounds."""
        rows, chosen, thresholds = arrays["rows"], arrays["instance_classes"], arrays["missed"].shape[-1]
        decisions = [arrays[name] for name in ("class_numbers", "thresholds", "scores", "is_right")]
        shapes = {"segment_counts": (samples, 6, classes), "segment_ious": (samples, classes)}
        return (
            all(arrays[name].shape == shape for name, shape in shapes.items() if "segment_counts" in arrays)
            and super().is_valid(arrays, samples, classes)
            and rows.shape == (samples,)
            and are_below(rows, 1 << 31)
            and all(column.shape == (int(rows.sum()),) for column in decisions)
            and are_below(chosen, classes)
            and arrays["missed"].shape == (samples, len(chosen), thresholds)
            and arrays["num_true"].shape == (samples, len(chosen))
            and are_below(arrays["class_numbers"], len(chosen))
            and are_below(arrays["thresholds"], thresholds)
        )
