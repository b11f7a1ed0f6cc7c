"""Detect the dataset at a path for tasks that read no labels."""

import os

from ...core.registry.lookup import annotation_types
from ...core.registry.manifest import NO_LABELS
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line
from ..data.box_layouts import DatasetGuess
from ..data.class_trees import find_class_tree
from ..data.guessing import find_hub_images, guess
from ..data.hub.repository import guess_repository, is_repository


def guess_unlabeled(path: str) -> DatasetGuess:
    """Detect images with classes, which are for the score of an evaluation; any other path has unlabeled images.

    A ``UserError`` says that the path does not exist, or what is wrong with data files.
    """
    if is_repository(path):
        return guess_repository(path, lambda folder: [guess_unlabeled(folder)])[0]
    in_rows = find_hub_images(path, path)
    if in_rows:
        return in_rows[0]
    try:
        found = guess(path, NO_LABELS)
    except UserError:
        if not os.path.exists(os.path.expanduser(path)):
            raise
        found = None
    is_known = found is not None and not found.path and NO_LABELS in annotation_types("dataset", found.dataset)
    if found is not None and found.dataset == "folder":
        is_known = bool(
            find_class_tree(os.path.expanduser(path)).labeled & {"val", "test"}
        )  # else nothing is evaluated with classes
    if found is not None and is_known:
        return found
    return DatasetGuess("unlabeled", one_line(f"the task reads no labels, and {path} has no classes of images"))
