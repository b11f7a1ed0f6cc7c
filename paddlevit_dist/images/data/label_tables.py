"""The images and labels of a split from a user's tables: each image exists, is there once, and has its labels."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, shorten
from ...core.tasks.dataset import require_split
from .class_trees import find_inner_folder
from .data_warnings import first_names
from .formats import SkippedFiles
from .label_classes import describe_odd_labels, describe_unknown, find_classes, number_label_sets, number_labels
from .label_layouts import TableChoices, holds_labels, is_labeled_as
from .label_rows import describe_other_splits, group_by_split, read_rows, read_split_words
from .reading import SPLITS, require_folder
from .table_files import ImageFinder, find_tables

LAYOUT = "with a table such as labels.csv (columns image,label), or the table itself"
_MISSING = "missing images"


class TableOptions(NamedTuple):
    """How tables are read.

    Attributes:
        choices: their columns.
        images: folder of the images; None: that of the table.
        allows_missing: images that do not exist are skipped, instead of an error.
    """

    choices: TableChoices = TableChoices()
    images: str | None = None
    allows_missing: bool = False


class LabeledImages(NamedTuple):
    """The images and labels of a split.

    Attributes:
        root: folder that ``paths`` are relative to.
        paths: of the images that exist, each once, in the order of the table.
        labels: int32 (images,), or of several int8 (images, classes): 1, 0, or -1 for not known.
        class_names: in the order of the labels.
        notices: log lines.
        skipped_files: missing images.
        split: the word by which the table names it.
    """

    root: str
    paths: list[str]
    labels: np.ndarray
    class_names: list[str]
    notices: list[str]
    skipped_files: SkippedFiles
    split: str


def read_table(data_path: str | None, split: str, options: TableOptions, has_several: bool) -> LabeledImages:
    """Read the images and labels of ``split``; "test" replaces a missing "val".

    Args:
        data_path: a table, or a folder with one for all splits or for each.
        split: "train", "val", or another word in the column of splits or the name of a table.
        options: what the user says about the tables.
        has_several: whether an image may have several labels.

    Raises:
        UserError: there is no table or split, or images are missing, are named twice with different labels, or have no
            label; with their number and the first names.
    """
    place, tables = _find(data_path)
    base = place if os.path.isdir(place) else os.path.dirname(place)
    root = base if options.images is None else require_folder(options.images, "table", "of images (DATA.TABLE.IMAGES)")
    parts = group_by_split({word: read_rows(path, has_several, options.choices) for word, path in tables.items()})
    used = "test" if split == "val" and "val" not in parts and "test" in parts else split
    remark = ": add a column split or a table val.csv, or set DATA.VAL_FRACTION 0.2" if split == "val" else ""
    require_split(used, list(parts), f"table ({place})", remark)
    rows, selected = parts[used]
    classes = find_classes(parts, used, base)
    labels = (number_label_sets if has_several else number_labels)(parts[used], classes)
    finder, paths = ImageFinder(root), dict[str, list[str]]()
    for word, (table, indices) in parts.items():
        known = "" if "" in tables and table.splits is None else word
        names = [table.names[index] for index in indices.tolist()]
        paths[word] = finder.find(names, finder.find_folder(table.path), known)
    is_first = used == "train" or "train" not in parts
    notices = list(rows.notices) if is_first or "" not in tables else []
    if is_first and "" in tables:
        notices += describe_other_splits(rows)
    if finder.prefix and is_first:
        notices.append(f"{rows.path}: all paths begin with {finder.prefix}, which is removed")
    if used != split:
        notices.append(f"note: the {split} images are the {used} images of {rows.path}")
    skipped = _check_missing(rows.path, rows.names, selected, paths[used], root, options.allows_missing)
    kept = _drop_repeated(rows.path, paths[used], labels, notices, has_several and rows.codes is not None)
    found = [paths[used][index] for index in kept]
    if is_first:
        notices += [f"{rows.path}: {line}" for line in describe_odd_labels(classes.labels, rows.sets, has_several)]
    if has_several:
        notices += describe_unknown(labels[kept], found, rows.path)
    notices += describe_others(finder, paths, rows.path) if is_first else _describe_shared(found, paths, rows.path)
    return LabeledImages(root, found, labels[kept], classes.names, notices, skipped, used)


def list_splits(data_path: str, is_wanted: Callable[[str], bool] = holds_labels) -> set[str]:
    """Return the words of the splits that the tables of a data path have."""
    _, tables = _find(data_path, is_wanted)
    return read_split_words(tables[""]) if "" in tables else set(tables)


def _find(data_path: str | None, is_wanted: Callable[[str], bool] = holds_labels) -> tuple[str, dict[str, str]]:
    """Return the absolute data path, and its tables by split; a ``UserError`` if there are none."""
    place = find_data_path(data_path, "table", LAYOUT)
    inner = find_inner_folder(place) if os.path.isdir(place) and not find_tables(place) else ""
    tables = find_tables(inner or place, is_wanted)
    if not tables:
        raise UserError(f"{inner or place} has no table of labels, such as labels.csv, train.csv or train.parquet")
    train = tables.get("train")
    if train is not None:
        tables = {split: path for split, path in tables.items() if path == train or is_labeled_as(path, train)}
    return inner or place, tables


def find_tables_of_objects(
    data_path: str | None, dataset: str, layout: str, is_wanted: Callable[[str], bool], split: str, chosen: str | None
) -> tuple[dict[str, str], str]:
    """Return the tables of boxes or points by split, or the ``chosen`` one; and the folder that paths are relative to.

    Args:
        data_path: a table, or a folder with one for all splits or for each.
        dataset: its name, and its ``layout``, for messages.
        is_wanted: tells tables that have what is read.
        chosen: the table of ``split``, absolute or below ``data_path`` (DATA.TRAIN_ANNOTATIONS or VAL_ANNOTATIONS).
    """
    place = find_data_path(data_path, dataset, layout)
    if chosen is None:
        base, tables = _find(place, is_wanted)
        return tables, base if os.path.isdir(base) else os.path.dirname(base)
    base = place if os.path.isdir(place) else os.path.dirname(place)
    path = os.path.join(base, chosen)
    if not os.path.isfile(path):
        name = split.upper() if split in SPLITS else "VAL"
        raise UserError(f"DATA.{name}_ANNOTATIONS {chosen}: there is no file {path}")
    return {split: path}, base


def find_images(finder: ImageFinder, path: str, names: Sequence[str], root: str, split: str, key: str) -> list[str]:
    """Return the files of images that a table names; a ``UserError`` names missing ones, and one with two names.

    Args:
        finder: of the images below the root.
        path: of the table, for messages.
        root: folder of the images, which ``key`` sets.
        split: of the images; "": not known.
    """
    paths = finder.find(names, finder.find_folder(path), split)
    missing = [name for name, found in zip(names, paths) if not found]
    if missing:
        raise UserError(
            f"{path}: {len(missing):,} of {count(len(names), 'image')} missing below {root}: "
            f"{first_names(missing)}; correct their paths, or name their folder with {key}"
        )
    firsts: dict[str, str] = {}
    for name, found in zip(names, paths):
        if (first := firsts.setdefault(os.path.normpath(found), name)) != name:
            both = f"'{shorten(first, 60)}' and '{shorten(name, 60)}'"
            raise UserError(f"{path}: {both} are the same image: expected one name for each image")
    return [os.path.join(root, found) for found in paths]


def find_data_path(data_path: str | None, dataset: str, layout: str) -> str:
    """Return the absolute path of a folder or table, or raise a UserError with ``dataset`` and ``layout``."""
    if data_path is None:
        raise UserError(f"dataset {dataset} needs -data_path=<folder>, {layout}")
    place = os.path.abspath(os.path.expanduser(os.fspath(data_path)))
    if not os.path.exists(place):
        raise UserError(f"data path {place} does not exist; dataset {dataset} expects a folder {layout}")
    return place


def has_validation(data_path: str | None, is_wanted: Callable[[str], bool] = holds_labels) -> bool:
    """Return whether there are rows or a table of validation images, or else of test images."""
    if data_path is None or not os.path.exists(data_path):
        return False
    splits = list_splits(data_path, is_wanted)
    return "val" in splits or {"test", "train"} <= splits


def _check_missing(
    path: str, names: Sequence[str], selected: np.ndarray, paths: Sequence[str], root: str, allows_missing: bool
) -> SkippedFiles:
    """Return the missing images as skipped files, or raise a UserError if they are not allowed, or all are missing."""
    skipped = SkippedFiles(path)
    missing = [names[row] for row, found in zip(selected.tolist(), paths) if not found]
    if not missing:
        return skipped
    number = len(missing)
    if not allows_missing or number == len(paths):
        skip = "" if number == len(paths) else ", or skip them with DATA.ALLOW_SKIPPED_FILES True"
        raise UserError(
            f"{path}: {number:,} of {count(len(paths), 'image')} {'is' if number == 1 else 'are'} missing below "
            f"{root}: {first_names(missing)}; correct their paths, set DATA.TABLE.IMAGES to their folder{skip}"
        )
    skipped.counts[_MISSING] = skipped.images[_MISSING] = number
    skipped.unusable[_MISSING], skipped.example = missing[:3], missing[0]
    return skipped


def _drop_repeated(
    path: str, paths: Sequence[str], labels: np.ndarray, notices: list[str], has_lists: bool
) -> list[int]:
    """Return the indices of the images that exist, each once; a UserError if one is named again with other labels."""
    firsts: dict[str, int] = {}
    repeated = []
    for index, image in enumerate(paths):
        if image and firsts.setdefault(image, index) != index:
            repeated.append(index)
    differing = [index for index in repeated if np.any(labels[index] != labels[firsts[paths[index]]])]
    if differing:
        images = list(dict.fromkeys(paths[index] for index in differing))
        raise UserError(
            f"{path} names {count(len(images), 'image')} again with other labels: {first_names(images)}; keep one row "
            f"for each image{', with its labels in one cell (a;b)' if has_lists else ''}"
        )
    if repeated:
        images = list(dict.fromkeys(paths[index] for index in repeated))
        notices.append(f"{path} names {count(len(images), 'image')} again, read once: {first_names(images)}")
    return list(firsts.values())


def describe_others(finder: ImageFinder, paths: dict[str, list[str]], table: str) -> list[str]:
    """Return a line about images that no table names, in folders with images that one does."""
    named = {path for found in paths.values() for path in found if path}
    number, others = finder.count_others(named)
    if not number:
        return []
    are = "is" if number == 1 else "are"
    return [f"{count(number, 'image')} next to these {are} not in {table}, and not used: {first_names(others, number)}"]


def _describe_shared(found: Sequence[str], paths: dict[str, list[str]], table: str) -> list[str]:
    """Return a line about evaluated images that are also training images."""
    trained = set(paths["train"])
    shared = [path for path in found if path in trained]
    if not shared:
        return []
    are = "is" if len(shared) == 1 else "are"
    return [f"{table}: {count(len(shared), 'image')} {are} also named as a training image: {first_names(shared)}"]
