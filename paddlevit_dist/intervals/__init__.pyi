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
from .scores import ClassificationCounts, class_shares, confusion_scores, means, nanmean, panoptic_scores, quotient

__all__ = [
    "ClassificationCounts",
    "ConfidenceInterval",
    "ProportionRecompute",
    "bootstrap",
    "class_shares",
    "concat_rank_tables",
    "confusion_scores",
    "means",
    "nanmean",
    "number_groups",
    "paired_difference",
    "panoptic_scores",
    "quotient",
    "small_sample_warning",
    "weighted_sums",
    "wilson",
]
