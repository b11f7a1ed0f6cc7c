"""Detect the dataset of images with segments in a folder, without Paddle, from names."""

import os

from ...core.runtime.errors import UserError
from ...core.runtime.files import is_address
from ...core.runtime.printing import one_line
from ..data.box_layouts import DatasetGuess
from ..data.hub.guessing import refuse_hub
from ..data.hub.repository import guess_repository, is_repository
from .data.layouts import DATASET, find_segment_layout


def guess_segments(path: str) -> DatasetGuess | None:
    """Detect the dataset of segments at a path; None if there is none, a ``UserError`` if it is not a folder."""
    if is_repository(path):
        return next(iter(find_segments(path, path)), None)
    if is_address(os.fspath(path)):
        raise UserError(f"{path} is an address, but maps of segments are read from files of this machine: copy them")
    root = os.path.abspath(os.path.expanduser(os.fspath(path)))
    if not os.path.isdir(root):
        _refuse_hub(root, os.fspath(path))
        raise UserError(f"data path {root} {'is a file' if os.path.exists(root) else 'does not exist'}; give a folder")
    return next(iter(find_segments(root, os.fspath(path).rstrip("/") or root)), None)


def find_segments(root: str, shown: str) -> list[DatasetGuess]:
    """Return the dataset of images with segments in a folder, ``shown`` in messages: none or one."""
    if is_repository(root):
        return guess_repository(root, lambda folder: find_segments(folder, folder))
    match = find_segment_layout(root) if os.path.isdir(root) else None
    if match is None:
        _refuse_hub(os.path.abspath(root), shown)
    return [] if match is None else [DatasetGuess(DATASET, one_line(f"{shown} has {match.layout.words}"))]


def _refuse_hub(path: str, shown: str) -> None:
    """Raise a UserError if there are data files with images, from which segments are not read."""
    refuse_hub(path, shown, "segments", "the segments in COCO's panoptic format (-dataset=coco_panoptic)")
