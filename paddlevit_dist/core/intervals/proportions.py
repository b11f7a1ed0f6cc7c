"""Intervals of proportions and of their paired differences, in closed form."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ..runtime.errors import UserError

ROUNDING = 1e-9  # relative; smaller differences count as zero


class ConfidenceInterval(NamedTuple):
    """The value of all samples and the ends of its interval."""

    value: float
    low: float
    high: float

    def has_width(self) -> bool:
        """Return whether the ends differ by more than rounding."""
        return self.high - self.low > ROUNDING * max(abs(self.low), self.high)

    def plain(self) -> dict[str, float]:
        """Return the three numbers by name for a file, rounded to six significant digits.

        An interval without width returns only its value. Two equal ends mean that the interval is unknown, but look
        like certainty.
        """
        numbers = self._asdict() if self.has_width() else {"value": self.value}
        return {name: float(f"{number:.6g}") for name, number in numbers.items()}

    def ends(self, decimals: int) -> str:
        """Format the ends for a line, such as "[82.4, 84.0]"."""
        return f"[{self.low:.{decimals}f}, {self.high:.{decimals}f}]"


def find_upper_share(percent: float) -> float:
    """Return the share below the upper end of an interval of this level; a UserError if it is none, such as 0.95."""
    if not (isinstance(percent, (int, float, np.number)) and 1 <= percent < 100):
        raise UserError(f"percent={percent!r}: expected a level from 1 to less than 100, such as 95")
    return 0.5 + percent / 200


def wilson(value: float, count: float, percent: float, quantile: float | None = None) -> ConfidenceInterval:
    """Compute Wilson's score interval of a proportion ``value`` in percent, at a level such as 95 ``percent``.

    Its ends are between 0 and 100. It has a width even if all samples are alike. Source: E. Wilson, "Probable
    Inference, the Law of Succession, and Statistical Inference", Journal of the American Statistical Association 22,
    1927.

    Args:
        value: the proportion, in percent.
        count: number of independent decisions; a fraction for dependent ones.
        percent: the level.
        quantile: of the upper end, in deviations; None: the normal distribution's, which ``percent`` is for.

    Raises UserError: ``percent`` is not a level.
    """
    share, z = value / 100, NormalDist().inv_cdf(find_upper_share(percent)) if quantile is None else quantile
    center, half = share + z * z / (2 * count), z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    low, high = (100 * (center + end) / (1 + z * z / count) for end in (-half, half))
    return ConfidenceInterval(value, min(max(low, 0.0), value), max(min(high, 100.0), value))


def paired_difference(
    first: np.ndarray, second: np.ndarray, percent: float, intervals: Sequence[ConfidenceInterval] = ()
) -> ConfidenceInterval:
    """Compute the interval of the difference of two paired proportions, second minus first, in percentage points.

    Both are predictions for the same samples. The intervals of both proportions are combined by the correlation of the
    predictions. The result has a width even if no prediction differs. Source: R. Newcombe, "Improved confidence
    intervals for the difference between binomial proportions based on paired data", Statistics in Medicine 17, 1998,
    method 10.

    Args:
        first: bool (samples,), correct predictions before.
        second: bool (samples,), correct predictions after.
        percent: the level of the interval, such as 95.
        intervals: the intervals of both proportions. Pass them if samples depend on one another; else ``wilson``
            computes them.
    """
    number, right = len(first), (int(first.sum()), int(second.sum()))
    before, after = intervals or [wilson(100 * count / number, number, percent) for count in right]
    both = int((first & second).sum())
    excess = both * (number - right[0] - right[1] + both) - (right[0] - both) * (right[1] - both)
    spread = math.sqrt(math.prod(count * (number - count) for count in right))
    phi = (max(excess - number / 2, 0.0) if excess > 0 else excess) / spread if spread else 0.0
    value = after.value - before.value
    sides = (after.value - after.low, before.high - before.value), (after.high - after.value, before.value - before.low)
    down, up = (math.sqrt(max(one * one - 2 * phi * one * other + other * other, 0.0)) for one, other in sides)
    return ConfidenceInterval(value, value - down, value + up)


def mcnemar_test(fixed: int, broken: int) -> float:
    """Compute the mid-p value of McNemar's test for numbers of samples that became right and wrong.

    p is the probability that a fair coin, thrown once for each changed sample, deviates from half by more, plus half
    the probability that it deviates as much; 1 if both numbers are equal. The exact test counts the latter in full, and
    with few changed samples it finds less than it may. Source: M. Fagerland, S. Lydersen and P. Laake, "The McNemar
    test for binary matched-pairs data: mid-p and asymptotic are better than exact conditional", BMC Medical Research
    Methodology 13, 2013.
    """
    changed = fixed + broken
    *more, as_much = (
        math.exp(math.lgamma(changed + 1) - math.lgamma(k + 1) - math.lgamma(changed - k + 1) - changed * math.log(2))
        for k in range(min(fixed, broken) + 1)
    )
    return min(1.0, 2 * math.fsum(more) + as_much)
