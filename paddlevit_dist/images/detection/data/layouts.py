"""Folders of pictures with one file of annotations for each: what is there, and when it has changed."""

from __future__ import annotations

import hashlib
import os
from typing import Dict, Iterable, List, Sequence

import numpy as np

from ....errors import UserError
from ...data.formats import is_hidden, readable_suffixes, suffix_of


def pictures_in(folder: str) -> Dict[str, str]:
    """The pictures directly in a folder, in the order of their names: name without suffix -> name.

    Raises:
        UserError: it cannot be listed, or two pictures differ in their suffix only.
    """
    found: Dict[str, str] = {}
    for name in picture_names(folder):
        stem = os.path.splitext(name)[0]
        if stem in found:
            raise UserError(
                f"{folder} has {found[stem]} and {name}: one file of annotations would be for both; rename one"
            )
        found[stem] = name
    return found


def picture_names(folder: str) -> List[str]:
    """The sorted names of the pictures directly in a folder.

    Raises:
        UserError: it cannot be listed.
    """
    suffixes = readable_suffixes()
    return [name for name in names_in(folder) if suffix_of(os.fsencode(name)) in suffixes]


def names_in(folder: str) -> List[str]:
    """The sorted names in a folder, without hidden ones.

    Raises:
        UserError: it cannot be listed.
    """
    try:
        return sorted(name for name in os.listdir(folder) if not is_hidden(os.fsencode(name)))
    except OSError as error:
        raise UserError(f"folder {folder} cannot be listed: {error.strerror}") from error


def sub_folders(folder: str) -> List[str]:
    """The sorted names of the folders in a folder; empty where it cannot be listed."""
    try:
        return [name for name in names_in(folder) if os.path.isdir(os.path.join(folder, name))]
    except UserError:
        return []


def stamp(kind: str, files: Iterable[str]) -> bytes:
    """SHA-256 of the names, sizes and times of change of files, which may be missing."""
    key = hashlib.sha256(kind.encode())
    for file in files:
        try:
            status = os.stat(file)
            line = f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n"
        except OSError:
            line = f"{file}\0missing\n"
        key.update(line.encode("utf-8", "surrogateescape"))
    return key.digest()


def numbers_of(stems: Sequence[str]) -> np.ndarray:
    """A number for each picture, int64, all different: that which its name is, where all names are numbers (000005, or
    2008_000008); otherwise its position, from 1."""
    digits = [stem.replace("_", "") for stem in stems]
    if all(text.isascii() and text.isdigit() and len(text) < 16 for text in digits):
        numbers = np.array(list(map(int, digits)), dtype=np.int64)
        if len(np.unique(numbers)) == len(numbers):
            return numbers
    return np.arange(1, len(stems) + 1)
