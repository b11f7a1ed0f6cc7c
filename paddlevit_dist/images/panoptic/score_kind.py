"""Scores of images from the counts of their segments. Needs no Paddle."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.intervals import ScoreRange, panoptic_scores
from ...core.intervals.score_ranges import SHARE_RANGE
from ...core.runtime.printing import shorten
from ...core.tasks.score_kind import Arrays, FormatInterval, ScoreKind

_PARTS = ("PQ", "SQ", "RQ")
_LONGEST_LIST = 60  # letters of the names of classes


class PanopticScores(ScoreKind):
    """Panoptic quality: PQ, SQ and RQ of all classes, of things, of stuff, and of each class, as fractions.

    Counts of all images are summed before anything is divided. A class without a segment in truth and predictions has
    no value, and no part in a mean. PQ_dagger has the IoU of the pixels of stuff classes instead of PQ.

    Arrays have a row for each image: "segment_counts" and "segment_ious", see ``intervals.panoptic_scores``.
    "is_thing", bool (classes,), are the classes with instances.
    """

    class_score = "PQ {}"
    other_class_scores = ("SQ {}", "RQ {}")
    class_means = {"PQ_dagger": "PQ {}", **{name: f"{name} {{}}" for name in _PARTS}}
    settings = ("is_thing",)
    is_ranking = False

    def compute(self, arrays: Arrays, weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Compute ``intervals.panoptic_scores``."""
        counts, ious = arrays["segment_counts"], arrays["segment_ious"]
        return panoptic_scores(counts, ious, self.classes, arrays["is_thing"].astype(bool), _PARTS)(weights)

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the ranges: all are fractions."""
        means = ["PQ_dagger", *(f"{name}{part}" for name in _PARTS for part in ("", "_things", "_stuff"))]
        return dict.fromkeys([*means, *(f"{name} {of}" for name in _PARTS for of in classes)], SHARE_RANGE)

    def counts(self, arrays: Arrays) -> dict[str, int]:
        """Count the true segments without crowds."""
        return {"segments": int(self.truth(arrays).sum())}

    def columns(self, arrays: Arrays) -> dict[str, Sequence[Any]]:
        """Return the numbers of true, matched, false and missed segments of each image, and its scores."""
        matched, false, missed = arrays["segment_counts"][:, :3].sum(axis=2).T
        numbers = {"segments": matched + missed, "matched": matched, "false": false, "missed": missed}
        return {**numbers, **super().columns(arrays)}

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the line that an evaluation ends with."""
        if "PQ" not in values:
            return "PQ not defined (no segment in truth or predictions)"
        text = f"PQ {values['PQ']:.4f}{format_interval('PQ', 3)}"
        names = ("SQ", "RQ", "PQ_things", "PQ_stuff")
        text = " ".join([text, *(f"{name} {values[name]:.4f}" for name in names if name in values)])
        absent = [name for name in self.classes if f"PQ {name}" not in values]
        number = f"{len(absent)} of {len(self.classes)} classes without a segment"
        return f"{text} ({number}: {shorten(', '.join(absent), _LONGEST_LIST)})" if absent else text

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether there are counts of each image and class."""
        return (
            arrays["segment_counts"].shape == (samples, 6, classes)
            and arrays["segment_ious"].shape == (samples, classes)
            and arrays["is_thing"].shape == (classes,)
        )

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Return the number of true segments of each image and class, without crowds."""
        counts = arrays["segment_counts"]
        return counts[:, 0] + counts[:, 2]
