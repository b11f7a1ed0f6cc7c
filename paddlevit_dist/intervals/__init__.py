"""Intervals of scores: how much a number would change with other samples of the same kind. Needs numpy alone.

- ``resampling``: draws samples with replacement and recomputes whatever a function gives for such a draw
- ``scores``: such functions for classes, confusions, and sums of numbers
"""

from .resampling import (
    ConfidenceInterval,
    ProportionRecompute,
    bootstrap,
    concat_rank_tables,
    number_groups,
    paired_difference,
    small_sample_warning,
    weighted_sums,
    wilson,
)
from .scores import ClassificationCounts, confusion_scores, mean_of_defined, means, quotient

__all__ = [
    "ClassificationCounts",
    "ConfidenceInterval",
    "ProportionRecompute",
    "bootstrap",
    "concat_rank_tables",
    "confusion_scores",
    "mean_of_defined",
    "means",
    "number_groups",
    "paired_difference",
    "quotient",
    "small_sample_warning",
    "weighted_sums",
    "wilson",
]
