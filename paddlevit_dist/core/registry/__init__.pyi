"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .lookup import resolve

__all__ = ["resolve"]
