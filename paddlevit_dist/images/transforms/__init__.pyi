"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .crops import EvaluationTransform, TrainingTransform
from .on_device import BatchMixing, PixelNormalizer, RandomErasing
from .policies import AutoAugment, ColorJitter, RandAugment

__all__ = [
    "AutoAugment",
    "BatchMixing",
    "ColorJitter",
    "EvaluationTransform",
    "PixelNormalizer",
    "RandAugment",
    "RandomErasing",
    "TrainingTransform",
]
