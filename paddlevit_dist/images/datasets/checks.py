"""What every image data set asks of its input before training starts."""

from __future__ import annotations

import os
from typing import Callable, Optional

import numpy as np

from ...errors import UserError

SPLITS = ("train", "val")


def check_split(split: str) -> str:
    """Return ``split`` if it is one of ``SPLITS``."""
    if split not in SPLITS:
        raise ValueError(f"split is '{split}', expected one of {SPLITS}")
    return split


def existing_folder(data_path: Optional[str], dataset: str, layout: str) -> str:
    """Return the absolute path of the folder that ``-data_path`` names.

    Raises:
        UserError: no path given, nothing there, or not a folder; the message tells the ``layout`` wanted.
    """
    if data_path is None:
        raise UserError(f"dataset {dataset} needs -data_path=<folder>, {layout}")
    folder = os.path.abspath(os.path.expanduser(os.fspath(data_path)))
    if not os.path.exists(folder):
        raise UserError(f"data path {folder} does not exist; dataset {dataset} expects a folder {layout}")
    if not os.path.isdir(folder):
        raise UserError(f"data path {folder} is not a folder; dataset {dataset} expects a folder {layout}")
    return folder


def check_labels(labels: np.ndarray, num_classes: int, dataset: str, where: Callable[[int], str]) -> None:
    """Make sure that every label is a class.

    Args:
        labels: (samples,) of any integer type.
        where: names the file and position of a sample, for the message.

    Raises:
        UserError: names the first sample outside ``0 .. num_classes - 1``.
    """
    wrong = (labels < 0) | (labels >= num_classes)
    if wrong.any():
        first = int(wrong.argmax())
        raise UserError(
            f"{where(first)} has label {int(labels[first])}, but {dataset} has {num_classes} classes: "
            f"labels go from 0 to {num_classes - 1}"
        )
