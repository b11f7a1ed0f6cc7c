"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .classification import ClassificationMetrics, ClassifierTask
from .classification_scores import ClassificationScores
from .confusion import ConfusionMetrics, ConfusionScores

__all__ = [
    "ClassificationMetrics",
    "ClassificationScores",
    "ClassifierTask",
    "ConfusionMetrics",
    "ConfusionScores",
]
