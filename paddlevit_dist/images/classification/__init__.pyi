"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .task import Classification

__all__ = [
    "Classification",
]
