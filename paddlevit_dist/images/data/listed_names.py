"""Lists with a name on each line, in which names may contain spaces and any other sign."""

import os
from collections.abc import Collection

from ...core.runtime.files import readable
from ...core.runtime.spelling import compose
from ...core.runtime.text_files import read_text, split_lines
from .formats import get_suffix, readable_suffixes


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


def remove_image_suffix(path: str) -> str:
    """Return a path without the suffix of an image, if it has one."""
    return os.path.splitext(path)[0] if has_image_suffix(path) else path


def has_image_suffix(path: str) -> bool:
    """Return whether a path ends as the images that can be read."""
    return get_suffix(os.fsencode(path)) in readable_suffixes()
