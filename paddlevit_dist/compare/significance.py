"""Whether a difference between two sets of answers to the same questions may be chance."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

#: from swaps, bool (k, samples), to the difference of the scores once these samples are exchanged, float (k,)
Swapped = Callable[[np.ndarray], np.ndarray]

_SEED = 0  # a constant: a p is not a matter of luck
_ROUNDING = 1e-9  # relative; less is no difference
_MOST_SWAPS = 1 << 22  # samples of all swaps that are computed at a time


def mcnemar(fixed: int, broken: int) -> float:
    """The p of McNemar's exact test: how likely a fair coin, thrown once for each sample that changed, deviates from
    half at least as much. 1 where none has changed.

    Source: Q. McNemar, "Note on the sampling error of the difference between correlated proportions or percentages",
    Psychometrika 12, 1947; with the binomial distribution itself.
    """
    thrown = fixed + broken
    logs = (
        math.lgamma(thrown + 1) - math.lgamma(k + 1) - math.lgamma(thrown - k + 1) - thrown * math.log(2)
        for k in range(min(fixed, broken) + 1)
    )
    return min(1.0, 2 * math.fsum(map(math.exp, logs)))


def permutation(swapped: Swapped, num_samples: int, most: int, numbers: np.ndarray | None = None) -> tuple[float, int]:
    """The p of a paired permutation test, and how many swaps it is of. If two models were alike, it would not matter
    which of them has given which answer: answers are exchanged at random, each sample's with probability one half, and
    p is the share of swaps with a difference at least as large. All swaps are looked at where they are not more than
    ``most``; else as many as that are drawn, and that nothing is exchanged counts as one more.

    Args:
        numbers: int (samples,), of each sample's group, whose answers are exchanged together; None: each sample's are
            by themselves.

    Source: B. Phipson and G. Smyth, "Permutation P-values should never be zero", Statistical Applications in Genetics
    and Molecular Biology 9, 2010.
    """
    (found,) = np.abs(swapped(np.zeros((1, num_samples), bool)))
    at_least = found - _ROUNDING * max(abs(found), _ROUNDING)
    coins = num_samples if numbers is None else int(numbers.max()) + 1
    all_swaps = _swaps(coins, most, num_samples)
    expanded = all_swaps if numbers is None else (swaps[:, numbers] for swaps in all_swaps)
    larger = sum(int((np.abs(swapped(swaps)) >= at_least).sum()) for swaps in expanded)
    if 2**coins <= most:
        return larger / 2**coins, 2**coins
    return (1 + larger) / (1 + most), most


def _swaps(coins: int, most: int, num_samples: int) -> Iterator[np.ndarray]:
    at_once = max(1, _MOST_SWAPS // num_samples)
    number = min(most, 2**coins)
    generator = np.random.Generator(np.random.PCG64(_SEED))
    for first in range(0, number, at_once):
        rows = np.arange(first, min(first + at_once, number))
        if 2**coins <= most:
            yield (rows[:, None] >> np.arange(coins) & 1).astype(bool)
        else:
            yield generator.integers(0, 2, (len(rows), coins), np.uint8).astype(bool)


def holm(ps: Sequence[float]) -> list[float]:
    """Each p of several tests, corrected: those below 0.05 are all right with a probability of at least 0.95.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6,
    1979.
    """
    corrected, largest = [0.0] * len(ps), 0.0
    for place, number in enumerate(sorted(range(len(ps)), key=lambda k: ps[k])):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[number]))
        corrected[number] = largest
    return corrected
