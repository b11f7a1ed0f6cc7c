"""Folders of images with annotation files: list the images, and detect changes."""

import functools
import hashlib
import os
from collections.abc import Iterable

from ...core.runtime.errors import UserError
from ...core.runtime.outages import read_through_outages
from ...core.runtime.spelling import compose
from .formats import get_suffix, list_folders, list_names, readable_suffixes


def map_images_by_stem(folder: str) -> dict[str, str]:
    """List the images directly in a folder, in the order of their names: composed name without suffix -> name.

    A ``UserError`` says that the folder cannot be listed, or that two images differ in their suffix only.
    """
    images: dict[str, str] = {}
    for name in list_image_names(folder):
        stem = compose(os.path.splitext(name)[0])
        if stem in images:
            raise UserError(
                f"{folder} has {images[stem]} and {name}: an annotation file would be for both; rename one of them"
            )
        images[stem] = name
    return images


def list_image_names(folder: str) -> list[str]:
    """Return the sorted names of the images directly in a folder; a ``UserError`` if it cannot be listed."""
    suffixes = readable_suffixes()
    return [name for name in list_names(folder) if get_suffix(os.fsencode(name)) in suffixes]


def stamp(kind: str, files: Iterable[str]) -> bytes:
    """Return the SHA-256 of the names, sizes and times of change of files, which may be missing."""
    key = hashlib.sha256(kind.encode())
    for file in files:
        try:
            status = read_through_outages(functools.partial(os.stat, file))
            times = f"{status.st_mtime_ns}\0{status.st_ctime_ns}"  # programs set the first, as cp -p and unzip do
            line = f"{os.path.abspath(file)}\0{status.st_size}\0{times}\n"
        except OSError:
            line = f"{file}\0missing\n"
        key.update(line.encode("utf-8", "surrogateescape"))
    return key.digest()


def list_images_below(folder: str) -> list[str]:
    """List the images in a folder and its subfolders, relative to it."""
    paths = list(map_images_by_stem(folder).values())
    for path in list_folders(folder):
        if not os.path.islink(path):
            paths += [os.path.join(os.path.basename(path), inner) for inner in list_images_below(path)]
    return paths
