"""Detect data files with images at a path, and which dataset reads them."""

import os
from collections.abc import Callable

from ....core.registry.manifest import BOX_LABELS, CLASS_LABELS, MASK_LABELS, NO_LABELS
from ....core.runtime.errors import UserError
from ....core.runtime.files import readable
from ....core.runtime.printing import one_line
from ..box_layouts import DatasetGuess
from .columns import HubChoices, choose_columns, find_contents, has_images, refuse_without_images
from .layout import (
    PARQUET,
    find_files,
    find_metadata,
    has_images_beside_metadata,
    is_metadata,
    is_pattern,
    refuse_scripts,
)
from .storage import FILE_NAME, open_data

_HEAD = 1 << 16  # bytes of metadata that name their columns
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
    found = find_files(root, takes_first=True)
    if found is None:
        if os.path.isdir(root) and _has_only_scripts(root):
            refuse_scripts(root)
        return None
    file = next(iter(found.splits.values()))[0]
    features = open_data(file).features(found.features)
    if not has_images(features):
        table = find_table(root, shown)
        if table is None and not os.path.isfile(root) and not is_metadata(file):
            refuse_without_images(features, file)
        return table
    dataset = DATASETS.get(contents or find_contents(features), "hub")
    if is_metadata(file) and dataset == "hub":
        table = find_table(root, shown)
        if table is not None:
            return table
    name = os.path.relpath(file, root) if os.path.isdir(root) else os.path.basename(file)
    what = "metadata of the images there" if is_metadata(file) else "a file with images in its rows"
    return DatasetGuess(dataset, one_line(f"{shown} has {name}, {what}"))


def refuse_hub(root: str, shown: str, what: str, instead: str) -> None:
    """Raise a UserError if there are data files with images at a path: ``what`` is not read from them, but ``instead``.

    The path is absolute; ``shown`` stands for it in messages.
    """
    if (is_pattern(root) or os.path.exists(root)) and find_hub(root, shown) is not None:
        raise UserError(
            f"data path {shown}: {what} are not read from Parquet, Arrow and metadata of images: write the images as "
            f"files, and {instead}"
        )


def metadata_decide(root: str) -> bool:
    """Return whether metadata of images say what is in them, and the folders that they are in do not.

    So it is if images are next to their metadata, in no folder, or if their labels are other ones than the names of
    folders. Metadata without labels, such as captions, say nothing about classes.

    Raises:
        UserError: the metadata are damaged, or pyarrow is missing.
    """
    if has_images_beside_metadata(root):
        return True
    files = [files[0] for files in find_metadata(root).values()]
    return any(_names_files(file) and _labels_differ(file) for file in files)


def _names_files(file: str) -> bool:
    """Return whether a file may be metadata of images: other files may have its name."""
    if file.endswith(PARQUET):
        return True
    with readable(file), open(file, "rb") as stream:
        return FILE_NAME.encode() in stream.read(_HEAD)


def _labels_differ(file: str) -> bool:
    """Return whether the labels in metadata are not the names of the folders in the paths of images."""
    data = open_data(file)
    features = data.features({})
    if not has_images(features):
        return False
    if find_contents(features) != CLASS_LABELS:
        return True
    columns = choose_columns(features, NO_LABELS, HubChoices(), file)
    if not columns.labels:
        return False
    for paths, labels in data.batches([columns.image, *columns.labels]):
        for path, label in zip(paths.to_pylist(), labels.to_pylist()):
            if label is not None and str(path).rpartition("/")[0].rpartition("/")[2] != str(label):
                return True
    return False


def _has_only_scripts(root: str) -> bool:
    """Return whether a folder is a repository with a script of its name, besides texts."""
    script = f"{os.path.basename(root.rstrip('/'))}.py"
    return os.path.isfile(os.path.join(root, script)) and os.path.isfile(os.path.join(root, "README.md"))
