"""Files in a dataset's folders that it does not use: counted by suffix, so that none is dropped silently."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional

from .formats import HEAD_BYTES, hint_of, picture_kind, suffix_of

_SHOWN_SUFFIXES = 8
# Text files that accompany images by the thousand: no need to open them to see that they are not images.
_TEXT_SUFFIXES = frozenset((b".txt", b".json", b".csv", b".tsv", b".xml", b".yaml", b".yml", b".md", b".cls", b".html"))


class LeftOut:
    """The files left out under one folder.

    A file counts as an image if it has the suffix of an image format that cannot be opened here, or if it starts like
    an image file but has no image suffix.

    Args:
        place: the folder or tar files, for messages.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self.counts: Dict[str, int] = {}  # suffix ("" for none) -> files
        self.pictures: Dict[str, int] = {}  # images among them
        self.example: Optional[str] = None  # one of the images
        self.beside = 0  # images next to the class folders
        self.beside_example: Optional[str] = None

    def add(self, name: bytes, path: bytes, read_head: Callable[[], bytes]) -> None:
        """Count a file; ``read_head`` returns its first 16 bytes and is called if the name is inconclusive."""
        suffix = suffix_of(name)
        shown = suffix.decode("ascii")
        self.counts[shown] = self.counts.get(shown, 0) + 1
        if hint_of(shown) or (suffix not in _TEXT_SUFFIXES and picture_kind(read_head())):
            self.pictures[shown] = self.pictures.get(shown, 0) + 1
            self.example = min(self.example or os.fsdecode(path), os.fsdecode(path))

    def add_beside(self, path: bytes) -> None:
        """Count an image that is next to the class folders and therefore has no class."""
        self.beside += 1
        self.beside_example = min(self.beside_example or os.fsdecode(path), os.fsdecode(path))

    def merge(self, other: LeftOut) -> None:
        """Add the counts of a part of this place."""
        for mine, more in ((self.counts, other.counts), (self.pictures, other.pictures)):
            for suffix, number in more.items():
                mine[suffix] = mine.get(suffix, 0) + number
        self.example = min(filter(None, (self.example, other.example)), default=None)

    @property
    def num_pictures(self) -> int:
        """Number of images among the files left out."""
        return sum(self.pictures.values())

    def lines(self) -> List[str]:
        """What to report, one line per finding."""
        said = []
        if self.counts:
            said.append(self.summary())
        if self.beside:
            are = "pictures are" if self.beside > 1 else "picture is"
            said.append(
                f"{self.beside:,} {are} next to the class folders of {self.place}, without a class, and not used: "
                f"{self.beside_example}"
            )
        return said

    def summary(self) -> str:
        """``left out below my_data/train: 12 .heic (pip install pillow-heif), 3 .txt, 1 without suffix``."""
        order = sorted(self.counts, key=lambda suffix: (-self.pictures.get(suffix, 0), -self.counts[suffix], suffix))
        shown = max(_SHOWN_SUFFIXES, sum(bool(self.pictures.get(suffix)) for suffix in order))  # all image suffixes
        parts = [self._part(suffix) for suffix in order[:shown]]
        rest = order[shown:]
        if rest:
            parts.append(f"{sum(self.counts[suffix] for suffix in rest):,} with {len(rest)} other suffixes")
        return f"left out below {self.place}: {', '.join(parts)}"

    def _part(self, suffix: str) -> str:
        number, pictures = self.counts[suffix], self.pictures.get(suffix, 0)
        named = f"{number:,} {suffix or 'without suffix'}"
        if not pictures:
            return named
        hint = hint_of(suffix)
        if hint:
            return f"{named} ({hint})"
        which = "pictures" if pictures == number else f"{pictures:,} of them pictures"
        return f"{named} ({which} by their content: rename them, as to .jpg)"

    def as_json(self) -> Dict[str, Any]:
        """Plain values from which ``of_json`` recreates the object."""
        return dict(self.__dict__)

    @classmethod
    def of_json(cls, stored: Dict[str, Any]) -> LeftOut:
        made = cls(stored["place"])
        made.__dict__.update(stored)
        return made


def head_of(path: bytes) -> bytes:
    """The first bytes of a file; empty if it cannot be read, since files left out need not be readable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return b""
    try:
        return os.read(descriptor, HEAD_BYTES)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def printable(line: str) -> str:
    """``line`` with non-UTF-8 bytes of file names written as ``\\xe9``, so that any stream or file accepts it."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
