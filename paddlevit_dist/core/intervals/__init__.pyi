"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .evidence import small_sample_warning
from .proportions import ConfidenceInterval, paired_difference, wilson
from .recompute import ProportionRecompute
from .resampling import (
    bootstrap,
    concat_rank_tables,
    weighted_sums,
)
from .score_ranges import ScoreRange
from .scores import (
    ClassificationCounts,
    class_shares,
    confusion_scores,
    find_share_range,
    means,
    nanmean,
    panoptic_scores,
    quotient,
)
from .units import number_groups

__all__ = [
    "ClassificationCounts",
    "ConfidenceInterval",
    "ProportionRecompute",
    "ScoreRange",
    "bootstrap",
    "class_shares",
    "concat_rank_tables",
    "confusion_scores",
    "find_share_range",
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
