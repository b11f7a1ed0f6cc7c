"""Detect which dataset of keypoints a path contains, without Paddle, from names and the beginnings of files."""

import os
import re

from ...core.runtime.errors import UserError
from ...core.runtime.files import is_address
from ...core.runtime.printing import one_line
from ..data.box_layouts import (
    DatasetGuess,
    find_boxes,
    find_yolo_descriptions,
    is_coco,
    is_yolo_description,
    read_beginning,
    refuse_own_formats,
)
from ..data.class_trees import find_inner_folder
from ..data.hub.guessing import refuse_hub
from ..data.hub.layout import ARROW, PARQUET
from ..data.hub.repository import guess_repository, is_repository
from ..data.known_layouts import refuse_known
from ..data.table_columns import SUFFIXES
from ..data.table_files import find_tables
from .data.point_tables import holds_points

_SHAPE = re.compile(rb"(?m)^kpt_shape\s*:")


def guess_keypoints(path: str) -> DatasetGuess | None:
    """Detect the dataset of keypoints at a path; None if nothing is recognized.

    A ``UserError`` says that the path does not exist, or lists the several kinds of data in it with their datasets.
    """
    if is_repository(path):
        return next(iter(find_keypoints(path, path)), None)
    if is_address(os.fspath(path)):
        raise UserError(f"{path} is an address, but keypoints are read from files of this machine: copy them here")
    root = os.path.abspath(os.path.expanduser(os.fspath(path)))
    if not os.path.exists(root):
        _refuse_hub(root, os.fspath(path))
        raise UserError(f"data path {root} does not exist")
    shown = os.fspath(path).rstrip("/") or root
    if os.path.isfile(root):
        return _guess_file(root, shown)
    guesses = find_keypoints(root, shown)
    if len(guesses) > 1:
        kinds = ", and ".join(f"{guess.reason} (-dataset={guess.dataset})" for guess in guesses)
        raise UserError(f"{kinds}: select one with -dataset, or move them to separate folders")
    if not guesses:
        refuse_own_formats(root)
    return guesses[0] if guesses else None


def find_keypoints(root: str, shown: str) -> list[DatasetGuess]:
    """Find the datasets of images with keypoints in a folder, ``shown`` in messages; usually none or one."""
    if is_repository(root):
        return guess_repository(root, lambda folder: find_keypoints(folder, folder))
    if not os.path.isdir(root):
        _refuse_hub(root, shown)
        return _find_described(root, shown)
    boxes = {guess.dataset: guess.reason for guess in find_boxes(root, shown)}
    found = []
    if "coco" in boxes:
        found.append(("coco_keypoints", boxes["coco"]))
    described = next((file for file in find_yolo_descriptions(root) if _SHAPE.search(read_beginning(file))), None)
    if described is not None:
        found.append(("yolo_pose", f"{shown} has {os.path.basename(described)} with kpt_shape"))
    table = None if found else _find_table(root)
    if table is not None:
        found.append(("keypoint_table", f"{shown} has {os.path.relpath(table, root)}, a table of points"))
    if not found:
        _refuse_hub(root, shown)
        refuse_known(root, find_inner_folder(root))
    return [DatasetGuess(dataset, one_line(reason)) for dataset, reason in found]


def _find_described(file: str, shown: str) -> list[DatasetGuess]:
    """Return the dataset of a file that describes YOLO data with keypoints; none: another file."""
    is_pose = os.path.isfile(file) and is_yolo_description(file) and _SHAPE.search(read_beginning(file)) is not None
    reason = f"{shown} names classes and images with YOLO's labels, with kpt_shape"
    return [DatasetGuess("yolo_pose", one_line(reason))] if is_pose else []


def _refuse_hub(path: str, shown: str) -> None:
    """Raise a UserError if there are data files with images, from which keypoints are not read."""
    refuse_hub(path, shown, "keypoints", "the keypoints to a file in COCO's format (-dataset=coco_keypoints)")


def _guess_file(file: str, shown: str) -> DatasetGuess | None:
    """Detect the dataset that a file is; raise a ``UserError`` if its folder is the dataset."""
    if described := _find_described(file, shown):
        return described[0]
    if is_coco(file):
        return DatasetGuess("coco_keypoints", one_line(f"{shown} contains annotations in COCO's format"))
    if file.lower().endswith((*PARQUET, *ARROW)):
        _refuse_hub(file, shown)
    if file.lower().endswith(SUFFIXES):
        return DatasetGuess("keypoint_table", one_line(f"{shown} is a table, read as one of points"))
    refuse_own_formats(file)
    if find_yolo_descriptions(os.path.dirname(file)) == [file] and _SHAPE.search(read_beginning(file)):
        return DatasetGuess("yolo_pose", one_line(f"{shown} has kpt_shape"), os.path.dirname(file))
    raise UserError(
        f"data path {shown} is a file; give the folder with this file and the images: {os.path.dirname(file)}"
    )


def _find_table(root: str) -> str | None:
    """Return a table with columns of points in a folder; None if there is none, or several that may be meant."""
    try:
        return next((path for path in find_tables(root, holds_points).values() if holds_points(path)), None)
    except UserError:
        return None
