"""Scores of two models on the same samples: intervals of both and of their differences, and what swaps say of these.

``compare``, plans, searches and the cost of an export compute a difference here, so that they agree.
"""

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from ..intervals import ConfidenceInterval, ProportionRecompute, bootstrap, paired_difference
from ..intervals.proportions import ROUNDING, find_upper_share, mcnemar_test
from ..intervals.quantiles import compute_p, student_quantile
from ..intervals.resampling import FEWEST_UNITS, RESAMPLES, make_interval, measure_halves
from ..intervals.score_ranges import UNBOUNDED, ScoreRange
from ..intervals.swaps import SwapDifferences, measure_swaps, subtract_swapped
from ..intervals.units import MOST_WEIGHTS, UnitCounts, Variation, count_equal, count_units
from .score_kind import Arrays, ScoreKind

SWAPS = 500  # of an interval; they fix its width to about a thirtieth
Hits = Mapping[str, np.ndarray]  # see ``ScoreKind.hits``


class PairIntervals(NamedTuple):
    """Intervals by the name of the value, of both models and of the second's value minus the first's."""

    first: dict[str, ConfidenceInterval]
    second: dict[str, ConfidenceInterval]
    difference: dict[str, ConfidenceInterval]


class PairedDifference(NamedTuple):
    """The difference of all samples, and how it varies over other samples: its interval and p follow from this."""

    value: float
    deviation: float  # 0: unknown, as all units have the same difference, or too few are there
    freedom: float  # degrees of freedom of the deviation
    p: float

    def compute_interval(self, percent: float, bounds: ScoreRange | None) -> ConfidenceInterval:
        """Compute Student's interval, inside of what is possible for a score of this range; None: it has none."""
        quantile = student_quantile(find_upper_share(percent), self.freedom)
        interval = make_interval(self.value, self.deviation, quantile, bounds and UNBOUNDED)
        most = math.inf if bounds is None else bounds[1] - bounds[0]
        return interval._replace(low=max(interval.low, -most), high=min(interval.high, most))


@dataclasses.dataclass(frozen=True)
class PairedScores:
    """The values of two models, as functions of weights of the same samples."""

    first: ProportionRecompute
    second: ProportionRecompute
    num_samples: int
    numbers: np.ndarray | None  # int (samples,), groups of samples, see ``number_groups``
    differences: SwapDifferences
    #: (samples,), how much a swapped sample counts in all values alike, see ``subtract_swapped``; None: as much as in
    #: the value itself
    sizes: np.ndarray | None = None
    hits: tuple[Hits, Hits] = ({}, {})  # decisions of both, in the same order
    pooled: Sequence[str] = ()  # names of rates with several decisions a sample

    @classmethod
    def of_tables(
        cls,
        kind: ScoreKind,
        classes: Sequence[str],
        tables: tuple[Arrays, Arrays],
        order: np.ndarray,
        numbers: np.ndarray | None,
    ) -> "PairedScores":
        """Create them of two tables.

        Values that rank outputs are not computed from outputs of both models, whose scales may differ: see
        ``subtract_swapped``.

        Args:
            kind: computes the values.
            classes: names of the classes.
            tables: arrays of both models.
            order: int (samples,), the row in the second table of each sample of the first.
            numbers: see ``PairedScores``.
        """
        declared, of_second = kind.declare_recomputed(tables[:1], classes), kind.recompute_scores(tables[1:], classes)
        is_ordered = np.array_equal(order, np.arange(len(order)))
        reorder = (lambda weights: weights) if is_ordered else functools.partial(_reorder, order)
        second = dataclasses.replace(declared, values=lambda weights: of_second(reorder(weights)))
        hits = kind.hits(tables[0], classes), kind.hits(order_rows(kind, tables[1], order), classes)
        if kind.is_ranking:
            pair = cls.of_values(declared, second, len(order), numbers, kind.count_objects(tables[0]))
            return dataclasses.replace(pair, hits=hits, pooled=kind.pooled_rates)
        joined = kind.recompute_scores(tables, classes)

        def score(weights: np.ndarray) -> Mapping[str, np.ndarray]:
            """Score answers of the first model where a weight is 1, and of the second where it is 0."""
            return joined(np.concatenate([weights, reorder(1 - weights)], axis=1))

        def subtract(swaps: np.ndarray) -> Mapping[str, np.ndarray]:
            return _subtract(score(1.0 - swaps), score(swaps.astype(np.float64)))

        return cls(declared, second, len(order), numbers, subtract, hits=hits, pooled=kind.pooled_rates)

    @classmethod
    def of_values(
        cls,
        first: ProportionRecompute,
        second: ProportionRecompute,
        num_samples: int,
        numbers: np.ndarray | None,
        sizes: np.ndarray | None = None,
    ) -> "PairedScores":
        """Create them of two functions, whose answers are not known; ``sizes``: see ``PairedScores``, or all alike."""
        sizes = np.ones(num_samples) if sizes is None or not sizes.any() else sizes
        swapped = functools.partial(subtract_swapped, _build_subtract(first, second), sizes=sizes)
        return cls(first, second, num_samples, numbers, swapped, sizes)

    def measure_swaps(self, most: int = SWAPS) -> dict[str, PairedDifference]:
        """Measure the differences that are defined for all samples, with at most this number of swaps.

        p is that of the interval of ``compute_differences``. Rates of single samples have McNemar's.
        """
        swapped = measure_swaps(self.differences, self.num_samples, most, self.numbers, self.sizes)
        # No number of decisions says how much differences of rates vary.
        declared = dataclasses.replace(self.first, rates={}, pooled=())
        units = UnitCounts(declared, self.num_samples, self.numbers)
        sizes = np.ones(self.num_samples) if self.sizes is None else self.sizes
        total = count_equal(sizes if self.numbers is None else np.bincount(self.numbers, sizes))
        variations, numbers = {}, dict[str, float]()
        for name, one in swapped.items():
            numbers[name] = own = min(units.count_equal_units(name), total)
            deviation = one.estimate_deviation(own, 1 / own - 1 / total if own and self.sizes is None else 0.0)
            exact = self._estimate_rate(name, own)
            deviation = deviation if exact is None else exact
            variations[name] = Variation(one.value, deviation if units.count(name) >= FEWEST_UNITS else 0.0)
        found = {}
        for name, (value, deviation, *_) in variations.items():
            freedom = max(min(units.find_freedom(name, variations), numbers[name] - 1), 1.0)
            p = compute_p(value, deviation, freedom)
            if self.is_single(name):
                before, after = (hits[name] for hits in self.hits)
                p = mcnemar_test(int((after & ~before).sum()), int((before & ~after).sum()))
            found[name] = PairedDifference(value, deviation, freedom, p)
        return found

    def count_differing(self, name: str, most: int) -> int | None:
        """Count the samples, or groups, whose swap alone changes a difference; None if there are more than ``most``."""
        members = np.arange(self.num_samples) if self.numbers is None else self.numbers
        number = count_units(self.num_samples, self.numbers)
        if number > most:
            return None
        at_once, changed = max(1, MOST_WEIGHTS // self.num_samples), 0
        whole = self.differences(np.zeros((1, self.num_samples), bool))[name]
        for first in range(0, number, at_once):
            swaps = np.arange(first, min(first + at_once, number))[:, None] == members
            changed += int((np.abs(self.differences(swaps)[name] - whole) > ROUNDING).sum())
        return changed

    def compute_intervals(
        self, percent: float, resamples: int = RESAMPLES, swapped: Mapping[str, PairedDifference] | None = None
    ) -> PairIntervals:
        """Compute the intervals of both models' values, see ``bootstrap``, and of their differences.

        Args:
            percent: the level, such as 95.
            resamples: number of halves, of both models' values.
            swapped: see ``measure_swaps``; None measures them.
        """
        first, second = (self._bootstrap(one, percent, resamples) for one in (self.first, self.second))
        return PairIntervals(first, second, self.compute_differences(percent, swapped, (first, second)))

    def compute_differences(
        self,
        percent: float,
        swapped: Mapping[str, PairedDifference] | None = None,
        own: tuple[Mapping[str, ConfidenceInterval], Mapping[str, ConfidenceInterval]] | None = None,
    ) -> dict[str, ConfidenceInterval]:
        """Compute the intervals of the differences that are defined for all samples.

        A difference has Student's interval with the deviation of swaps. Rates of single samples have Newcombe's, as
        their p is McNemar's; also other rates if no sample, or group, has a difference.

        Args:
            percent: the level, such as 95.
            swapped: see ``measure_swaps``; None measures them.
            own: the intervals of both models; None computes them if they are needed.
        """
        found = self.measure_swaps() if swapped is None else swapped
        differences = {
            name: one.compute_interval(percent, find_bounds(self.first, name)) for name, one in found.items()
        }
        hits, others = self.hits
        own_intervals: list[Mapping[str, ConfidenceInterval]] = list(own or ())
        for name in [name for name in differences if name in hits and name in others]:
            is_even = not differences[name].value and not differences[name].has_width()
            if self.is_single(name) or is_even:
                if self.numbers is not None and not own_intervals:
                    own_intervals = [self._bootstrap(one, percent) for one in (self.first, self.second)]
                intervals = [of_names[name] for of_names in own_intervals if self.numbers is not None]
                exact = paired_difference(hits[name], others[name], percent, intervals)
                differences[name] = exact._replace(value=differences[name].value)
        return differences

    def _estimate_rate(self, name: str, own: float) -> float | None:
        """Return the deviation that all swaps give of a rate with a decision a sample, in percent; None: not such one.

        ``own``: number of equal units with decisions.
        """
        before, after = (hits.get(name, np.zeros(0, bool)) for hits in self.hits)
        number = len(after)
        is_of_all = number == self.num_samples and name not in self.pooled
        if own <= 1 or not (self.is_single(name) or is_of_all and number):
            return None
        changes = np.subtract(after, before, dtype=np.float64)
        rest = changes - changes.mean()  # of each sample
        sums = rest if self.numbers is None else np.bincount(self.numbers, rest)
        return 100 * math.sqrt(float(sums @ sums) * own / (own - 1)) / number

    def is_single(self, name: str) -> bool:
        """Return whether a value is a rate of samples that have a decision each and do not depend on one another."""
        if self.numbers is not None or name in self.pooled or not all(name in hits for hits in self.hits):
            return False
        return 0 < len(self.hits[0][name]) <= self.num_samples

    def _bootstrap(
        self, values: ProportionRecompute, percent: float, resamples: int = RESAMPLES
    ) -> dict[str, ConfidenceInterval]:
        return bootstrap(values, self.num_samples, percent, resamples, self.numbers)


def measure_unpaired(
    sets: Sequence[tuple[ProportionRecompute, int, np.ndarray | None]], resamples: int = RESAMPLES
) -> dict[str, PairedDifference]:
    """Measure the differences of two sets of other samples, such as of two hospitals, from halves of each.

    Args:
        sets: values, number of samples and numbers of groups, see ``number_groups``, of both.
        resamples: number of halves.
    """
    sides = []
    for declared, number, numbers in sets:
        found = measure_halves(declared, number, resamples, numbers)
        units = UnitCounts(dataclasses.replace(declared, rates={}, pooled=()), number, numbers)
        enough = {name for name in found if units.count(name) >= FEWEST_UNITS}
        sides.append({name: (*found[name][:2], units.find_freedom(name, found)) for name in enough})
    differences = {}
    for name in [name for name in sides[0] if name in sides[1]]:
        (before, *first), (after, *second) = (side[name] for side in sides)
        variances = [deviation**2 for deviation, _ in (first, second)]
        squares = sum(one**2 / freedom for one, (_, freedom) in zip(variances, (first, second)))
        value, deviation = after - before, math.sqrt(sum(variances)) if all(variances) else 0.0
        freedom = sum(variances) ** 2 / squares if squares else 1.0
        differences[name] = PairedDifference(value, deviation, freedom, compute_p(value, deviation, freedom))
    return differences


def find_bounds(declared: ProportionRecompute, name: str) -> ScoreRange | None:
    """Return the lowest and highest possible value of a score; None: it gets no interval."""
    has_interval = name in declared.rates or declared.find_range(name) is not None
    return declared.find_bounds(name) if has_interval else None


def order_rows(kind: ScoreKind, arrays: Arrays, order: np.ndarray) -> Arrays:
    """Return the arrays with rows of samples in another order; other arrays are unchanged."""
    ordered: Any = copy.copy(arrays)  # of its class: arrays of files name what is missing
    rows = {name: values for name, values in arrays.items() if name not in kind.settings and len(values) == len(order)}
    ordered.update({name: values[order] for name, values in rows.items()})
    return cast(Arrays, ordered)


def _reorder(order: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Reorder weights (draws, samples) for the rows of the second table."""
    reordered = np.empty_like(weights)
    reordered[:, order] = weights
    return reordered


def _build_subtract(
    first: ProportionRecompute, second: ProportionRecompute
) -> Callable[[np.ndarray], Mapping[str, np.ndarray]]:
    return lambda weights: _subtract(first(weights), second(weights))


def _subtract(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the second's values minus the first's, of the names that both have."""
    return {name: second[name] - first[name] for name in first if name in second}
