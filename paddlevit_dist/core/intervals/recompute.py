"""Functions to the values of weighted samples, and what they declare of their values."""

import dataclasses
from collections.abc import Callable, Collection, Mapping

import numpy as np

from .score_ranges import PERCENT_RANGE, UNBOUNDED, ScoreRange

#: from weights, float64 (draws, samples), the count of each sample in each draw, to values by name, float (draws,);
#: NaN where a value is not defined for a draw. Values of one draw must not depend on the others.
Recompute = Callable[[np.ndarray], Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class ProportionRecompute:
    """A ``Recompute`` that declares which values are proportions, in percent, and the range of others.

    A decision is what can be right or wrong: a sample, or one of several in a sample, such as a point.
    """

    values: Recompute  # computes all values
    rates: Mapping[str, int]  # the proportions by name, each with its number of decisions
    #: by name, means over classes, such as balanced accuracy, with the names of the values of classes
    class_means: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    #: from the name of another value to its range; None if it gets no interval
    find_range: Callable[[str], ScoreRange | None] = lambda name: UNBOUNDED
    pooled: Collection[str] = ()  # names of rates with several decisions a sample
    #: from numbers of groups, see ``number_groups``, to the number of samples or groups that have the class of a value,
    #: by name of the value; values of all classes have all samples
    count_units: Callable[[np.ndarray | None], Mapping[str, int]] = lambda numbers: {}
    sizes: np.ndarray | None = None  # (samples,), number of decisions of pooled rates; None: equally many

    def __call__(self, weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Recompute all values for these weights; see ``Recompute``."""
        return self.values(weights)

    def is_pooled(self, name: str, num_samples: int) -> bool:
        """Return whether a value is a rate with several decisions a sample."""
        return name in self.rates and (name in self.pooled or self.rates[name] > num_samples)

    def list_rates(self, name: str) -> list[str]:
        """Return the rates whose mean a value is; empty if it is not a mean, or the mean of other values."""
        return [rate for rate in self.class_means.get(name, ()) if rate in self.rates]

    def find_bounds(self, name: str) -> ScoreRange:
        """Return the lowest and highest possible value; rates are in percent."""
        return PERCENT_RANGE if name in self.rates else self.find_range(name) or UNBOUNDED
