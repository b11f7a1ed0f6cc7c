"""Lists with a name on each line, in which names may contain spaces and any other sign."""

import os
import re
from collections.abc import Callable, Collection, Sequence

from ...core.runtime.files import readable
from ...core.runtime.spelling import compose
from ...core.runtime.text_files import read_text, split_lines
from .formats import get_suffix, readable_suffixes

_MOST_TRIED = 20  # paths of a list; some may be missing


def read_name_lines(file: str) -> list[str]:
    """Read the lines of a list that are not blank, with the spaces around a name, as a file's name may have them.

    A ``UserError`` says that the file cannot be read.
    """
    with readable(file):
        return [line for line in split_lines(read_text(file)) if line.strip()]


def find_listed_name(text: str, known: Collection[str]) -> str | None:
    """Return which of the ``known`` names, in composed form, a text names; None if it names none of them.

    It is the whole text, or else the text without spaces around it, each with or else without an image's suffix.
    """
    for spelled in dict.fromkeys((text, text.strip())):
        for name in dict.fromkeys((compose(spelled), compose(remove_image_suffix(spelled)))):
            if name in known:
                return name
    return None


def find_foreign_prefix(paths: Sequence[str], exists: Callable[[str], bool]) -> str:
    """Return the folders of another machine that all paths begin with; "" if there are none, or one path has others.

    ``exists`` returns whether a path is here. Without the prefix, one of the first paths exists, and none does with it.
    What is removed is removed from all paths: by its end alone, a missing train/3.png would become val/3.png.
    """
    spelled = [path.replace("\\", "/") for path in paths]
    first = spelled[:_MOST_TRIED]
    if any(map(exists, first)):
        return ""
    for slash in re.finditer("/+", first[0] if first else ""):
        prefix = first[0][: slash.end()]
        if any(exists(path[len(prefix) :]) for path in first if path.startswith(prefix)):
            return prefix if all(path.startswith(prefix) for path in spelled) else ""
    return ""


def remove_image_suffix(path: str) -> str:
    """Return a path without the suffix of an image, if it has one."""
    return os.path.splitext(path)[0] if has_image_suffix(path) else path


def has_image_suffix(path: str) -> bool:
    """Return whether a path ends as the images that can be read."""
    return get_suffix(os.fsencode(path)) in readable_suffixes()
