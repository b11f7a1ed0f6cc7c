"""Confidence intervals from half samples.

Half of the samples (images, scenes, volumes) are chosen without repeats, again and again, and the score of each half is
computed anew. The deviation of these scores is that of the score of all samples: a half sample varies as much around
all samples as these do around what they were drawn from. Student's t distribution and the range of the score turn the
deviation into an interval. It covers the score that is expected for this number of samples from the same source, but
neither other training runs nor wrong labels. Samples that depend on one another, such as frames of one video, are
chosen together, as groups.

A draw with repeats would not do: a score that averages over rare classes, or precisions, is biased by repeats, mostly
by more than it varies.

Halves depend only on the number of samples, or of groups. So the interval is a function of the table of samples, the
same for any number of processes, and two models that were evaluated on the same samples are halved alike.

Source: J. Shao and C. F. J. Wu, "A General Theory for Jackknife Variance Estimation", Annals of Statistics 17, 1989
(the jackknife that leaves out half); the number of independent decisions with this deviation, and Student's quantile
with it: E. L. Korn and B. I. Graubard, "Confidence Intervals for Proportions with Small Expected Number of Positive
Counts Estimated from Survey Data", Survey Methodology 24, 1998.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import shorten
from .proportions import ROUNDING, ConfidenceInterval, find_upper_share, wilson
from .quantiles import student_quantile
from .score_ranges import PERCENT_RANGE, UNBOUNDED, ScoreRange, require_inside

#: from weights, float64 (draws, samples), the count of each sample in each draw, to values by name, float (draws,);
#: NaN where a value is not defined for a draw. Values of one draw must not depend on the others.
Recompute = Callable[[np.ndarray], Mapping[str, np.ndarray]]


def find_no_range(name: str) -> ScoreRange | None:
    """Return the range of a value about which nothing is known."""
    return UNBOUNDED


@dataclasses.dataclass(frozen=True)
class ProportionRecompute:
    """A ``Recompute`` that declares which values are proportions, in percent, and the range of others.

    A decision is what can be right or wrong: a sample, or one of several in a sample, such as a point.
    """

    values: Recompute  # computes all values
    rates: Mapping[str, int]  # the proportions by name, each with its number of decisions
    #: by name, means of other rates, such as balanced accuracy, with the names of these
    rate_means: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    #: from the name of another value to its range; None if it gets no interval
    find_range: Callable[[str], ScoreRange | None] = find_no_range
    pooled: Collection[str] = ()  # names of rates with several decisions a sample
    #: from numbers of groups, see ``number_groups``, to the number of samples or groups that have the class of a value,
    #: by name of the value; values of all classes have all samples
    count_units: Callable[[np.ndarray | None], Mapping[str, int]] = lambda numbers: {}

    def __call__(self, weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Recompute all values for these weights; see ``Recompute``."""
        return self.values(weights)

    def find_bounds(self, name: str) -> ScoreRange:
        """Return the lowest and highest possible value; rates are in percent."""
        return PERCENT_RANGE if name in self.rates else self.find_range(name) or UNBOUNDED


RESAMPLES = 1000
_FEWEST = 3  # samples or groups: the deviation of two is one number
_FEW_ENUMERATED = 20  # samples or groups whose halves are counted, to use each once if they are few
FEW = 50  # samples
_RARE = 10  # samples that are wrong, or of a class
#: lowest share of 95 % intervals, in percent, that held with few samples or errors: of Wilson's, with one error in 300
#: samples; other simulations of benchmarks/results/coverage.md had no lower one, without rare large errors
_HELD = 83
_MOST_LISTED = 3
_SEED = 0  # a constant: intervals are reproducible
_MOST_WEIGHTS = 1 << 22  # at a time, 32 MiB


def bootstrap(
    recompute: Recompute,
    num_samples: int,
    percent: float = 95,
    resamples: int = RESAMPLES,
    groups: Sequence[Hashable] | np.ndarray | None = None,
) -> dict[str, ConfidenceInterval]:
    """Compute the interval of each value that is defined for all samples together, by name.

    - A rate of samples that do not depend on one another has ``wilson``'s interval, without halves.
    - Another value with two bounds is treated like a proportion: of the number of independent decisions that would
      deviate equally. ``wilson`` gets this number, and Student's quantile. So the ends are possible values, and nearer
      on the side of a bound. A rate has at most its own number of decisions, and with few errors the number of samples;
      a mean of rates the number with which it would vary if all rates were alike.
    - An error, from 0 to infinity, has an interval that is symmetric on the logarithm; other values one that is
      symmetric.

    A value has no width (equal ends) if all halves agree, or with fewer than three samples or groups.

    Raises UserError: a value is outside of its range, or an argument is wrong.

    Args:
        recompute: see ``Recompute``. ``ProportionRecompute`` and ``ClassificationCounts`` name rates and ranges;
            values of another function are without bounds.
        num_samples: at least 1.
        percent: the level, from 1: how many of a hundred such intervals contain the score that is expected for this
            number of samples.
        resamples: the number of halves, at least 2. 1,000 fix the width of an interval to about a fiftieth.
        groups: (samples,), equal for samples that are chosen together; None chooses each sample alone.
    """
    declared, share = _declare(recompute), find_upper_share(percent)
    if groups is not None and len(groups) != num_samples:
        raise UserError(f"groups has {len(groups):,} entries for {num_samples:,} samples: give one for each sample")
    numbers = number_groups(groups)
    units, balance = _count_units(num_samples, numbers), _measure_balance(numbers)
    found = measure_deviations(declared, num_samples, resamples, numbers)
    units_by_name = {**declared.count_units(numbers)}
    if numbers is not None and declared.rates:  # other scores may need several groups, such as both classes
        counted = count_groups(declared, numbers)
        units_by_name |= {name: counted[name] for name in declared.rates if name in counted}
    intervals = {}
    for name, (value, deviation) in found.items():
        count, number = declared.rates.get(name), units_by_name.get(name, units)
        quantile = student_quantile(share, max(balance * number - 1, 1))
        if count is not None and numbers is None and name not in declared.pooled and count <= num_samples:
            intervals[name] = wilson(value, count, percent)
        elif count is not None or name in declared.rate_means:
            most = count or _count_if_alike(declared, declared.rate_means[name], found)
            effective = count_independent(most, number, value / 100, deviation / 100)
            if count is not None and (name in declared.pooled or count > num_samples):
                effective = min(effective, _limit_decisions(effective, value / 100, number))
            intervals[name] = wilson(value, effective, percent, quantile)
        else:
            deviation, bounds = deviation if number >= _FEWEST else 0.0, declared.find_range(name)
            require_inside(name, value, bounds)
            intervals[name] = make_interval(value, deviation, quantile, bounds)
    return intervals


def _declare(recompute: Recompute) -> ProportionRecompute:
    if isinstance(recompute, ProportionRecompute):
        return recompute
    return recompute.declare() if hasattr(recompute, "declare") else ProportionRecompute(recompute, {})


def _count_units(num_samples: int, numbers: np.ndarray | None) -> int:
    return num_samples if numbers is None else int(numbers.max()) + 1


def _measure_balance(numbers: np.ndarray | None) -> float:
    """Return the number of equally large groups that would vary as much as these, as a share of their number.

    Without groups, 1. Source: L. Kish, "Survey Sampling", 1965, section 11.7 (the effect of unequal weights).
    """
    if numbers is None:
        return 1.0
    sizes = np.bincount(numbers).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum() / len(sizes))


def _count_if_alike(
    declared: ProportionRecompute, names: Collection[str], found: Mapping[str, tuple[float, float]]
) -> float:
    """Return the number of decisions with which a mean of rates would vary if they were alike.

    Halves vary too little if a rate has few decisions, or all of them are right, or wrong. Otherwise the number is
    infinite: halves say it.
    """
    counts = {name: declared.rates[name] for name in names if name in declared.rates}
    if not counts:
        return 1.0
    if all(count >= _RARE and 0.0 < found[name][0] < 100.0 for name, count in counts.items()):
        return math.inf
    return len(counts) ** 2 / sum(1 / count for count in counts.values())


def _limit_decisions(effective: float, share: float, units: int) -> float:
    """Return how many decisions count at most, of several in each of a number of samples or groups.

    Fewer than ten independent errors do not show whether some samples fail as a whole, such as an image without a
    detection: then a sample counts as one decision. With more errors it counts as proportionally more.
    """
    errors = effective * min(share, 1 - share)
    return units * max(errors / _RARE, 1.0)


def measure_deviations(
    recompute: Recompute, num_samples: int, resamples: int = RESAMPLES, numbers: np.ndarray | None = None
) -> dict[str, tuple[float, float]]:
    """Compute the finite values of all samples, and the standard deviation of each over other samples, by name.

    The deviation is 0 if fewer than two halves define a value. ``numbers``: see ``number_groups``; other arguments: see
    ``bootstrap``. Raises UserError: an argument is wrong.
    """
    for name, number, least in (("num_samples", num_samples, 1), ("resamples", resamples, 2)):
        if not (isinstance(number, (int, np.integer)) and number >= least):
            raise UserError(f"{name}={number!r}: expected a whole number of at least {least}")
    whole = {name: float(column[0]) for name, column in recompute(np.ones((1, num_samples))).items()}
    values = {name: value for name, value in whole.items() if math.isfinite(value)}
    if not values:
        return {}
    rows, done = np.full((len(values), resamples), np.nan), 0  # 60,000 values of two runs with 20,000 classes: 480 MB
    for weights in _choose_halves(num_samples, resamples, numbers, len(values)):
        part, start, done = recompute(weights), done, done + len(weights)
        rows[:, start:done] = np.concatenate([part[name] for name in values]).reshape(len(values), -1)
    units = _count_units(num_samples, numbers)
    ratio = math.sqrt((units // 2) / max(units - units // 2, 1))  # of all samples to halves
    finite = (row[np.isfinite(row)] for row in rows)
    deviations = (ratio * float(row.std()) if len(row) > 1 else 0.0 for row in finite)
    return {name: (value, deviation) for (name, value), deviation in zip(values.items(), deviations)}


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
    shown: Iterable[str],
    few: int = FEW,
) -> str | None:
    """Return one line on why these intervals are rough or missing, or None if they are sound.

    Intervals are rough with few samples, and with few wrong (or right) ones: they then contain too little variation.
    The line says which share held where it was lowest. Values with equal halves have no interval.

    Args:
        num_samples: number of samples.
        sample: name of one sample, such as "image".
        intervals: all intervals, by name.
        rates: see ``ProportionRecompute``; the errors of the first one are counted.
        shown: names of the scores that are shown, and can have an interval.
        few: number of samples from which on they are enough, see ``ScoreKind.few``.
    """
    if not intervals:
        return None
    reasons = [f"{num_samples} {sample}{'s' * (num_samples != 1)} (below {few})"] if num_samples < few else []
    name, number = next(iter(rates.items()), ("", 0))
    if name in intervals:
        right = round(number * intervals[name].value / 100)
        errors, what = min((number - right, "wrong"), (right, "right"))
        reasons += [f"{errors} {what} (below {_RARE})"] if errors < _RARE else []
    held = f"95 % intervals held in {_HELD} % of simulations or more, in fewer with rare large errors"
    notes = [f"the interval is rough: {', '.join(reasons)}: {held}"] if reasons else []
    alike = [score for score in shown if score in intervals and not intervals[score].has_width()]
    why = "every half of them gives the same" if num_samples >= _FEWEST else f"too few {sample}s"
    notes += [f"no interval of {_list(alike)}: {why}"] if alike else []
    # An interval of all decisions would hold in two thirds of simulations if all of a sample are alike.
    of_many = [name for name in shown if name in intervals and rates.get(name, 0) > num_samples]
    even = [name for name in of_many if intervals[name].value in (0.0, 100.0)]
    cause = f"all decisions are alike, so nothing shows whether several of one {sample} depend on one another"
    notes += [f"the interval of {_list(even)} is that of {num_samples} {sample}s: {cause}"] if even else []
    return "; ".join(notes) or None


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(shorten(name, 40) for name in names[:_MOST_LISTED]) + more


def count_independent(most: float, units: int, share: float, deviation: float) -> float:
    """Return the number of independent decisions whose proportion would have this deviation, from 1 to ``most``.

    Args:
        most: number of all decisions.
        units: number of independent samples or groups with decisions; the result if there is no deviation.
        share: the proportion, 0 to 1.
        deviation: its standard deviation over other samples.
    """
    if deviation <= ROUNDING * share:
        return min(most, units)
    return min(most, max(share * (1 - share) / deviation**2, 1.0))


def make_interval(value: float, deviation: float, quantile: float, bounds: ScoreRange | None) -> ConfidenceInterval:
    """Return the interval of a value with this standard deviation; without width if there is none.

    Args:
        value: of all samples.
        deviation: see ``measure_deviations``.
        quantile: number of deviations to each end, of a symmetric interval.
        bounds: range that contains the value; None: it gets no interval.
    """
    reach = quantile * deviation
    if bounds is None or reach <= ROUNDING * abs(value):
        return ConfidenceInterval(value, value, value)
    low, high = bounds
    if not math.isfinite(low) and math.isfinite(high):
        mirrored = make_interval(-value, deviation, quantile, (-high, math.inf))
        return ConfidenceInterval(value, -mirrored.high, -mirrored.low)
    if math.isfinite(high):
        width = high - low
        share = min(max((value - low) / width, 0.0), 1.0)
        effective = count_independent(math.inf, 1, share, deviation / width)
        ends = wilson(100 * share, effective, 0, quantile)[1:]
        first, last = (low + width * end / 100 for end in ends)
    elif math.isfinite(low) and value > low:
        factor = math.exp(min(reach / (value - low), 700.0))
        first, last = low + (value - low) / factor, low + (value - low) * factor
    else:
        first, last = max(value - reach, low), value + reach
    return ConfidenceInterval(value, min(first, value), max(last, value))


def _choose_halves(
    num_samples: int, resamples: int, numbers: np.ndarray | None = None, num_values: int = 0
) -> Iterator[np.ndarray]:
    """Yield halves, some at a time, as weights 0 and 1: float64 (halves, samples), equal for samples of one group.

    Fewer at a time if ``num_values`` are computed for each, such as one of each of 20,000 classes. Few samples have
    fewer halves than ``resamples``: then each is yielded once.
    """
    units, generator = _count_units(num_samples, numbers), np.random.Generator(np.random.PCG64(_SEED))
    half = units // 2
    halves: Iterator[Sequence[int] | np.ndarray]
    if units <= _FEW_ENUMERATED and math.comb(units, half) <= resamples:
        halves = itertools.combinations(range(units), half) if half else iter(())
    else:
        halves = (generator.permutation(units)[:half] for _ in range(resamples))
    at_once = max(1, min(resamples, _MOST_WEIGHTS // (num_samples + num_values)))
    while block := list(itertools.islice(halves, at_once)):
        weights = np.zeros((len(block), units))
        np.put_along_axis(weights, np.array(block, np.int64), 1.0, axis=1)
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
