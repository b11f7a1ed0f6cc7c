"""Warnings about unusual data that are not errors: one line for each kind, with its number and the first example."""

from collections.abc import Sequence
from typing import Any

from ...core.runtime.printing import count, shorten


class DataWarnings:
    """Collects warnings; ``source``, if given, begins each line."""

    def __init__(self, source: str = "") -> None:
        self._before = f"{source} has " if source else ""
        self._entries: dict[tuple[str, str], list[Any]] = {}  # kind and text -> how often, and the first

    def note(self, kind: str, text: str, example: object, number: int = 1) -> None:
        """Add ``number`` entries of a kind, such as "image", with the same warning."""
        self._entries.setdefault((kind, text), [0, example])[0] += number

    def note_all(self, kind: str, text: str, examples: Sequence[Any]) -> None:
        """Add all ``examples``, which may be empty, with the same warning."""
        if len(examples):
            self.note(kind, text, examples[0], len(examples))

    def lines(self) -> list[str]:
        """Return lines like ``my.json has 2 objects without a box: never learned or found, such as 17``."""
        return [
            f"{self._before}{count(number, kind)} {text}, such as {example}"
            for (kind, text), (number, example) in self._entries.items()
        ]


def first_names(names: Sequence[str], number: int | None = None) -> str:
    """Return the first three of ``names``, followed by ... if there are more; ``number`` counts all of them."""
    shown = ", ".join(shorten(name, 80) for name in names[:3])
    return shown + ", ..." * ((len(names) if number is None else number) > 3)
