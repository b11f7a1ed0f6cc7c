"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .pointgroup import PointGroup
from .task import InstanceSegmentation

__all__ = [
    "InstanceSegmentation",
    "PointGroup",
]
