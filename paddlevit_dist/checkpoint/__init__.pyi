"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .load import LoadReport, load_weights
from .weights import read_weights

__all__ = [
    "LoadReport",
    "load_weights",
    "read_weights",
]
