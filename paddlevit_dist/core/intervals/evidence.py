"""What samples show, and cannot show, of how often an interval holds, and one line about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..runtime.printing import shorten
from .proportions import ConfidenceInterval
from .units import RARE, RateUnits, Variation

_FEW = 50
_MOST_LISTED = 3
#: lowest share of 95 % intervals, in percent, that held with few samples or errors: of Wilson's, with one error in 300
#: samples; other simulations of benchmarks/results/coverage.md had no lower one, without rare large errors
_HELD = 83
_FEWEST_OF_TAILS = 10  # with fewer, units with normal numbers too often look like one or two
_DECIDING = 2.0  # units: fewer decided in none of 150 simulations of 20 normal numbers, in 7 % of exponential numbers
_UNSEEN = 3.0  # units that may fail where none does
_WORST = 0.4  # of a bias, in deviations
_LOSSES = ("loss", "cross_entropy")  # their intervals are hardly ever published


class MeasuredInterval(ConfidenceInterval):
    """An interval with what it was measured from: what halves and units say of it.

    Attributes:
        variation: of the value.
        has_bounds: whether the value has a lowest and a highest possible value.
        units: of a rate with several decisions a unit.
    """

    variation, has_bounds = Variation(0.0, 0.0), True
    units: RateUnits | None = None

    def find_bias(self) -> float:
        """Return by how much the value exceeds that of very many samples, estimated; 0 if it is not seen.

        A bias in proportion to 1 / samples is twice as large in halves, so that these exceed the value by it. Source:
        M. H. Quenouille, "Notes on Bias in Estimation", Biometrika 43, 1956.
        """
        _, deviation, shift, _ = self.variation
        return shift if self.has_width() and abs(shift) > _WORST * deviation else 0.0

    def depends_on_few(self) -> bool:
        """Return whether one or two units make up most of the deviation of a value without bound."""
        return self.has_width() and not self.has_bounds and self.variation.deciding < _DECIDING

    def misses_failures(self) -> bool:
        """Return whether units could fail as a whole, although none does, in more than the interval allows for.

        If none of n fails, up to 3 / n may. Source: J. A. Hanley and A. Lippman-Hand, "If nothing goes wrong, is
        everything all right?", JAMA 249, 1983.
        """
        units = self.units
        if units is None or units.uniform != 0 or units.number <= _UNSEEN:
            return False
        lost = _UNSEEN / units.number * max(self.value, 100 - self.value)
        return lost > (self.value - self.low if self.value >= 50 else self.high - self.value)


def small_sample_warning(
    num_samples: int,
    sample: str,
    intervals: Mapping[str, ConfidenceInterval],
    rates: Mapping[str, int],
    shown: Iterable[str],
    few: int = _FEW,
) -> str | None:
    """Return one line on why these intervals are rough or missing, or None if they are sound.

    Intervals are rough with few samples, and with few wrong (or right) ones: they then contain too little variation.
    The line says which share held where it was lowest. Values with equal halves have no interval. The line also names
    what the samples show: values that one or two samples decide, that are higher or lower of few samples, and rates
    whose samples may fail as a whole.

    Args:
        num_samples: number of samples, or of groups.
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
        reasons += [f"{errors} {what} (below {RARE})"] if errors < RARE else []
    held = f"95 % intervals held in {_HELD} % of simulations or more, in fewer with rare large errors"
    notes = [f"the interval is rough: {', '.join(reasons)}: {held}"] if reasons else []
    found = {score: intervals[score] for score in shown if score in intervals}
    alike = [score for score, interval in found.items() if not interval.has_width()]
    why = "every half of them gives the same" if num_samples > 2 else f"too few {sample}s"
    notes += [f"no interval of {_list(alike)}: {why}"] if alike else []
    # An interval of all decisions would hold in two thirds of simulations if all of a sample are alike.
    even = [score for score in found if rates.get(score, 0) > num_samples and found[score].value in (0.0, 100.0)]
    cause = f"all decisions are alike, so nothing shows whether several of one {sample} depend on one another"
    notes += [f"the interval of {_list(even)} is that of {num_samples} {sample}s: {cause}"] if even else []
    measured = {score: interval for score, interval in found.items() if isinstance(interval, MeasuredInterval)}
    return "; ".join([*notes, *_describe_evidence(measured, num_samples, sample, num_samples < few)]) or None


def _describe_evidence(found: Mapping[str, MeasuredInterval], number: int, sample: str, is_few: bool) -> Sequence[str]:
    """Return what these intervals are to be doubted for, each as a part of a line."""

    def choose(is_so: Callable[[MeasuredInterval], bool]) -> list[str]:
        return [score for score, interval in found.items() if is_so(interval)]

    notes, units = [], f"{number} {sample}{'s' * (number != 1)}"
    decided = choose(MeasuredInterval.depends_on_few) if number >= _FEWEST_OF_TAILS else []
    endless = choose(lambda interval: not interval.has_bounds and interval.has_width())
    endless = [score for score in endless if is_few or not score.endswith(_LOSSES)]
    if decided:
        notes.append(f"one or two of {units} make up most of the variation of {_list(decided)}: others may be larger")
    if endless:
        has, its = ("has", "its interval") if len(endless) == 1 else ("have", "their intervals")
        notes.append(f"{_list(endless)} {has} no bound: gross errors that are not in these {units} are not in {its}")
    unseen = choose(MeasuredInterval.misses_failures)
    if unseen:
        most = 100 * _UNSEEN / number
        notes.append(
            f"no {sample} fails as a whole, but up to {most:.2g} % may (rule of three), which the interval of "
            f"{_list(unseen)} omits"
        )
    biased = {score: bias for score, interval in found.items() if (bias := interval.find_bias())}
    for score, bias in list(biased.items())[:1]:
        more = f", as {_list([other for other in biased if other != score])}" if len(biased) > 1 else ""
        way, ahead, back = ("higher", "more", "less") if bias > 0 else ("lower", "less", "more")
        amount = f"{abs(bias):.2g}"
        notes.append(
            f"{score} of few {sample}s is {way}{more}: half of these have {amount} {ahead}, and very many may have "
            f"{amount} {back}"
        )
    return notes


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(shorten(name, 40) for name in names[:_MOST_LISTED]) + more
