"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .network import RfDetr

__all__ = [
    "RfDetr",
]
