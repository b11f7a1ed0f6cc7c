"""Folders of images that come with annotations of their own: which images, and whether anything has changed."""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator

from ...runtime.errors import UserError
from .formats import folder_paths, get_suffix, names_in, readable_suffixes


def images_in(folder: str) -> dict[str, str]:
    """The images directly in a folder, in the order of their names: name without suffix -> name.

    Raises:
        UserError: it cannot be listed, or two images differ in their suffix only.
    """
    found: dict[str, str] = {}
    for name in image_names(folder):
        stem = os.path.splitext(name)[0]
        if stem in found:
            raise UserError(
                f"{folder} has {found[stem]} and {name}: one file of annotations would be for both; rename one"
            )
        found[stem] = name
    return found


def image_names(folder: str) -> list[str]:
    """The sorted names of the images directly in a folder.

    Raises:
        UserError: it cannot be listed.
    """
    suffixes = readable_suffixes()
    return [name for name in names_in(folder) if get_suffix(os.fsencode(name)) in suffixes]


@contextlib.contextmanager
def readable(file: str) -> Iterator[None]:
    """Say what says that a file cannot be read, in words for users.

    Raises:
        UserError: in place of what says that ``file`` cannot be read, or holds something else.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{file} cannot be read: {reason}") from error


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


def images_below(folder: str) -> list[str]:
    """The images in a folder and its sub-folders, relative to it."""
    found = list(images_in(folder).values())
    for path in folder_paths(folder):
        if not os.path.islink(path):
            found += [os.path.join(os.path.basename(path), inner) for inner in images_below(path)]
    return found
