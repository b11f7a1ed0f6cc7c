"""Significance of the difference between two models' results on the same samples."""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np

_FEWEST_GAPS = 3  # epochs: a line through two has no noise
_NOW, _AT_THE_END = NormalDist().inv_cdf(0.975), NormalDist().inv_cdf(0.9)  # deviations that gaps exceed


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


def is_behind(own: Mapping[int, float], best: Mapping[int, float], last: int, reach: float) -> bool:
    """Return whether a curve is below another by more than noise, and leads below it at the last epoch.

    A line is fitted to the gaps of the epochs that both have. The noise between epochs is that of three successive
    evaluations around their line, in both curves.

    Args:
        own: score of each evaluated epoch; larger is better.
        best: likewise, of the other curve.
        last: the last epoch.
        reach: half of the 95 % interval of a gap over other samples.
    """
    epochs = sorted(own.keys() & best.keys())
    if len(epochs) < _FEWEST_GAPS:
        return False
    bends = np.concatenate([np.diff([curve[epoch] for epoch in sorted(curve)], 2) for curve in (own, best)])
    noise = math.sqrt(2 * float(np.mean(bends**2)) / 6)  # of a gap: a bend has six times the variance of a score
    gaps, places = np.array([own[epoch] - best[epoch] for epoch in epochs]), np.array(epochs) - np.mean(epochs)
    squares = float(places @ places)
    for ahead, quantile in ((0.0, _NOW), (last - float(np.mean(epochs)), _AT_THE_END)):
        deviation = math.hypot(reach / _NOW, noise * math.sqrt(1 / len(epochs) + ahead**2 / squares))
        if gaps.mean() + ahead * (places @ gaps) / squares + quantile * deviation >= 0:
            return False
    return True


def holm_correction(ps: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests, so that the probability of any false positive stays below the level.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6,
    1979.
    """
    corrected, largest = [0.0] * len(ps), 0.0
    for place, number in enumerate(sorted(range(len(ps)), key=lambda k: ps[k])):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[number]))
        corrected[number] = largest
    return corrected
