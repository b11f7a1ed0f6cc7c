"""Guess the dataset of a folder of shapes, or say which folders the tasks on points read."""

import os
from pathlib import Path

from ..core.registry.extension_points import FolderGuess
from ..core.registry.lookup import find_built_in
from ..core.runtime.environment import program
from ..core.runtime.errors import UserError

_LISTS = ("modelnet40", "modelnet10")  # in the order of preference for meshes, whose layout is the same


def guess(path: str, task: str, place: str) -> FolderGuess:
    """Return the dataset of shapes that reads ``path``; a UserError, after ``place``, says how data are laid out."""
    if find_built_in(task) != "shape_classification":
        raise UserError(
            f"{place}: no dataset is named, and the files there are no prepared scenes (classes.txt and scenes): write "
            f"point clouds as scenes with '{program('prepare')} scenes {path} OUT', and add -dataset=scenes "
            f"-data_path=OUT, or -dataset=scannet for '{program('prepare')} scannet'"
        )
    root = os.path.abspath(os.path.expanduser(path))
    folders = [Path(root)]
    inner = [entry for entry in sorted(Path(root).iterdir()) if entry.is_dir()] if os.path.isdir(root) else []
    if len(inner) == 1:  # an archive with its own folder
        folders += inner
    for folder in folders:
        inside = "" if str(folder) == root else str(folder)
        for name in _LISTS:
            if (folder / f"{name}_train.txt").is_file():
                return FolderGuess(name, f"{folder} has {name}_train.txt", inside)
        mesh = next(folder.glob("*/train/*.off"), None)
        if mesh is not None:
            shown = mesh.relative_to(folder)
            return FolderGuess(_LISTS[0], f"{folder} has meshes in CLASS/train such as {shown}", inside)
    raise UserError(
        f"{place}: no dataset is named, and the files there are no shapes: expected meshes CLASS/train/*.off and "
        "CLASS/test/*.off, or modelnet40_train.txt, modelnet40_test.txt and modelnet40_shape_names.txt next to "
        "CLASS/NAME.txt, which -dataset=modelnet40 reads, and -dataset=modelnet10 by its own name"
    )
