"""How the difference of two models on the same samples varies, from results that are swapped between them.

If two models are exchangeable, the results of a sample can be swapped: its difference is as likely as the opposite. The
differences after random swaps have the deviation of the difference, from which its interval and its p follow, so that
both say the same. Halves of the samples would not do: in them classes of few samples are missing, by which a mean over
classes varies more than with all samples.

Source: E. J. G. Pitman, "Significance Tests Which May be Applied to Samples from Any Populations", Supplement to the
Journal of the Royal Statistical Society 4, 1937, which approximates the distribution of swaps by its moments, too.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from .proportions import ROUNDING
from .units import count_units

#: maps swaps, bool (k, samples), to the differences of scores after these samples are swapped, by name, float (k,); NaN
#: where a score is not defined
SwapDifferences = Callable[[np.ndarray], Mapping[str, np.ndarray]]

_SEED = 0  # a constant: p and intervals are reproducible
_MOST_SWAPS = 1 << 22  # swaps times samples that are computed at a time


class SwappedDifference(NamedTuple):
    """The difference of a score, and what swaps make of it."""

    value: float  # second minus first
    #: mean square of what swaps leave of the difference beyond their share of it; 0 if no swap defines one
    square: float

    def estimate_deviation(self, own: float, remaining: float = 0.0) -> float:
        """Return the standard deviation of the difference over other samples; 0 if all units have the same difference.

        The mean of n differences d with random signs has the mean square sum d^2 / n^2. The mean difference itself adds
        mean^2 / n to it. The rest has one degree of freedom less.

        Args:
            own: number of equal units, samples or groups, that the score depends on.
            remaining: what ``square`` still has of the squared difference: 1 / own - 1 / all units, if not all of those
                that were swapped count in the score.
        """
        if own <= 1:
            return 0.0
        variance = self.square - self.value**2 * remaining
        return math.sqrt(variance * own / (own - 1)) if variance > (ROUNDING * self.value) ** 2 else 0.0


@np.errstate(invalid="ignore")  # the difference of two infinite scores is not defined
def measure_swaps(
    differences: SwapDifferences,
    num_samples: int,
    most: int,
    numbers: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
) -> dict[str, SwappedDifference]:
    """Measure the differences that are defined without a swap, and the differences after swaps, by name.

    Each sample is swapped with probability one half.

    Args:
        differences: computes differences for swaps.
        num_samples: of each model.
        most: number of swaps. All are enumerated if there are no more of them; otherwise they are drawn at random.
        numbers: int (samples,), group of each sample; the samples of a group are swapped together. None: each sample is
            swapped separately.
        sizes: (samples,), how much each sample counts in a score; None: all alike.
    """
    weights = np.full(num_samples, 1 / num_samples) if sizes is None else sizes / sizes.sum()
    observed = {name: float(column[0]) for name, column in differences(np.zeros((1, num_samples), bool)).items()}
    observed = {name: value for name, value in observed.items() if math.isfinite(value)}
    values = np.array([*observed.values()])[:, None]
    defined, squares = (np.zeros(len(observed)) for _ in range(2))
    units = count_units(num_samples, numbers)
    for swaps in _generate_swaps(units, most, max(1, _MOST_SWAPS // (num_samples + len(observed)))):
        swaps = swaps if numbers is None else swaps[:, numbers]
        found, share = differences(swaps), 1 - 2 * (swaps @ weights)
        rows = np.stack([found[name] for name in observed]) if observed else np.zeros((0, len(swaps)))
        is_defined = np.isfinite(rows)
        defined += is_defined.sum(axis=1)
        squares += np.sum((rows - values * share) ** 2, axis=1, where=is_defined)
    means = (squares / np.maximum(defined, 1)).tolist()
    return {name: SwappedDifference(value, square) for (name, value), square in zip(observed.items(), means)}


def _generate_swaps(units: int, most: int, at_once: int) -> Iterator[np.ndarray]:
    """Yield swaps, bool (k, units), at most ``at_once`` at a time."""
    number, generator = min(most, 2**units), np.random.Generator(np.random.PCG64(_SEED))
    for first in range(0, number, at_once):
        rows = np.arange(first, min(first + at_once, number))
        if 2**units <= most:
            yield (rows[:, None] >> np.arange(units) & 1).astype(bool)
        else:
            yield generator.integers(0, 2, (len(rows), units), np.uint8).astype(bool)


def subtract_swapped(
    differences: SwapDifferences, swaps: np.ndarray, sizes: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Compute differences after swaps without scoring answers of two models together, by name, float (k,).

    A swap reverses the difference of the swapped samples, and each part of the samples counts by its size. For means
    this is what is left if the answers themselves are swapped. If the score of one part is not defined, the other part
    counts alone; NaN if both are not.

    Args:
        differences: from weights, float64 (draws, samples), to the differences of scores by name, float (draws,).
        swaps: bool (k, samples).
        sizes: (samples,), how much each sample counts, such as its number of objects; None: all alike. By the number of
            samples, a part would count too little with one crowded sample, which then decides alone.
    """
    share = swaps.mean(axis=1) if sizes is None or not sizes.any() else swaps @ (sizes / sizes.sum())
    parts = (part | ~part.any(axis=1, keepdims=True) for part in (~swaps, swaps))  # all instead of no samples: counts 0
    kept, swapped = (differences(part.astype(np.float64)) for part in parts)
    both = {name: (1 - share) * kept[name] - share * swapped[name] for name in kept}
    either = {name: np.where(np.isnan(swapped[name]), kept[name], both[name]) for name in kept}
    return {name: np.where(np.isnan(kept[name]), -swapped[name], either[name]) for name in kept}
