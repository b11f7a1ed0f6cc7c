"""Scores of results that this package did not make: what a subject gives, and ``evaluate SORT`` tells. Needs no
Paddle."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..intervals.resampling import Recompute


class ResultSource(NamedTuple):
    """Whose samples these are, for a comparison: the same words as in a run's own table; "" where they are not known.

    Attributes:
        dataset: its registered name.
        split: of it.
    """

    dataset: str = ""
    split: str = ""

    def __str__(self) -> str:
        return f"{self.dataset} ({self.split})"


UNKNOWN = ResultSource()


class ScoreReport(NamedTuple):
    """Results, compared with the truth.

    Attributes:
        counted: what was compared, one line.
        names: of the samples, as a run's table has them.
        sample: what one is, such as "image".
        recompute: of weights of the samples, all values by name, see ``intervals``.
        shown: names of the values that are told, each with its decimals, the main one first.
        of_class: name of a class's own value, of which "{}" is the class, and its decimals; None: there is none.
        classes: names of classes, or of landmarks.
        protocol: what scores depend on, one line each.
        notices: what is odd, one line each.
        task: whose table this is: one of the registry, or of this command.
        kind, arrays: see ``metrics.Kept``.
        more_is_better: of the main value.
        origin: of the truth.
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
