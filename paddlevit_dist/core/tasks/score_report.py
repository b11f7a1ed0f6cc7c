"""Scores of results from other programs, which ``evaluate KIND`` computes and prints. Needs no Paddle."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..intervals.recompute import Recompute
from .score_kind import Arrays, ScoreKind, require_score_kind


class ResultSource(NamedTuple):
    """The dataset of some results, for comparisons, with the same words as in a run's own table."""

    dataset: str = ""  # registered name; empty if unknown
    split: str = ""  # empty if unknown

    def __str__(self) -> str:
        return f"{self.dataset} ({self.split})"


UNKNOWN = ResultSource()


@dataclass(frozen=True, eq=False)
class ScoreReport:
    """Results compared with the ground truth."""

    counted: str  # what was compared, one line
    names: Sequence[str]  # names of the samples, as in a run's table
    sample: str  # singular noun for a sample, such as "image"
    shown: Mapping[str, int]  # names of the values that are printed with their number of decimals; the main one first
    classes: Sequence[str]  # names of classes, or of landmarks
    protocol: Sequence[str]  # settings that scores depend on, one line each
    notices: list[str]  # unusual properties of the results, one line each
    task: str  # name of the task whose table this is: a registered task, or one of this command
    kind: str  # see ``metrics.SampleTable``
    arrays: Arrays  # see ``metrics.SampleTable``
    more_is_better: bool = True  # whether larger main values are better
    origin: ResultSource = UNKNOWN  # dataset of the ground truth

    @property
    def scores(self) -> ScoreKind:
        """What computes scores from the arrays; raises UserError if none of this kind is registered."""
        return require_score_kind(self.kind, self.classes)

    @functools.cached_property
    def recompute(self) -> Recompute:
        """What computes all values by name from weights of the samples, see ``ScoreKind.declare_recomputed``."""
        return self.scores.declare_recomputed([self.arrays], self.classes)
