"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .dataset import LandmarkDataset
from .task import LandmarkDetection

__all__ = [
    "LandmarkDataset",
    "LandmarkDetection",
]
