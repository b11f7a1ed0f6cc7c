"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .trainer import Trainer

__all__ = [
    "Trainer",
]
