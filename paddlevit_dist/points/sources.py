"""The data sets of scenes that a task reads, by the names and keys of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Optional

from ..errors import UserError
from ..registry import resolve
from .samples import COLOR_RANGE
from .scene import AS_GIVEN, CENTRED

_UNIT_ADVICE = (
    "if its coordinates are in millimetres, export the scenes in metres and prepare them again; else take larger voxels"
)
COORDINATES = "coordinates"  # what a checkpoint calls where the scenes lay that it was trained on


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


def coordinates_of(dataset: Any, others: Optional[str]) -> str:
    """Where the scenes of a data set lie, of which networks that are fed positions learn: ``CENTRED`` or ``AS_GIVEN``.

    Args:
        dataset: one that says nothing has them as they are given; a prepared store says the same for all its splits,
            so that an evaluation, which opens one, agrees with the training.
        others: the same of a split that was opened before; together with another kind they are as given.
    """
    own = getattr(dataset, "coordinates", AS_GIVEN)
    return own if others in (None, own) else AS_GIVEN


def unit_notices(dataset: Any, voxel_size_m: float, before: List[str]) -> List[str]:
    """What to say about the unit of a data set's coordinates, once for all its splits; only prepared stores know their
    extents.

    Args:
        before: what was said when other splits were opened.
    """
    if not hasattr(dataset, "unit_notice") or any(line.endswith(_UNIT_ADVICE) for line in before):
        return []
    notice = dataset.unit_notice(voxel_size_m)
    return [] if notice is None else [f"note: {notice}: {_UNIT_ADVICE}"]


def old_weights_notice(
    coordinates: Optional[str], color_range: List[float], voxel_features: str, then: str
) -> List[str]:
    """What to say of a checkpoint from before checkpoints told what their input was.

    Args:
        coordinates, color_range, voxel_features: of this run.
        then: what voxels showed for this task at that time, "first" or "mean".
    """
    changes = []
    if coordinates == CENTRED:
        changes.append("scenes that were not centred, unless 'prepare pth' had made them, and now all are centred")
    if list(color_range) != list(COLOR_RANGE) or voxel_features != then:
        changes.append(
            f"POINTS.COLOR_RANGE {list(COLOR_RANGE)} and POINTS.VOXEL_FEATURES {then}, and here they are "
            f"{list(color_range)} and {voxel_features}"
        )
    return [f"note: these weights come from a version that had {change}" for change in changes]


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
