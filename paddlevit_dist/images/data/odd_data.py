"""Oddities in data that are no errors: a line for each kind, with how often it occurs and where first."""

from collections.abc import Sequence
from typing import Any


class OddData:
    """Gathers what is odd; ``source``, if there is one, begins each line."""

    def __init__(self, source: str = "") -> None:
        self._before = f"{source} has " if source else ""
        self._found: dict[tuple[str, str], list[Any]] = {}  # kind and text -> how often, and the first

    def note(self, kind: str, text: str, example: Any, number: int = 1) -> None:
        """``number`` more entries of a kind, such as "image", that are odd in the same way."""
        self._found.setdefault((kind, text), [0, example])[0] += number

    def note_all(self, kind: str, text: str, examples: Sequence[Any]) -> None:
        """The entries that are odd in the same way; there may be none."""
        if len(examples):
            self.note(kind, text, examples[0], len(examples))

    def lines(self) -> list[str]:
        """``my.json has 2 objects without a box: never learned or found, as 17``."""
        return [
            f"{self._before}{count(number, kind)} {text}, as {example}"
            for (kind, text), (number, example) in self._found.items()
        ]


def count(number: int, one: str) -> str:
    """``1 image``, ``2,000 images``, ``2 boxes``, ``3 categories``."""
    several = f"{one[:-1]}ies" if one.endswith("y") else f"{one}es" if one.endswith("x") else f"{one}s"
    return f"{number:,} {one if number == 1 else several}"
