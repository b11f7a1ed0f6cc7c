"""Detect data files with images at a path, and which dataset reads them."""

import os
from collections.abc import Callable

from ....core.registry.manifest import BOX_LABELS, MASK_LABELS
from ....core.runtime.printing import one_line
from ..box_layouts import DatasetGuess
from .columns import find_contents, has_images
from .layout import find_files, is_metadata, refuse_scripts
from .repository import fetch_repository, is_repository, read_repository_features
from .storage import open_data

DATASETS = {BOX_LABELS: "hub_boxes", MASK_LABELS: "hub_label_maps"}  # others: hub


def find_hub(
    root: str,
    shown: str,
    contents: str | None = None,
    find_table: Callable[[str, str], DatasetGuess | None] = lambda root, shown: None,
) -> DatasetGuess | None:
    """Find Parquet or Arrow files with images at a path, ``shown`` in messages; None if there are none.

    A table of labels that ``find_table`` finds is preferred to metadata of images with classes.

    ``contents`` are the annotations that the task reads; None: the most likely ones decide.

    Raises:
        UserError: a file is damaged, or pyarrow is missing.
    """
    if is_repository(root):
        features = read_repository_features(root)
        if features:
            dataset = DATASETS.get(contents or find_contents(features), "hub")
            return DatasetGuess(dataset, one_line(f"{shown} is a repository at Hugging Face whose card says so"))
        root = fetch_repository(root)
    found = find_files(root, takes_first=True)
    if found is None:
        if os.path.isdir(root) and _has_only_scripts(root):
            refuse_scripts(root)
        return None
    file = next(iter(found.splits.values()))[0]
    features = open_data(file).features(found.features)
    if not has_images(features):
        return None
    dataset = DATASETS.get(contents or find_contents(features), "hub")
    if is_metadata(file) and dataset == "hub":
        table = find_table(root, shown)
        if table is not None:
            return table
    name = os.path.relpath(file, root) if os.path.isdir(root) else os.path.basename(file)
    what = "metadata of the images there" if is_metadata(file) else "a file with images in its rows"
    return DatasetGuess(dataset, one_line(f"{shown} has {name}, {what}"))


def _has_only_scripts(root: str) -> bool:
    """Return whether a folder is a repository with a script of its name, besides texts."""
    script = f"{os.path.basename(root.rstrip('/'))}.py"
    return os.path.isfile(os.path.join(root, script)) and os.path.isfile(os.path.join(root, "README.md"))
