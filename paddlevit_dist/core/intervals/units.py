"""How many independent samples, or groups of samples, a value depends on, and how well its deviation is known.

The only place that counts them, for scores of all samples, of a class and in groups. A decision that depends on others
of its sample or group counts as the share of an independent one that leaves the same deviation: L. Kish, "Survey
Sampling", 1965, section 5.4 (the design effect). Groups of unequal sizes count as the number of equal ones that vary as
much: A. V. Carter, K. T. Schnepel and D. G. Steigerwald, "Asymptotic Behavior of a t-Test Robust to Cluster
Heterogeneity", Review of Economics and Statistics 99, 2017; it is Kish's formula for weights (section 11.7).

With few positive or negative decisions the deviation is itself uncertain, and Student's quantile with the degrees of
freedom of units says how much. Such an interval of Wilson's is known from surveys: P. S. Kott, "A note on Wilson
coverage intervals for proportions estimated from complex samples", Survey Methodology 43, 2017; C. Franco, R. J. A.
Little, T. A. Louis and E. V. Slud, "Comparative Study of Confidence Intervals for Proportions in Complex Sample
Surveys", Journal of Survey Statistics and Methodology 7, 2019. That only units with an error count is a rule of this
module: surveys count all units that contain the subgroup (J. D. Parker et al., "National Center for Health Statistics
Data Presentation Standards for Proportions", Vital and Health Statistics 2 (175), 2017).
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .proportions import ROUNDING
from .quantiles import student_quantile
from .recompute import ProportionRecompute, Recompute

RARE = 10  # samples that are wrong, or of a class
MOST_WEIGHTS = 1 << 22  # at a time, 32 MiB
_MOST_PARTS = 1000  # of samples, in which errors are counted


class Variation(NamedTuple):
    """A value of all samples, and how the values of halves vary."""

    value: float
    deviation: float  # standard deviation over other samples; 0 if fewer than two halves define the value
    shift: float = 0.0  # of the mean of halves from the value
    #: number of equally important units that would give halves this kurtosis: with one, halves have two values, with
    #: many they are normal. The fourth moment of a sum of d with random signs is 3 (sum d^2)^2 - 2 sum d^4
    deciding: float = math.inf


class RateUnits(NamedTuple):
    """Samples or groups with decisions of a rate: unequal ones as the number of equal ones that vary as much."""

    number: float  # with decisions
    deviating: float  # with a decision that is wrong, or with one that is right, if these are fewer
    uniform: int | None  # whose decisions all are of the kind that is rarer; None: not counted


class EffectiveNumber(NamedTuple):
    """A number of independent decisions, and the degrees of freedom of their deviation."""

    decisions: float
    freedom: float


class UnitCounts:
    """The units, which are samples, or groups if samples depend on one another, that each value depends on.

    Args:
        declared: the values.
        num_samples: number of samples.
        numbers: see ``number_groups``.
    """

    def __init__(self, declared: ProportionRecompute, num_samples: int, numbers: np.ndarray | None) -> None:
        self.total = count_units(num_samples, numbers)
        self._balance = 1.0 if numbers is None else count_equal(np.bincount(numbers)) / self.total
        self._by_name = declared.count_units(numbers)
        names = [name for name in declared.rates if numbers is not None or declared.is_pooled(name, num_samples)]
        self._rates = _count_rates(declared, names, num_samples, numbers) if names else {}
        self._declared = declared

    def count(self, name: str) -> int:
        """Count the units that have the class of a score; all units of a score of all classes."""
        return self._by_name.get(name, self.total)

    def find_freedom(self, name: str, found: Mapping[str, Variation]) -> float:
        """Return the degrees of freedom of the deviation of a value, at least 1.

        A mean over several classes has the degrees of freedom of a sum of their variances. Each variance has the number
        of units of its class, not one less: halves vary in their number of a class's units, which raises its variance
        by 7 to 40 % of three to ten units. Rates of samples alone do not need it, as a proportion has a known variance.
        Source: F. E. Satterthwaite, "An Approximate Distribution of Estimates of Variance Components", Biometrics
        Bulletin 2, 1946.

        Args:
            name: of the value.
            found: values and deviations by name.
        """
        rates, in_units = self._declared.rates, self._rates
        classes = [
            each
            for each in self._declared.class_means.get(name, ())
            if each in found and (each in in_units or each not in rates)
        ]
        if len(classes) == 1:
            return self.find_freedom(classes[0], found)
        parts = [(found[each].deviation ** 2, max(self.count_equal_units(each), 1.0)) for each in classes]
        freedom, variance = self.count_equal_units(name) - 1, sum(part for part, _ in parts)
        if variance > 0:
            freedom = min(freedom, variance**2 / sum(part**2 / own for part, own in parts))
        return max(freedom, 1.0)

    def count_equal_units(self, name: str) -> float:
        """Count the units that ``count`` counts, unequal ones as the number of equal ones that vary as much."""
        return self._rates[name].number if name in self._rates else self._balance * self.count(name)

    def get_rate(self, name: str) -> RateUnits | None:
        """Return the units of a rate with several decisions a unit; None: each unit has one."""
        return self._rates.get(name)

    def count_decisions(self, name: str, value: float, deviation: float) -> EffectiveNumber:
        """Return the number of independent decisions of a rate with several decisions a unit.

        It would have this deviation, with a degree of freedom for each unit that shows it: units without an error show
        none, but they tell the mean. If decisions of a unit are all alike, each unit counts as one. So no rate has a
        wider interval than one with these units as decisions.

        Args:
            name: of the rate.
            value: in percent.
            deviation: of the rate over other samples, in percent.
        """
        units = self._rates[name]
        effective = count_independent(self._declared.rates[name], units.number, value / 100, deviation / 100)
        freedom = max(units.number - 1, 1.0)
        shown = EffectiveNumber(effective, max(min(units.deviating, freedom), 1.0))
        alike = EffectiveNumber(min(effective, units.number), freedom)
        return max(shown, alike, key=lambda number: number.decisions / student_quantile(0.975, number.freedom) ** 2)

    def count_of_mean(self, name: str, found: Mapping[str, Variation]) -> EffectiveNumber:
        """Return the number of independent decisions of a mean of rates, such as balanced accuracy.

        Args:
            name: of the mean.
            found: values and deviations by name, in percent.
        """
        value, deviation = found[name][:2]
        rates = [rate for rate in self._declared.list_rates(name) if rate in found]
        effective = count_independent(self._limit_mean(rates, found), self.total, value / 100, deviation / 100)
        return EffectiveNumber(effective, self.find_freedom(name, found))

    def _limit_mean(self, rates: Collection[str], found: Mapping[str, Variation]) -> float:
        """Return the number of decisions with which a mean of rates would vary if they were alike.

        Halves vary too little if a rate has few decisions, or all of them are right, or wrong. Otherwise the number is
        infinite: halves say it.
        """
        if not rates:
            return 1.0
        counts = {rate: float(self._declared.rates[rate]) for rate in rates}
        if all(count >= RARE and 0.0 < found[rate].value < 100.0 for rate, count in counts.items()):
            return math.inf
        grouped = {
            rate: self.count_decisions(rate, *found[rate][:2]).decisions for rate in rates if rate in self._rates
        }
        return len(counts) ** 2 / sum(1 / count for count in {**counts, **grouped}.values())


def number_groups(groups: Sequence[Hashable] | np.ndarray | None) -> np.ndarray | None:
    """Assign numbers to groups in order of appearance: int64 (samples,), from entries that are equal in a group.

    None if there are no groups, or each sample is its own group, so that no sample depends on another.
    """
    listed = [] if groups is None else np.asarray(groups).tolist()
    numbers_by_name = {name: number for number, name in enumerate(dict.fromkeys(listed))}
    if len(numbers_by_name) == len(listed):
        return None
    return np.array([numbers_by_name[name] for name in listed], np.int64)


def count_units(num_samples: int, numbers: np.ndarray | None) -> int:
    """Count the groups, or without groups the samples."""
    return num_samples if numbers is None else int(numbers.max()) + 1


def count_equal(sizes: np.ndarray) -> float:
    """Return the number of equal units that vary as much as these of unequal sizes; 0 without any."""
    sizes = sizes.astype(np.float64)
    squares = float((sizes**2).sum())
    return float(sizes.sum()) ** 2 / squares if squares else 0.0


def count_independent(most: float, units: float, share: float, deviation: float) -> float:
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


def _count_rates(
    declared: ProportionRecompute, names: Collection[str], num_samples: int, numbers: np.ndarray | None
) -> dict[str, RateUnits]:
    """Count the units of rates: all groups alone, but very many samples in parts, as each takes a draw."""
    units, members = count_units(num_samples, numbers), np.arange(num_samples) if numbers is None else numbers
    parts = members if numbers is not None or units <= _MOST_PARTS else members * _MOST_PARTS // units
    weights = np.ones(num_samples) if declared.sizes is None else declared.sizes
    whole, counts = declared(np.ones((1, num_samples))), {}
    for name, row in _score_parts(declared, parts, names).items():
        of_all = declared.rates[name] >= num_samples
        of_samples = weights if declared.is_pooled(name, num_samples) else np.ones(num_samples)
        sizes = np.bincount(parts, of_samples if of_all else None)
        # Of a class, the number of decisions of each group is not known: it is taken to be as unequal as that of all.
        share = 1.0 if of_all else count_equal(sizes) / len(sizes)
        sizes, is_there = sizes if of_all else np.ones(len(sizes)), np.isfinite(row)
        number = share * count_equal(sizes[is_there] if len(sizes) == units else np.bincount(members, of_samples))
        deviating = share * min(count_equal(sizes[is_there & (row < 100)]), count_equal(sizes[is_there & (row > 0)]))
        rarer = 0.0 if float(whole[name][0]) >= 50 else 100.0
        uniform = int((row[is_there] == rarer).sum()) if len(sizes) == units else None
        counts[name] = RateUnits(number, deviating, uniform)
    return counts


def _score_parts(recompute: Recompute, parts: np.ndarray, names: Collection[str]) -> dict[str, np.ndarray]:
    """Return the values of each part of the samples alone, float (parts,) by name; ``parts``: int (samples,)."""
    at_once, end, rows = max(1, MOST_WEIGHTS // len(parts)), int(parts.max()) + 1, []
    for first in range(0, end, at_once):
        members = np.arange(first, min(first + at_once, end))
        values = recompute((members[:, None] == parts).astype(np.float64))
        rows.append([values[name] for name in names])
    return dict(zip(names, np.concatenate(rows, axis=1)))
