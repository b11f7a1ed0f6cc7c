"""Score tasks that give each element (point, pixel) a class: all scores are quotients of counts."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..intervals import confusion_scores
from ..intervals.resampling import Recompute
from ..runtime.printing import shorten
from ..tasks.metrics import PerSampleMetrics, SampleTable
from ..tasks.score_kind import Arrays, ScoreKind, join_arrays
from .counts import reduce_confusions

CONFUSION = "confusion"  # of a state: int64 (classes, classes), rows are true classes, columns predicted ones
_LONGEST_LIST = 60  # letters of the names of classes


class ConfusionMetrics(PerSampleMetrics):
    """Count pairs of label and prediction; elements without a label do not count.

    Counts of all samples and ranks are summed before anything is divided. mIoU and the mean Dice coefficient average
    classes that occur as a label or as a prediction of a labeled element, as in mmsegmentation. The mean class accuracy
    averages classes that occur as a label. A class that occurs in neither has no value.
    """

    #: name of the labeled elements, such as "points"
    elements = "points"
    #: the second array of ``per_sample``: another argument of ``intervals.confusion_scores``
    second_array = "losses"

    def __init__(self, class_names: Sequence[str]) -> None:
        super().__init__()
        self.class_names = list(class_names)

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Compute ``intervals.confusion_scores`` of all samples together; means without values are 0."""
        statistics = reduce_confusions(np.asarray(state[CONFUSION], np.int64))
        return self.scores(statistics[None])

    def scores(self, statistics: np.ndarray, boundaries: np.ndarray | None = None) -> dict[str, float]:
        """Compute ``intervals.confusion_scores`` of one sample, without absent classes, from int (1, 3, classes).

        ``boundaries`` are of the pixels near boundaries, in this shape; None: there are none.
        """
        scores = confusion_scores(statistics, self.class_names, boundaries=boundaries)(np.ones((1, 1)))
        numbers = {name: float(column[0]) for name, column in scores.items()}
        absent = {f"IoU {name}" for name in self.class_names if np.isnan(numbers[f"IoU {name}"])}
        return {name: float(np.nan_to_num(number)) for name, number in numbers.items() if name not in absent}

    @abstractmethod
    def per_sample(self) -> list[np.ndarray]:
        """Return int64 (samples, 3, classes), see ``intervals.confusion_scores``, and ``second_array``."""

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
        """Recompute the scores for each draw from the arrays of ``per_sample``; float64 weights (draws, samples)."""
        more = {self.second_array: table[1]}
        return dict(confusion_scores(table[0], self.class_names, **more)(weights))

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable:
        """Name the arrays for a file that ``compare`` reads; unknown losses are NaN."""
        unknown = {"losses": np.full(len(table[0]), np.nan)}
        arrays = {"statistics": table[0], **unknown, self.second_array: table[1]}
        return SampleTable("confusions", self.class_names, arrays)

    def columns(self, table: Sequence[np.ndarray]) -> dict[str, Sequence[Any]]:
        """Return the number of labeled elements and the scores of each sample."""
        return {self.elements: table[0][:, 1].sum(axis=1), **super().columns(table)}

    def summary(self, values: dict[str, float]) -> str:
        """Format the line that an evaluation ends with."""
        return (
            f"mIoU {values['mIoU']:.4f}{self.format_interval('mIoU', 3)} accuracy {values['accuracy']:.4f} "
            f"mean class accuracy {values['mean class accuracy']:.4f}"
        )

    def absent(self, values: dict[str, float]) -> str:
        """Format for ``summary`` the classes that occur nowhere, in parentheses after a space; empty if all occur."""
        names = [name for name in self.class_names if np.isnan(values.get(f"IoU {name}", np.nan))]
        text = f"{len(names)} of {len(self.class_names)} classes neither labeled nor predicted"
        return f" ({text}: {shorten(', '.join(names), _LONGEST_LIST)})" if names else ""


class ConfusionScores(ScoreKind):
    """Scores of tables that ``ConfusionMetrics`` writes."""

    class_score = "IoU {}"

    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
        """Return ``intervals.confusion_scores`` of the samples."""
        boundaries = join_arrays(parts, "boundaries") if all("boundaries" in part for part in parts) else None
        statistics, losses = join_arrays(parts, "statistics"), join_arrays(parts, "losses")
        return confusion_scores(statistics, classes, losses, boundaries)

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether there are counts of each sample and class."""
        tables = [arrays[name] for name in ("statistics", "boundaries") if name in arrays or name == "statistics"]
        return all(table.shape == (samples, 3, classes) for table in tables) and arrays["losses"].shape == (samples,)

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Return the number of labeled elements of each sample and class."""
        return arrays["statistics"][:, 1]
