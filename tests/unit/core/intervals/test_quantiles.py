"""Quantiles are those of printed tables."""

import pytest
from scipy import stats

from paddlevit_dist.core.intervals.quantiles import student_quantile, student_tail


@pytest.mark.parametrize(
    ("share", "freedom", "expected"),
    [(0.975, 1, 12.7062), (0.995, 5, 4.03214), (0.975, 200, 1.97190), (0.975, 201, 1.97184), (0.975, 1e7, 1.959964)],
)
def test_quantiles_of_student_s_distribution(share, freedom, expected):
    """The last two are of an expansion."""
    assert student_quantile(share, freedom) == pytest.approx(expected, rel=1e-5)
    assert student_quantile(1 - share, freedom) == pytest.approx(-expected, rel=1e-5)


@pytest.mark.parametrize("freedom", [1, 4.7, 30, 1000])
@pytest.mark.parametrize("value", [-1.0, 0.0, 2.3, 6.0])
def test_tails_of_student_s_distribution(value, freedom):
    assert student_tail(value, freedom) == pytest.approx(stats.t.sf(value, freedom), abs=1e-5)
