"""``paddlevit-dist version``: what a report of a fault should name."""

from ..runtime.environment import versions
from .parser import CommandParser


def run(words: list[str]) -> None:
    """Print the versions of this package, of the Paddle that would be imported, and of Python, on one line."""
    CommandParser("version", "Versions of this package, Paddle and Python.", ("",)).parse_args(words)
    print(versions())
