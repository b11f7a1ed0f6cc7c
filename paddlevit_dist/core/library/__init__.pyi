"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .meters import Meter, MeterScores

__all__ = [
    "Meter",
    "MeterScores",
]
