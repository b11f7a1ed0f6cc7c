"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .predictor import Predictor

__all__ = [
    "Predictor",
]
