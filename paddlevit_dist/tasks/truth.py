"""Ground truth in the arrays of scored samples (``SampleTable``, ``ScoreReport``). Needs no Paddle."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

Arrays = Mapping[str, np.ndarray]


def _count_annotated(arrays: Arrays) -> np.ndarray:
    """Count the annotations of each image by class and range of areas: int (images, classes, areas)."""
    counts = np.zeros((len(arrays["image_ids"]), *arrays["totals"].shape), np.int64)
    image, label, *area_counts = arrays["annotated"].T
    counts[image, label] = np.stack(area_counts, axis=1)
    return counts[np.searchsorted(arrays["image_ids"], arrays["ids"])]


#: by kind of table, the part of the arrays that no model changes: labels (samples,), or counts (samples, classes, ...)
TRUTH: Mapping[str, Callable[[Arrays], np.ndarray]] = {
    "classes": lambda arrays: arrays["labels"],
    "confusions": lambda arrays: arrays["statistics"][:, 1],
    "landmarks": lambda arrays: arrays["sums"][..., 0],
    "volume classes": lambda arrays: arrays["sums"][..., 5],
    "boxes": _count_annotated,
    "instances": lambda arrays: arrays["statistics"][:, 1],
}


def count_class_samples(
    kind: str, arrays: Arrays, classes: Sequence[str], groups: np.ndarray | None = None
) -> dict[str, int]:
    """Count the samples in which each class, or landmark, occurs; return an empty dict for a user's own kind of table.

    Args:
        kind: kind of the table, see ``SampleTable``.
        arrays: arrays of the table by name.
        classes: names of the classes.
        groups: name of each sample's group; if given, groups are counted instead of samples.
    """
    if kind not in TRUTH:
        return {}
    true = TRUTH[kind](arrays)
    if true.ndim == 1:
        samples, labels = np.arange(len(true)), true.astype(np.int64)
    else:
        samples, labels = np.nonzero((true.reshape(*true.shape[:2], -1) > 0).any(axis=2))
    if groups is not None:
        samples = np.unique(groups, return_inverse=True)[1][samples]
    counts = np.bincount(np.unique(labels * len(true) + samples) // max(len(true), 1), minlength=len(classes))
    return dict(zip(classes, counts.tolist()))
