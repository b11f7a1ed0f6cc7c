"""Largest connected components of label maps: the removal of smaller ones, and the decision where it helps.

Source: nnU-Net's ``remove_connected_components.py``. Voxels are connected if they share a face, an edge or a corner;
components of equal size are kept together.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten
from ..reading import case_name, import_extra, list_volumes
from ..settings import MAX_VOXELS
from .dataset import LabelStore
from .metrics import VolumeMetrics
from .nnunet import DESCRIPTION, DatasetDescription, read_description
from .regions import group_labels

FOREGROUND = "foreground"  # all classes together
_FOLDERS = ("labelsTr", "labelsTs")
Labels = tuple[int, ...]


class ComponentDecision(NamedTuple):
    """Decision for the foreground, or for one class or region."""

    name: str  # what it is about
    before: float  # mean Dice, of all classes for the foreground, else of this one; NaN: it is on no label map
    after: float  # the same with the largest component only
    removes_smaller: bool  # whether smaller components are to be removed


def find_labels(names: Sequence[str], groups: Mapping[str, Labels]) -> list[Labels]:
    """Return the labels of VOLUMES.LARGEST_COMPONENT: classes, regions, or ``FOREGROUND``; UserError for others.

    ``groups`` are the labels of each class by name, the background first.
    """
    classes = dict(list(groups.items())[1:])
    if names:
        import_extra("scipy", "VOLUMES.LARGEST_COMPONENT")  # fail before hours of training
    known = {FOREGROUND: tuple(sorted({label for labels in classes.values() for label in labels})), **classes}
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise UserError(f"VOLUMES.LARGEST_COMPONENT names {unknown}; expected some of {shorten(', '.join(known), 200)}")
    return [known[name] for name in names]


def keep_largest(array: np.ndarray, groups: Sequence[Labels]) -> np.ndarray:
    """Return label maps, uint8 (depth, height, width), with all but each group's largest component as background."""
    for labels in groups:
        mask = np.isin(array, labels)
        ndimage = import_extra("scipy.ndimage", "VOLUMES.LARGEST_COMPONENT")
        components, number = ndimage.label(mask, np.ones((3, 3, 3)))
        if number > 1:
            sizes = np.bincount(components.ravel())
            is_small = sizes < sizes[1:].max()
            is_small[0] = False
            array = np.where(is_small[components], array.dtype.type(0), array)
    return array


class LabelPairs:
    """Predicted and true label maps of a dataset in nnU-Net's layout, matched by name.

    ``predictions`` is a folder of label maps, such as an evaluation's; ``data`` one with ``dataset.json``, which lists
    the labels, or ``labelsTr`` or ``labelsTs``. UserError if there are no predictions, or one has no true labels.
    """

    def __init__(self, predictions: str, data: str, cache: Path, max_voxels: int = MAX_VOXELS) -> None:
        self.description: DatasetDescription = read_description(os.path.join(data, DESCRIPTION))
        folders = [os.path.join(data, name) for name in _FOLDERS if os.path.isdir(os.path.join(data, name))]
        truths = {case_name(file): file for folder in folders for file in list_volumes(folder)}
        truths.update({name: label for name, _, label in self.description.cases if label is not None})
        files = list_volumes(predictions)
        unknown = [os.path.basename(file) for file in files if case_name(file) not in truths]
        if not files or unknown:
            what = f"{shorten(', '.join(unknown), 200)} without labels" if unknown else "no label maps"
            raise UserError(
                f"{predictions} contains {what}: expected files named as in {' or '.join(_FOLDERS)} of {data}"
            )
        self._pairs = [(file, truths[case_name(file)]) for file in files]
        self._store = LabelStore(cache, None, max_voxels, self.description.numbers, self.description.ignored)

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for predicted, true in self._pairs:
            arrays = [np.asarray(self._store.labels(file, file).array) for file in (predicted, true)]
            if arrays[0].shape != arrays[1].shape:
                sizes = " and ".join(" x ".join(map(str, array.shape)) for array in arrays)
                raise UserError(f"{predicted} and {true} have different sizes, {sizes} voxels")
            yield arrays[0], arrays[1]


def decide_components(pairs: LabelPairs) -> list[ComponentDecision]:
    """Decide where only the largest component is kept, first for the foreground, then for each class in order.

    The foreground's is kept if it raises the mean Dice and lowers that of no class; a class's if it raises the Dice of
    that class. Each decision starts from the label maps after the ones before it.
    """
    groups = group_labels(pairs.description.class_names, pairs.description.regions)
    classes = list(groups)[1:]
    decisions: list[ComponentDecision] = []
    current = _score(pairs, groups, [])
    for name in [FOREGROUND, *(classes if len(classes) > 1 else ())]:
        removed = [decision.name for decision in decisions if decision.removes_smaller]
        if name in removed:
            continue
        changed, value = _score(pairs, groups, [*removed, name]), "Dice" if name == FOREGROUND else f"Dice {name}"
        before, after = (scores.get(value, np.nan) for scores in (current, changed))
        is_better = after > before
        if name == FOREGROUND:
            # A class of no true label map has no Dice once all its predictions are removed.
            scored = [f"Dice {each}" for each in classes if {f"Dice {each}"} <= current.keys() & changed.keys()]
            is_better = is_better and all(changed[each] >= current[each] for each in scored)
        decisions.append(ComponentDecision(name, before, after, is_better))
        current = changed if is_better else current
    return decisions


def _score(pairs: LabelPairs, groups: Mapping[str, Labels], names: Sequence[str]) -> dict[str, float]:
    """Compute the defined scores of all pairs after the removals of ``names``."""
    metrics = VolumeMetrics(list(groups), False, list(groups.values())[1:])
    for predicted, true in pairs:
        metrics.update(keep_largest(predicted, find_labels(names, groups)), true, np.ones(3))
    values = metrics.scores.compute_scores(metrics.rows(), np.ones((1, len(pairs))))
    return {name: float(column[0]) for name, column in values.items() if not np.isnan(column[0])}
