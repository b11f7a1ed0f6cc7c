"""Scores of results from other programs, which ``evaluate KIND`` computes and prints. Needs no Paddle."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..intervals.resampling import Recompute


class ResultSource(NamedTuple):
    """The dataset of some results, for comparisons, with the same words as in a run's own table.

    Attributes:
        dataset: registered name of the dataset; empty if unknown.
        split: name of the split; empty if unknown.
    """

    dataset: str = ""
    split: str = ""

    def __str__(self) -> str:
        return f"{self.dataset} ({self.split})"


UNKNOWN = ResultSource()


class ScoreReport(NamedTuple):
    """Results compared with the ground truth.

    Attributes:
        counted: what was compared, one line.
        names: names of the samples, as in a run's table.
        sample: singular noun for a sample, such as "image".
        recompute: computes all values by name from weights of the samples, see ``intervals``.
        shown: names of the values that are printed with their number of decimals; the main value is first.
        of_class: name of a class's value, with "{}" in place of the class, and its decimals; None: there is none.
        classes: names of classes, or of landmarks.
        protocol: settings that scores depend on, one line each.
        notices: unusual properties of the results, one line each.
        task: name of the task whose table this is: a registered task, or one of this command.
        kind: see ``metrics.SampleTable``.
        arrays: see ``metrics.SampleTable``.
        more_is_better: whether larger main values are better.
        origin: dataset of the ground truth.
    """

    counted: str
    names: Sequence[str]
    sample: str
    recompute: Recompute
    shown: Mapping[str, int]
    of_class: tuple[str, int] | None
    classes: Sequence[str]
    protocol: Sequence[str]
    notices: list[str]
    task: str
    kind: str
    arrays: Mapping[str, np.ndarray]
    more_is_better: bool = True
    origin: ResultSource = UNKNOWN
