"""The percentile bootstrap over samples.

Samples (pictures, scenes, volumes) are drawn with replacement, as many as there are, and the score of each such draw is
computed anew. The interval is what lies between two quantiles of these scores. What it covers is the choice of samples:
not another training, nor labels that are wrong.

Draws depend on the number of samples and on nothing else. So the interval is a function of the table of samples, the
same for any number of processes, and two models that were evaluated on the same samples are drawn alike.

Source: B. Efron, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7, 1979; the percentile
interval and the rule for its bias: B. Efron and R. Tibshirani, "An Introduction to the Bootstrap", 1993, sections 13.3
and 10.3.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

#: from weights, float64 (draws, samples), how often each sample is in each draw, to values by name, float (draws,);
#: not a number where a value is not defined for a draw. Values of one draw must not depend on the others.
Recompute = Callable[[np.ndarray], Mapping[str, np.ndarray]]

RESAMPLES = 1000
_ROUNDING = 1e-9  # relative; less is no difference
_BIAS = 0.25  # of a standard error; less may be ignored (section 10.3)
_SEED = 0  # a constant: an interval is not a matter of luck
_MOST_WEIGHTS = 1 << 22  # at a time, 32 MiB


class Interval(NamedTuple):
    """A value of all samples, and the ends of its interval."""

    value: float
    low: float
    high: float

    def has_width(self) -> bool:
        """Whether its ends differ by more than rounding."""
        return self.high - self.low > _ROUNDING * max(abs(self.low), abs(self.high))

    def plain(self) -> dict[str, float]:
        """For a file: its three numbers by name, with six digits."""
        return {name: float(f"{number:.6g}") for name, number in self._asdict().items()}

    def ends(self, decimals: int) -> str:
        """Such as "[82.4, 84.0]"."""
        return f"[{self.low:.{decimals}f}, {self.high:.{decimals}f}]"


def with_exact_end(interval: Interval, num_samples: int, percent: float) -> Interval:
    """The interval of a share in percent of which draws know nothing, as it is 0 or 100: the end that they lack is the
    share with which so many samples are alike in half as many of a hundred cases as it may leave out.

    Source: C. Clopper and E. Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", Biometrika 26, 1934.
    """
    least = 100.0 * ((1 - percent / 100) / 2) ** (1 / num_samples)
    if interval.value == 100.0:
        return interval._replace(low=least)
    return interval._replace(high=100.0 - least) if interval.value == 0.0 else interval


def bootstrap(
    recompute: Recompute, num_samples: int, percent: float = 95, resamples: int = RESAMPLES
) -> dict[str, Interval]:
    """The interval of each value that is defined for all samples together.

    With few samples (below about 30) intervals are too narrow, as the bootstrap knows no others than those.

    Some scores, such as average precision, are larger for fewer different samples, and so for draws: where the mean of
    the draws is further from the value than a quarter of their deviation, the interval is moved by that much. It is
    then about the mean score of sets as large as this one.

    Args:
        recompute: see ``Recompute``.
        num_samples: at least 1.
        percent: how many of a hundred such intervals are to contain the value that all samples in the world would have.
        resamples: draws; 1,000 fix the ends of a 95 % interval to about a twentieth of its width.
    """
    whole = recompute(np.ones((1, num_samples)))
    parts = [recompute(weights) for weights in _draws(num_samples, resamples)]
    tail = (1 - percent / 100) / 2
    found = {}
    for name, value in whole.items():
        drawn = np.concatenate([part[name] for part in parts])
        drawn = drawn[~np.isnan(drawn)]
        if len(drawn) and not np.isnan(value[0]):
            found[name] = _interval(float(value[0]), drawn, tail)
    return found


def _interval(value: float, drawn: np.ndarray, tail: float) -> Interval:
    bias = drawn.mean() - value
    is_noticed = abs(bias) > max(_BIAS * drawn.std(), _ROUNDING * abs(value))
    low, high = np.quantile(drawn, [tail, 1 - tail]) - (bias if is_noticed else 0.0)
    return Interval(value, float(low), float(high))


def _draws(num_samples: int, resamples: int) -> Iterator[np.ndarray]:
    """All draws, some at a time: weights, float64 (draws, samples)."""
    generator = np.random.Generator(np.random.PCG64(_SEED))
    at_once = max(1, min(resamples, _MOST_WEIGHTS // num_samples))
    for first in range(0, resamples, at_once):
        weights = np.empty((min(at_once, resamples - first), num_samples))
        for draw in weights:  # one by one: what is drawn does not depend on how many are drawn at a time
            draw[:] = np.bincount(generator.integers(0, num_samples, num_samples), minlength=num_samples)
        yield weights


def weighted_sums(weights: np.ndarray, statistics: np.ndarray) -> np.ndarray:
    """``weights @ statistics``, with the same bits for any number of threads: (draws, samples) and (samples, k) to
    (draws, k)."""
    return np.einsum("ds,sk->dk", weights, statistics, dtype=np.float64)


def join(parts: Sequence[tuple[Sequence[int], Sequence[np.ndarray]]]) -> list[np.ndarray]:
    """The tables of all processes as one, ordered by the samples' indices; a sample that several of them have
    evaluated, as with a sampler that pads, counts once.

    Args:
        parts: of each process the indices of its samples in the data set, and arrays (samples, ...) in their order;
            the same arrays for each process.
    Raises:
        ValueError: an array has not a row for each index.
    """
    indices = np.concatenate([np.asarray(part, np.int64) for part, _ in parts])
    columns = [np.concatenate(column) for column in zip(*[arrays for _, arrays in parts])]
    for column in columns:
        if len(column) != len(indices):
            raise ValueError(f"{len(column)} rows for {len(indices)} samples: expected one for each")
    _, order = np.unique(indices, return_index=True)
    return [column[order] for column in columns]
