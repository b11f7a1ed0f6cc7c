"""Quantiles of distributions, without SciPy."""

import functools
import math
from statistics import NormalDist

import numpy as np

from .proportions import ROUNDING

_NEARLY_NORMAL = 200  # degrees of freedom from which an expansion is exact to six digits


@functools.lru_cache(maxsize=256)
def student_quantile(share: float, freedom: float) -> float:
    """Compute a quantile of Student's t distribution, to five digits.

    Source: Student, "The probable error of a mean", Biometrika 6, 1908; with t = sqrt(freedom) tan(angle), the angle
    has the density cos(angle)^(freedom - 1). For many degrees of freedom: R. A. Fisher, "Expansion of Student's
    integral in powers of n^-1", Metron 5, 1925.

    Args:
        share: probability below the quantile, 0 to 1.
        freedom: degrees of freedom, at least 1, also a fraction.
    """
    if freedom > _NEARLY_NORMAL:
        z = NormalDist().inv_cdf(share)
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    angles, below = _sum_density(freedom)
    return math.sqrt(freedom) * math.tan(float(np.interp(share * below[-1], below, angles)))


def student_tail(value: float, freedom: float) -> float:
    """Compute the probability that Student's t exceeds a value, to five decimals; see ``student_quantile``.

    Source for many degrees of freedom: D. L. Wallace, "Bounds on normal approximations to Student's and the chi-square
    distributions", Annals of Mathematical Statistics 30, 1959.
    """
    if freedom > _NEARLY_NORMAL:
        normal = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(value**2 / freedom))
        return NormalDist().cdf(-math.copysign(normal, value))
    angles, below = _sum_density(freedom)
    return float(np.interp(math.atan(-value / math.sqrt(freedom)), angles, below) / below[-1])


def compute_p(value: float, deviation: float, freedom: float) -> float:
    """Compute the probability that a difference is at least as far from 0 as this one if models are equally good.

    It is below 0.05 exactly where Student's 95 % interval, ``value`` plus and minus ``student_quantile`` times the
    deviation, does not contain 0. Without a deviation nothing tells a difference from chance: 1.

    Args:
        value: the difference.
        deviation: its standard deviation over other samples or seeds.
        freedom: degrees of freedom of the deviation.
    """
    return 2 * student_tail(abs(value) / deviation, freedom) if deviation > ROUNDING * abs(value) else 1.0


def _sum_density(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Return angles, and a number proportional to the probability of a smaller one: float (20,001,) each."""
    angles = np.linspace(-np.pi / 2, np.pi / 2, 20_001)
    density = np.cos(angles).clip(0.0) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return angles, below
