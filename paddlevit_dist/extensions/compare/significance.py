"""Significance of the difference between two models' results on the same samples."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import NormalDist

import numpy as np

#: maps swaps, bool (k, samples), to the difference of the scores after these samples are swapped, float (k,)
SwapDifference = Callable[[np.ndarray], np.ndarray]

_SEED = 0  # constant, so that p-values are reproducible
_ROUNDING = 1e-9  # relative; smaller differences count as zero
_FEWEST_GAPS = 3  # epochs: a line through two has no noise
_NOW, _AT_THE_END = NormalDist().inv_cdf(0.975), NormalDist().inv_cdf(0.9)  # deviations that gaps exceed
_MOST_SWAPS = 1 << 22  # swaps times samples that are computed at a time


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


def subtract_swapped(
    difference: Callable[[np.ndarray], np.ndarray], swaps: np.ndarray, sizes: np.ndarray | None = None
) -> np.ndarray:
    """Compute the differences of a score after swaps without scoring answers of two models together, float (k,).

    A swap reverses the difference of the swapped samples, and each part of the samples counts by its size. For means
    this is what is left if the answers themselves are swapped. If the score of one part is not defined, the other part
    counts alone; NaN if both are not.

    Args:
        difference: from weights, float64 (draws, samples), to the differences of the score, float (draws,).
        swaps: bool (k, samples).
        sizes: (samples,), how much each sample counts, such as its number of objects; None: all alike. By the number of
            samples, a part would count too little with one crowded sample, which then decides alone.
    """
    share = swaps.mean(axis=1) if sizes is None or not sizes.any() else swaps @ (sizes / sizes.sum())
    parts = (part | ~part.any(axis=1, keepdims=True) for part in (~swaps, swaps))  # all instead of no samples: counts 0
    kept, swapped = (difference(part.astype(np.float64)) for part in parts)
    both = (1 - share) * kept - share * swapped
    return np.where(np.isnan(kept), -swapped, np.where(np.isnan(swapped), kept, both))


def permutation_test(
    swap_difference: SwapDifference, num_samples: int, most: int, numbers: np.ndarray | None = None
) -> tuple[float, int]:
    """Compute the p-value of a paired permutation test, and return it with the number of swaps.

    If two models are exchangeable, their results can be swapped: the difference of each sample is as likely as its
    opposite. Equal means are not enough: if one model has rare large errors, few samples give too small a p. Each
    sample is swapped with probability one half, and p is the share of swaps with a difference at least as large as
    observed, or without one. Up to ``most`` swaps are enumerated; otherwise ``most`` are drawn at random, and the
    observed results are added to them. Source: B. Phipson and G. Smyth, "Permutation P-values should never be zero",
    Statistical Applications in Genetics and Molecular Biology 9, 2010.

    Args:
        swap_difference: computes the difference for swaps.
        num_samples: of each model.
        most: number of swaps at most.
        numbers: int (samples,), group of each sample; the samples of a group are swapped together. None: each sample is
            swapped separately.
    """
    (observed,) = np.abs(swap_difference(np.zeros((1, num_samples), bool)))
    threshold = observed - _ROUNDING * max(abs(observed), _ROUNDING)
    coins = num_samples if numbers is None else int(numbers.max()) + 1
    all_swaps = _generate_swaps(coins, most, num_samples)
    expanded = all_swaps if numbers is None else (swaps[:, numbers] for swaps in all_swaps)
    larger = sum(int((~(np.abs(swap_difference(swaps)) < threshold)).sum()) for swaps in expanded)  # or NaN
    if 2**coins <= most:
        return larger / 2**coins, 2**coins
    return (1 + larger) / (1 + most), most


def _generate_swaps(coins: int, most: int, num_samples: int) -> Iterator[np.ndarray]:
    chunk = max(1, _MOST_SWAPS // num_samples)
    number = min(most, 2**coins)
    generator = np.random.Generator(np.random.PCG64(_SEED))
    for first in range(0, number, chunk):
        rows = np.arange(first, min(first + chunk, number))
        if 2**coins <= most:
            yield (rows[:, None] >> np.arange(coins) & 1).astype(bool)
        else:
            yield generator.integers(0, 2, (len(rows), coins), np.uint8).astype(bool)


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
