"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .step import (
    COUNTS,
    CountingCollate,
    TrainStep,
    accumulation_groups,
    compute_loss,
    synchronized_groups,
)

__all__ = [
    "COUNTS",
    "CountingCollate",
    "TrainStep",
    "accumulation_groups",
    "compute_loss",
    "synchronized_groups",
]
