"""Tables of a report: scores of each class and each sample, and the confusion matrix."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runtime.printing import shorten
from ..tasks.figures import ConfusionMatrix, FigureTable
from .counts import reduce_confusions

_MOST_ROWS = 1_000
_LONGEST_LIST = 300  # letters of the names of classes


def class_tables(
    confusion: np.ndarray, class_names: Sequence[str], elements: str, boundaries: np.ndarray | None = None
) -> tuple[FigureTable, ConfusionMatrix]:
    """Return the table of the classes' scores and the confusion matrix.

    Args:
        confusion: int (classes, classes), of all samples; see ``count_confusion``.
        class_names: the name of each class.
        elements: name of the labeled elements, such as "points".
        boundaries: int (3, classes), of all samples; see ``boundary_statistics``. None: there are none.
    """
    rows = []
    occurring = confusion.any(axis=0) | confusion.any(axis=1)
    for number in np.flatnonzero(occurring).tolist():
        right, true, predicted = reduce_confusions(confusion)[:, number]
        shares = [percent(right, total) for total in (true + predicted - right, true, predicted)]
        if boundaries is not None:
            near_right, near, near_predicted = boundaries[:, number]
            shares += [percent(2 * right, true + predicted), percent(near_right, near + near_predicted - near_right)]
        rows.append((class_names[number], *shares, int(true)))
    columns = ["class", "IoU %", "recall %", "precision %", f"labeled {elements}"]
    columns[4:4] = [] if boundaries is None else ["Dice %", "boundary IoU %"]
    absent = [name for name, occurs in zip(class_names, occurring) if not occurs]
    note = f"Neither labeled nor predicted: {shorten(', '.join(absent), _LONGEST_LIST)}." if absent else ""
    table = FigureTable(f"Classes of {elements}", columns, rows, note)
    return table, ConfusionMatrix(f"Confusion of {elements}", class_names, confusion)


def sample_table(title: str, sample: str, names: Sequence[str], statistics: np.ndarray, elements: str) -> FigureTable:
    """Return the table of the samples' scores, worst first.

    Args:
        title: of the table.
        sample: name of one sample, such as "scene".
        names: of the samples.
        statistics: int (samples, 3, classes); see ``reduce_confusions``.
        elements: name of the labeled elements, such as "points".
    """
    rows = []
    for name, (right, true, predicted) in zip(names, statistics):
        union = true + predicted - right
        mean = 100 * float(np.mean(right[union > 0] / union[union > 0])) if union.any() else None
        shown = None if mean is None else round(mean, 2)
        rows.append((name, shown, percent(right.sum(), true.sum()), int(true.sum())))
    rows.sort(key=lambda row: -np.inf if row[1] is None else row[1])
    note = f"The {_MOST_ROWS:,} worst of {len(rows):,}." if len(rows) > _MOST_ROWS else ""
    return FigureTable(title, (sample, "mIoU %", "accuracy %", f"labeled {elements}"), rows[:_MOST_ROWS], note)


def percent(part: Any, whole: Any) -> Any:
    """Compute a percentage with two decimals; None if ``whole`` is 0."""
    return round(100 * float(part) / float(whole), 2) if whole else None
