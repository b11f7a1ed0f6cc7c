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
(the jackknife that leaves out half). For the number of independent decisions with this deviation see ``units``.
"""

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from ..runtime.errors import UserError
from .evidence import MeasuredInterval
from .proportions import ROUNDING, ConfidenceInterval, find_upper_share, wilson
from .quantiles import student_quantile
from .recompute import ProportionRecompute, Recompute
from .score_ranges import ScoreRange, require_inside
from .units import MOST_WEIGHTS, UnitCounts, Variation, count_independent, count_units, number_groups

RESAMPLES = 1000
FEWEST_UNITS = 3  # samples or groups: the deviation of two is one number
_FEW_ENUMERATED = 20  # samples or groups whose halves are counted, to use each once if they are few
FEW = 50  # samples
_SEED = 0  # a constant: intervals are reproducible


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
    found = measure_halves(declared, num_samples, resamples, numbers)
    units = UnitCounts(declared, num_samples, numbers)
    intervals: dict[str, ConfidenceInterval] = {}
    for name, variation in found.items():
        value, deviation = variation[:2]
        if name in declared.rates and units.get_rate(name) is None:
            intervals[name] = wilson(value, declared.rates[name], percent)
            continue
        bounds = declared.find_bounds(name)
        if name in declared.rates or declared.list_rates(name):
            is_rate = name in declared.rates
            number = units.count_decisions(name, value, deviation) if is_rate else units.count_of_mean(name, found)
            interval = wilson(value, number.decisions, percent, student_quantile(share, number.freedom))
        else:
            has_range, enough = declared.find_range(name) is not None, units.count(name) >= FEWEST_UNITS
            require_inside(name, value, bounds)
            quantile = student_quantile(share, units.find_freedom(name, found))
            interval = make_interval(value, deviation if enough else 0.0, quantile, bounds if has_range else None)
        intervals[name] = measured = MeasuredInterval(*interval)
        measured.variation, measured.units = variation, units.get_rate(name)
        measured.has_bounds = math.isfinite(bounds[1] - bounds[0])
    return intervals


def _declare(recompute: Recompute) -> ProportionRecompute:
    if isinstance(recompute, ProportionRecompute):
        return recompute
    return recompute.declare() if hasattr(recompute, "declare") else ProportionRecompute(recompute, {})


def measure_halves(
    recompute: Recompute, num_samples: int, resamples: int, numbers: np.ndarray | None
) -> dict[str, Variation]:
    """Compute the finite values of all samples, and how values of halves vary, by name; see ``bootstrap``.

    ``numbers``: see ``number_groups``. Raises UserError: an argument is wrong.
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
    units = count_units(num_samples, numbers)
    ratio = math.sqrt((units // 2) / max(units - units // 2, 1))  # of all samples to halves
    return {name: _describe_halves(value, row, ratio) for (name, value), row in zip(values.items(), rows)}


def _describe_halves(value: float, row: np.ndarray, ratio: float) -> Variation:
    """Return the variation of a value.

    Args:
        value: of all samples.
        row: values of halves.
        ratio: of the deviation of all samples to that of halves.
    """
    row = row[np.isfinite(row)]
    if len(row) < 2:
        return Variation(value, 0.0)
    mean, deviation = float(row.mean()), float(row.std())
    excess = float((((row - mean) / deviation) ** 4).mean()) - 3 if deviation > ROUNDING * abs(mean) else 0.0
    return Variation(value, ratio * deviation, mean - value, -2 / excess if excess < 0 else math.inf)


def make_interval(value: float, deviation: float, quantile: float, bounds: ScoreRange | None) -> ConfidenceInterval:
    """Return the interval of a value with this standard deviation; without width if there is none.

    Args:
        value: of all samples.
        deviation: see ``Variation``.
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
    units, generator = count_units(num_samples, numbers), np.random.Generator(np.random.PCG64(_SEED))
    half = units // 2
    halves: Iterator[Sequence[int] | np.ndarray]
    if units <= _FEW_ENUMERATED and math.comb(units, half) <= resamples:
        halves = itertools.combinations(range(units), half) if half else iter(())
    else:
        halves = (generator.permutation(units)[:half] for _ in range(resamples))
    at_once = max(1, min(resamples, MOST_WEIGHTS // (num_samples + num_values)))
    while block := list(itertools.islice(halves, at_once)):
        weights = np.zeros((len(block), units))
        np.put_along_axis(weights, np.array(block, np.int64), 1.0, axis=1)
        yield weights if numbers is None else weights[:, numbers]


def weighted_sums(weights: np.ndarray, statistics: np.ndarray) -> np.ndarray:
    """Sum statistics (samples, ...) with weights (draws, samples): float64 (draws, ...).

    The sums have the same bits for any number of threads.
    """
    flat = statistics.reshape(len(statistics), -1)
    if flat.dtype == bool:  # whole numbers, which have the same bits in any order: a third of the time
        sums = [np.einsum("ds,s->d", weights, column.astype(np.float64)) for column in flat.T]
        return np.stack(sums, axis=1).reshape(len(weights), *statistics.shape[1:])
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
