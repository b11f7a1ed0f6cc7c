"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .sampler import EvaluationSampler, SampleKey, TrainingSampler

__all__ = [
    "EvaluationSampler",
    "SampleKey",
    "TrainingSampler",
]
