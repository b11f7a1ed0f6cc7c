"""Tables of a report: scores of each class and each sample, and the confusion matrix."""

from collections.abc import Sequence

import numpy as np

from ..intervals import class_shares, nanmean, quotient
from ..runtime.printing import shorten
from ..tasks.figures import ConfusionMatrix, FigureTable
from .counts import reduce_confusions

_MOST_ROWS = 1_000
_LONGEST_LIST = 300  # letters of the names of classes


def class_tables(
    confusion: np.ndarray, class_names: Sequence[str], elements: str, boundaries: np.ndarray | None = None
) -> tuple[FigureTable, ConfusionMatrix]:
    """Return the table of the classes' scores and the confusion matrix.

    The counts of all samples are ``count_confusion``'s and ``boundary_statistics``'s, which only pixels have;
    ``elements`` are what is labeled, such as "points".
    """
    shares = class_shares(reduce_confusions(confusion))
    if boundaries is None:
        del shares["Dice"]
    else:
        shares["boundary IoU"] = class_shares(boundaries)["IoU"]
    occurring, labeled = confusion.any(axis=0) | confusion.any(axis=1), confusion.sum(axis=1).tolist()
    rows = [
        (class_names[number], *(round_share(column[number]) for column in shares.values()), labeled[number])
        for number in np.flatnonzero(occurring).tolist()
    ]
    columns = ["class", *shares, f"labeled {elements}"]
    absent = [name for name, occurs in zip(class_names, occurring) if not occurs]
    note = f"Neither labeled nor predicted: {shorten(', '.join(absent), _LONGEST_LIST)}." if absent else ""
    table = FigureTable(f"Classes of {elements}", columns, rows, note, shares=[*shares])
    return table, ConfusionMatrix(f"Confusion of {elements}", class_names, confusion)


def score_samples(statistics: np.ndarray) -> np.ndarray:
    """Return mIoU, accuracy and labeled elements, float64 (samples, 3), from ``reduce_confusions`` of each sample."""
    right, labeled = np.moveaxis(statistics[:, :2].sum(axis=2), 1, 0)  # (samples,) each
    return np.stack([nanmean(class_shares(statistics)["IoU"]), quotient(right, labeled), labeled], axis=1)


def sample_table(title: str, sample: str, names: Sequence[str], scores: np.ndarray, elements: str) -> FigureTable:
    """Return the table of the samples' scores, worst first, from the result of ``score_samples``.

    ``sample`` is what a sample is called, such as "scene", ``elements`` what is labeled in it, such as "points".
    """
    ious, accuracies, labeled = scores.T
    rows = list(zip(names, map(round_share, ious), map(round_share, accuracies), labeled.astype(np.int64).tolist()))
    rows.sort(key=lambda row: -np.inf if row[1] is None else row[1])
    note = f"The {_MOST_ROWS:,} worst of {len(rows):,}." if len(rows) > _MOST_ROWS else ""
    shares = ("mIoU", "accuracy")
    return FigureTable(title, (sample, *shares, f"labeled {elements}"), rows[:_MOST_ROWS], note, shares=shares)


def round_share(share: float) -> float | None:
    """Return a share with four decimals, as scores are logged; None for NaN."""
    return None if np.isnan(share) else round(float(share), 4)


def percent(share: float) -> float | None:
    """Return a share in percent with two decimals; None for NaN."""
    return None if np.isnan(share) else round(100 * float(share), 2)
