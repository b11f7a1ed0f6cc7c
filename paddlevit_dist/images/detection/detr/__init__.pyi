"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .network import Detr

__all__ = [
    "Detr",
]
