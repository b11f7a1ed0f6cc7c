"""Intervals of scores: how much a number would change with other samples of the same kind. Needs numpy alone.

- ``resampling``: draws samples with replacement and recomputes whatever a function gives for such a draw
- ``scores``: such functions for classes, confusions, and sums of numbers
"""

from .resampling import (
    Interval,
    Rated,
    bootstrap,
    join,
    numbers_of,
    paired_difference,
    rough_note,
    weighted_sums,
    wilson,
)
from .scores import Classified, confusion_scores, mean_of_defined, means, quotient

__all__ = [
    "Classified",
    "Interval",
    "Rated",
    "bootstrap",
    "confusion_scores",
    "join",
    "mean_of_defined",
    "means",
    "numbers_of",
    "paired_difference",
    "quotient",
    "rough_note",
    "weighted_sums",
    "wilson",
]
