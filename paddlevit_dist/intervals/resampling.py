"""The percentile bootstrap over samples.

Samples (images, scenes, volumes) are drawn with replacement, keeping their number, and the score of each draw is
computed anew. The interval is the range between two quantiles of these scores. It covers the choice of samples, but
neither other training runs nor wrong labels. Samples that depend on one another, such as frames of one video, are drawn
together, as groups.

Draws depend only on the number of samples, or of groups. So the interval is a function of the table of samples, the
same for any number of processes, and two models that were evaluated on the same samples are drawn alike.

Source: B. Efron, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7, 1979; the percentile
interval and its correction for bias: B. Efron and R. Tibshirani, "An Introduction to the Bootstrap", 1993, sections
13.3 and 14.3 (with an acceleration of 0).
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ..runtime.printing import shorten

#: from weights, float64 (draws, samples), the count of each sample in each draw, to values by name, float (draws,);
#: NaN where a value is not defined for a draw. Values of one draw must not depend on the others.
Recompute = Callable[[np.ndarray], Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class ProportionRecompute:
    """A ``Recompute`` with values that are proportions, in percent, of correct decisions.

    A decision is what can be right or wrong: a sample, or one of several in a sample, such as a point.
    """

    values: Recompute  # computes all values
    rates: Mapping[str, int]  # the proportions by name, each with its number of decisions

    def __call__(self, weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Recompute all values for these weights; see ``Recompute``."""
        return self.values(weights)


RESAMPLES = 1000
_ROUNDING = 1e-9  # relative; smaller differences count as zero
_NORMAL = NormalDist()
_FEW, _RARE = 30, 10  # samples; samples that are wrong, or of a class
_MOST_LISTED = 3
_SEED = 0  # a constant: intervals are reproducible
_MOST_WEIGHTS = 1 << 22  # at a time, 32 MiB


class ConfidenceInterval(NamedTuple):
    """The value of all samples and the ends of its interval."""

    value: float
    low: float
    high: float

    def has_width(self) -> bool:
        """Return whether the ends differ by more than rounding."""
        return self.high - self.low > _ROUNDING * max(abs(self.low), self.high)

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


def wilson(value: float, count: float, percent: float) -> ConfidenceInterval:
    """Compute Wilson's score interval of a proportion ``value`` in percent, at a level such as 95 ``percent``.

    Its ends are between 0 and 100. It has a width even if all samples are alike. ``count`` is the number of samples; a
    fraction for dependent samples. Source: E. Wilson, "Probable Inference, the Law of Succession, and Statistical
    Inference", Journal of the American Statistical Association 22, 1927.
    """
    share, z = value / 100, _NORMAL.inv_cdf(0.5 + percent / 200)
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


def bootstrap(
    recompute: Recompute,
    num_samples: int,
    percent: float = 95,
    resamples: int = RESAMPLES,
    groups: Sequence[Hashable] | np.ndarray | None = None,
) -> dict[str, ConfidenceInterval]:
    """Compute the interval of each value that is defined for all samples together, by name.

    With few samples (below about 30) intervals are too narrow, because the bootstrap only knows these samples. Some
    scores, such as average precision, are larger for fewer distinct samples, and so for draws. The value is then not
    the median of the draws. The bias-corrected percentile method therefore moves the quantiles. The ends are values of
    draws, so they are always possible values of the score.

    Args:
        recompute: see ``Recompute``. Proportions, which ``ProportionRecompute`` and ``ClassificationCounts`` name, get
            ``wilson``'s interval instead. A sample or a group can contain several decisions. ``wilson`` then gets the
            number of independent decisions with the same information.
        num_samples: at least 1.
        percent: the level: how many of a hundred such intervals contain the value of the whole population.
        resamples: the number of draws. 1,000 fix the ends of a 95 % interval to about a twentieth of its width.
        groups: (samples,), equal for samples that are drawn together; None draws each sample alone.
    """
    rates = recompute.rates if isinstance(recompute, ProportionRecompute) else getattr(recompute, "rates", dict)()
    values, numbers = recompute(np.ones((1, num_samples))), number_groups(groups)
    if not values:
        return {}
    resampled, done = np.empty((len(values), resamples)), 0  # 60,000 values of two runs with 20,000 classes: 480 MB
    for weights in _draws(num_samples, resamples, numbers, len(values)):
        part, start, done = recompute(weights), done, done + len(weights)
        resampled[:, start:done] = np.concatenate([part[name] for name in values]).reshape(len(values), -1)
    tail = (1 - percent / 100) / 2
    intervals = {}
    groups_by_name = {} if numbers is None or not rates else count_groups(recompute, numbers)
    for (name, value), row in zip(values.items(), resampled):
        drawn = row[np.isfinite(row)]
        if len(drawn) and np.isfinite(value[0]):
            count, mean = rates.get(name), float(value[0])
            if count is None:
                intervals[name] = make_interval(mean, drawn, tail)
            else:
                units, minimum = groups_by_name.get(name, num_samples), groups_by_name.get(name, count)
                effective = count_independent(count, units, minimum, mean, drawn)
                intervals[name] = wilson(mean, effective, percent)
    return intervals


def number_groups(groups: Sequence[Hashable] | np.ndarray | None) -> np.ndarray | None:
    """Assign numbers to groups in order of appearance: int64 (samples,), from entries that are equal in a group.

    None if there are no groups, or each sample is its own group, so that no sample depends on another.
    """
    listed = [] if groups is None else np.asarray(groups).tolist()
    numbers_by_name = {name: number for number, name in enumerate(dict.fromkeys(listed))}
    if len(numbers_by_name) == len(listed):
        return None
    return np.array([numbers_by_name[name] for name in listed], np.int64)


def count_groups(recompute: Recompute, numbers: np.ndarray) -> dict[str, int]:
    """Count the groups in which each value is defined."""
    counts: Counter[str] = Counter()
    at_once, end = max(1, _MOST_WEIGHTS // len(numbers)), int(numbers.max()) + 1
    for first in range(0, end, at_once):
        members = np.arange(first, min(first + at_once, end))
        values = recompute((members[:, None] == numbers).astype(np.float64))
        counts.update({name: int((~np.isnan(value)).sum()) for name, value in values.items()})
    return counts


def small_sample_warning(
    num_samples: int,
    sample: str,
    intervals: Mapping[str, ConfidenceInterval],
    rates: Mapping[str, int],
    class_counts: Mapping[str, int],
    shown: Iterable[str],
) -> str | None:
    """Return one line on why these intervals are rough or missing, or None if they are sound.

    Intervals are rough with few samples, with few wrong (or right) ones, and with few samples of a class: draws then
    contain too little variation. Values with equal draws have no interval.

    Args:
        num_samples: number of samples.
        sample: name of one sample, such as "image".
        intervals: all intervals, by name.
        rates: see ``ProportionRecompute``; the errors of the first one are counted.
        class_counts: number of samples in which each class occurs.
        shown: names of the scores that are shown.
    """
    if not intervals:
        return None
    reasons = [f"{num_samples} {sample}s (below {_FEW})"] if num_samples < _FEW else []
    name, number = next(iter(rates.items()), ("", 0))
    if name in intervals:
        right = round(number * intervals[name].value / 100)
        few, what = min((number - right, "wrong"), (right, "right"))
        reasons += [f"{few} {what} (below {_RARE})"] if few < _RARE else []
    rare = [class_name for class_name, count in class_counts.items() if 0 < count < _RARE]
    reasons += [f"{_list(rare)} in fewer than {_RARE} {sample}s"] if rare else []
    notes = [f"the interval is rough: {', '.join(reasons)}: its true coverage is lower"] if reasons else []
    alike = [score for score in shown if score in intervals and not intervals[score].has_width()]
    notes += [f"no interval of {_list(alike)}: every draw gives the same"] if alike else []
    return "; ".join(notes) or None


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(shorten(name, 40) for name in names[:_MOST_LISTED]) + more


def count_independent(count: int, units: int, minimum: int, proportion: float, drawn: np.ndarray) -> float:
    """Return the number of independent decisions whose proportion would vary as much as these draws.

    Args:
        count: number of all decisions; the maximum of the result.
        units: number of independent samples or groups that contain the decisions.
        minimum: the result if all draws are equal.
        proportion: the proportion of all decisions, in percent.
        drawn: float (draws,), the proportion of each draw, in percent.
    """
    variance = float(drawn.var())
    if count <= units:
        return count
    if variance <= (_ROUNDING * proportion) ** 2:
        return minimum
    return min(float(count), max(proportion * (100 - proportion) / variance, 1.0))


def make_interval(value: float, drawn: np.ndarray, tail: float) -> ConfidenceInterval:
    """Return the bias-corrected interval of drawn values, float64 (draws,); ``tail`` is the share beyond each end."""
    slack = _ROUNDING * abs(value)
    below = float((drawn < value - slack).mean() + (abs(drawn - value) <= slack).mean() / 2)
    shift = 2 * _NORMAL.inv_cdf(min(max(below, 0.5 / len(drawn)), 1 - 0.5 / len(drawn)))
    quantiles = [_NORMAL.cdf(shift + _NORMAL.inv_cdf(share)) for share in (tail, 1 - tail)]
    low, high = map(float, np.quantile(drawn, quantiles))
    return ConfidenceInterval(value, min(low, value), max(high, value))


def _draws(
    num_samples: int, resamples: int, numbers: np.ndarray | None = None, num_values: int = 0
) -> Iterator[np.ndarray]:
    """Yield all draws, some at a time, as weights: float64 (draws, samples), equal for samples of one group.

    Fewer at a time if ``num_values`` are computed for each, such as one of each of 20,000 classes.
    """
    generator = np.random.Generator(np.random.PCG64(_SEED))
    drawn = num_samples if numbers is None else int(numbers.max()) + 1
    at_once = max(1, min(resamples, _MOST_WEIGHTS // (num_samples + num_values)))
    for first in range(0, resamples, at_once):
        weights = np.empty((min(at_once, resamples - first), drawn))
        for draw in weights:  # one by one: draws do not depend on the block size
            draw[:] = np.bincount(generator.integers(0, drawn, drawn), minlength=drawn)
        yield weights if numbers is None else weights[:, numbers]


def weighted_sums(weights: np.ndarray, statistics: np.ndarray) -> np.ndarray:
    """Sum statistics (samples, ...) with weights (draws, samples): float64 (draws, ...).

    The sums have the same bits for any number of threads.
    """
    flat = statistics.reshape(len(statistics), -1)
    return np.einsum("ds,sk->dk", weights, flat, dtype=np.float64).reshape(len(weights), *statistics.shape[1:])


def concat_rank_tables(parts: Sequence[tuple[Sequence[int], Sequence[np.ndarray]]]) -> list[np.ndarray]:
    """Concatenate the tables of all processes, ordered by the samples' indices: arrays (all samples, ...).

    A sampler that pads gives a sample to several processes. Such a sample counts once. Each process has as parts the
    indices of its samples in the data set, and equally many arrays (samples, ...) in their order. Raises ValueError:
    the rows of an array do not match the indices.
    """
    indices = np.concatenate([np.asarray(part, np.int64) for part, _ in parts])
    columns = [np.concatenate(pieces) for pieces in zip(*[arrays for _, arrays in parts])]
    for column in columns:
        if len(column) != len(indices):
            raise ValueError(f"{len(column)} rows for {len(indices)} samples: expected one for each")
    _, order = np.unique(indices, return_index=True)
    return [values[order] for values in columns]
