"""``paddlevit-dist version``: the versions to name in a bug report."""

from ..runtime.environment import versions
from .parser import CommandParser


def run(words: list[str]) -> None:
    """Print the versions of this package, of the Paddle that would be imported, and of Python, on one line."""
    CommandParser("version", "Print the versions of this package, Paddle and Python.", ("",)).parse_args(words)
    print(versions())
