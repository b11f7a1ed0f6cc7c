"""``paddlevit-dist version``: what a report of a fault should name."""

from __future__ import annotations

from typing import List

from ..version import versions
from .parser import CommandParser


def run(words: List[str]) -> None:
    """Print the versions of this package, of the Paddle that would be imported, and of Python, on one line."""
    CommandParser("version", "Versions of this package, Paddle and Python.", ("",)).parse_args(words)
    print(versions())
