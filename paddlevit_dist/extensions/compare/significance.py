"""What counts as a difference: the level of intervals, of one comparison or of several, and gaps between curves."""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

PERCENT = 95
_FEWEST_GAPS = 3  # epochs: a line through two has no noise
_NOW, _AT_THE_END = NormalDist().inv_cdf(0.975), NormalDist().inv_cdf(0.9)  # deviations that gaps exceed


def find_level(compared: int, listed: int = 1) -> float:
    """Return the level, in percent, of the intervals of ``listed`` of ``compared`` differences.

    Of differences that are listed because they are large, more than 5 % of 95 % intervals fail. At 1 - 0.05 x listed /
    compared at most 5 % of the listed ones fail on average (Benjamini and Yekutieli); with one listed it is the level
    of Bonferroni, at which all of them hold together in 95 %. Source: Y. Benjamini and D. Yekutieli, "False Discovery
    Rate-Adjusted Multiple Confidence Intervals for Selected Parameters", Journal of the American Statistical
    Association 100, 2005.
    """
    return 100 - (100 - PERCENT) * listed / compared


def add_finding(comparison: dict[str, Any], comparisons: int) -> dict[str, Any]:
    """Return the comparison with "p_corrected", its p times the number of comparisons, and the "finding".

    Its difference has an interval of ``find_level(comparisons)``, which does not hold 0 where this p is below 0.05.
    """
    value, p = comparison["difference"]["value"], min(1.0, comparisons * comparison["p"])
    finding = "better" if (value > 0) == comparison["more_is_better"] else "worse"
    finding = "no difference" if not value else "may be chance" if p >= 1 - PERCENT / 100 else finding
    return {**comparison, "p_corrected": float(f"{p:.6g}"), "finding": finding}


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
