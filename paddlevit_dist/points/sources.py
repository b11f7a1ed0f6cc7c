"""The data sets of scenes that a task reads, by the names and keys of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import UserError
from ..registry import resolve


def open_scenes(config: Any, split: str, cache_folder: Path) -> Any:
    """The data set DATA.DATASET: ``__len__``, ``read(index) -> Scene``, ``describe``, ``class_names``.

    Raises:
        UserError: its name is unknown, its files are not there, or it has no scenes but pictures.
    """
    data = config.DATA
    options = {}
    if data.DATASET == "synthetic_rooms":
        rooms = config.POINTS.ROOMS
        options = {"num_train": rooms.TRAIN, "num_val": rooms.VAL, "spacing_m": rooms.SPACING_M}
    dataset = resolve("dataset", data.DATASET)(data.DATA_PATH, split, cache_folder, **options)
    if not hasattr(dataset, "ignore_label"):
        raise UserError(
            f"data set {data.DATASET} has no scenes of points, which TASK {config.TASK} reads; "
            "take synthetic_rooms, scannet or scenes"
        )
    return dataset


def number_of_classes(config: Any, dataset: Any) -> int:
    """MODEL.NUM_CLASSES, or the data set's where that is not set.

    Raises:
        UserError: the data set has more.
    """
    wanted = config.MODEL.NUM_CLASSES
    if wanted is not None and wanted < dataset.num_classes:
        raise UserError(
            f"data set {config.DATA.DATASET} has labels 0 to {dataset.num_classes - 1} but MODEL.NUM_CLASSES "
            f"(-num_classes) is {wanted}; set it to {dataset.num_classes} or leave it out"
        )
    return dataset.num_classes if wanted is None else wanted
