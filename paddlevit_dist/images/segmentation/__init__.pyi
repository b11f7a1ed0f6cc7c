"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .task import ImageSegmentation

__all__ = [
    "ImageSegmentation",
]
