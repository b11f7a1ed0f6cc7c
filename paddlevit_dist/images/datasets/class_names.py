"""``classes.txt`` beside the data: one class name per line, in the order of the labels. It names; it never relabels."""

from __future__ import annotations

import os
from typing import List, Optional, Sequence

from ...errors import UserError

FILE = "classes.txt"


def read_class_names(root: str) -> Optional[List[str]]:
    """The lines of ``root/classes.txt``, None where there is no such file.

    Raises:
        UserError: it cannot be read, is empty, or has a blank line or a name twice.
    """
    path = os.path.join(root, FILE)
    if not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8-sig") as stream:
            names = [line.strip() for line in stream.read().rstrip().splitlines()]
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from error
    if not names:
        raise UserError(f"{path} is empty; expected one class name per line, or delete it")
    seen = {}
    for number, name in enumerate(names, 1):
        if not name:
            raise UserError(f"{path} line {number} is blank; expected one class name per line")
        if name in seen:
            raise UserError(f"{path} lines {seen[name]} and {number} are both '{name}'; each class needs its own name")
        seen[name] = number
    return names


def name_folders(root: str, folders: Sequence[str]) -> List[str]:
    """What to call the classes that are sorted ``folders``: by ``classes.txt`` if there is one, else as the folders.

    Lines that begin with a folder's name, as in ``n01440764 tench``, name that folder, in any order; otherwise line by
    line in the order of the sorted folders.

    Raises:
        UserError: the file has another number of lines than there are classes, or is damaged.
    """
    names = read_class_names(root)
    if names is None:
        return list(folders)
    if len(names) != len(folders):
        raise UserError(
            f"{os.path.join(root, FILE)} has {len(names)} names, but there are {len(folders)} classes "
            f"({folders[0]} … {folders[-1]}); give one line for each or delete it"
        )
    named = dict((name.split(None, 1) * 2)[:2] for name in names)  # a bare folder name stands for itself
    if sorted(named) == sorted(folders):
        return [named[folder] for folder in folders]
    if set(names) == set(folders):
        return list(folders)
    return names
