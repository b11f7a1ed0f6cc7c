"""Label maps as objects: the mask of each class of an image, for networks whose queries learn masks."""

from typing import Any

import numpy as np
import paddle

from ..mask_queries.criterion import QueryTargets
from ..mask_queries.points import NumberMaps
from .data.segmentation_dataset import IGNORED
from .samples import HOST

_CLASSES, COUNTS = "classes", "class_counts"


def add_classes(batch: dict[str, Any]) -> dict[str, Any]:
    """Add the classes of each image of a training batch of N: int64 (N, M), ascending, padded with -1, M at least 1."""
    found = [np.unique(labels[labels != IGNORED]) for labels in batch["labels"]]
    counts = [len(numbers) for numbers in found]
    classes = np.full((len(found), max(1, *counts)), -1, np.int64)
    for row, numbers in zip(classes, found):
        row[: len(numbers)] = numbers
    return {**batch, _CLASSES: classes, HOST: {COUNTS: counts}}


def count_classes(batch: dict[str, Any]) -> np.ndarray:
    """Return the number of classes in each image of such a batch, int64 (N,), without asking the device."""
    return np.array(batch[HOST][COUNTS], np.int64)


def build_targets(batch: dict[str, paddle.Tensor]) -> QueryTargets:
    """Return the classes of such a batch as objects."""
    classes = batch[_CLASSES]
    return QueryTargets(NumberMaps(batch["labels"], classes), classes, count_classes(batch))
