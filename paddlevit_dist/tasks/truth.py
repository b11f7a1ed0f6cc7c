"""The truth in the arrays of scored samples (``metrics.SampleTable``, ``score_report.ScoreReport``), by their
kind. Needs no Paddle."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

Arrays = Mapping[str, np.ndarray]


def _count_annotated(arrays: Arrays) -> np.ndarray:
    """Annotations of each image, by class and range of areas: int (images, classes, areas)."""
    found = np.zeros((len(arrays["image_ids"]), *arrays["totals"].shape), np.int64)
    image, label, *counts = arrays["annotated"].T
    found[image, label] = np.stack(counts, axis=1)
    return found[np.searchsorted(arrays["image_ids"], arrays["ids"])]


#: of the arrays, what does not depend on a model: labels (samples,), or counts (samples, classes, ...)
TRUTH: Mapping[str, Callable[[Arrays], np.ndarray]] = {
    "classes": lambda arrays: arrays["labels"],
    "confusions": lambda arrays: arrays["statistics"][:, 1],
    "landmarks": lambda arrays: arrays["sums"][..., 0],
    "volume classes": lambda arrays: arrays["sums"][..., 5],
    "boxes": _count_annotated,
    "instances": lambda arrays: arrays["statistics"][:, 1],
}


def samples_of_classes(
    kind: str, arrays: Arrays, classes: Sequence[str], groups: np.ndarray | None = None
) -> dict[str, int]:
    """In how many samples each class, or landmark, occurs; empty for kinds of somebody's own.

    Args:
        groups: names of the samples' groups; groups are counted in place of samples.
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
