"""Score tasks that give each element (point, pixel) a class: all scores are quotients of counts. Needs no Paddle."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..intervals import ScoreRange, confusion_scores
from ..intervals.score_ranges import ERROR_RANGE, SHARE_RANGE
from ..runtime.printing import shorten
from ..tasks.metrics import TableMetrics
from ..tasks.score_kind import CROSS_ENTROPY, LOSS, Arrays, FormatInterval, ScoreKind, format_losses, name_loss

MEANS = ("mIoU", "accuracy", "mean class accuracy", "mean Dice", "boundary IoU")
_LONGEST_LIST = 60  # letters of the names of classes


class ConfusionScores(ScoreKind):
    """Scores of elements (points, pixels) that have one class each.

    Counts of all samples are summed before anything is divided. mIoU and the mean Dice coefficient average classes that
    occur as a label or as a prediction of a labeled element, as in mmsegmentation. The mean class accuracy averages
    classes that occur as a label. A class that occurs in neither has no value.

    Arrays have a row for each sample, see ``intervals.confusion_scores``: "statistics", int (samples, 3, classes), and
    "losses", float (samples,), NaN if unknown. Pixels also have "boundaries", int (samples, 3, classes).
    """

    class_score = "IoU {}"
    class_means = dict.fromkeys(("mIoU", "mean class accuracy", "mean Dice", "boundary IoU"), class_score)
    is_ranking = False
    has_cross_entropy = True

    def compute(self, arrays: Arrays, weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Compute ``intervals.confusion_scores``."""
        losses, boundaries = arrays["losses"], arrays.get("boundaries")
        values = confusion_scores(arrays["statistics"], self.classes, losses, boundaries)(weights)
        return {name_loss(arrays) if name == LOSS else name: column for name, column in values.items()}

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the ranges of the loss and of fractions."""
        names = (*MEANS, *(f"IoU {name}" for name in classes))
        return {**dict.fromkeys((LOSS, CROSS_ENTROPY), ERROR_RANGE), **dict.fromkeys(names, SHARE_RANGE)}

    def counts(self, arrays: Arrays) -> dict[str, int]:
        """Count the labeled elements."""
        return {_name_elements(arrays): int(arrays["statistics"][:, 1].sum())}

    def columns(self, arrays: Arrays) -> dict[str, Sequence[Any]]:
        """Return the number of labeled elements and the scores of each sample, without losses that are not known."""
        numbers = arrays["statistics"][:, 1].sum(axis=1)
        scores = super().columns(arrays)
        unknown = {name_loss(arrays)} if np.isnan(arrays["losses"]).all() else {}
        return {_name_elements(arrays): numbers, **{name: scores[name] for name in scores if name not in unknown}}

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the line that an evaluation ends with: pixels only have a user's loss."""
        text = (
            f"mIoU {values['mIoU']:.4f}{format_interval('mIoU', 3)} accuracy {values['accuracy']:.4f} "
            f"mean class accuracy {values['mean class accuracy']:.4f}"
        )
        if "boundary IoU" not in values:
            return f"{text} {format_losses(values)}"
        shares = f"mean Dice {values['mean Dice']:.4f} boundary IoU {values['boundary IoU']:.4f}"
        shares += f" {format_losses(values)}" if LOSS in values else ""
        absent = [name for name in self.classes if f"IoU {name}" not in values]
        number = f"{len(absent)} of {len(self.classes)} classes neither labeled nor predicted"
        note = f" ({number}: {shorten(', '.join(absent), _LONGEST_LIST)})" if absent else ""
        return f"{text} {shares}{note}"

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether there are counts of each sample and class."""
        tables = [arrays[name] for name in ("statistics", "boundaries") if name in arrays or name == "statistics"]
        return all(table.shape == (samples, 3, classes) for table in tables) and arrays["losses"].shape == (samples,)

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Return the number of labeled elements of each sample and class."""
        return arrays["statistics"][:, 1]


class ConfusionMetrics(TableMetrics):
    """Collect the counts of each sample, which ``ConfusionScores`` reads."""

    def __init__(self, class_names: Sequence[str], kind: str = "confusions", settings: Arrays | None = None) -> None:
        super().__init__(kind, class_names, settings)


def _name_elements(arrays: Arrays) -> str:
    return "pixels" if "boundaries" in arrays else "points"
