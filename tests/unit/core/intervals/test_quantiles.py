"""Quantiles are those of printed tables."""

import pytest
from scipy import stats

from paddlevit_dist.core.intervals.quantiles import compute_p, student_quantile, student_tail


@pytest.mark.parametrize(
    ("share", "freedom", "expected"),
    [(0.975, 1, 12.7062), (0.995, 5, 4.03214), (0.975, 200, 1.97190), (0.975, 201, 1.97184), (0.975, 1e7, 1.959964)],
)
def test_quantiles_of_student_s_distribution(share, freedom, expected):
    """The last two are of an expansion."""
    assert student_quantile(share, freedom) == pytest.approx(expected, rel=1e-5)
    assert student_quantile(1 - share, freedom) == pytest.approx(-expected, rel=1e-5)


@pytest.mark.parametrize("freedom", [1, 4.7, 30, 1000, 1e8])
@pytest.mark.parametrize("value", [-1.0, 0.0, 2.3, 6.0])
def test_tails_of_student_s_distribution(value, freedom):
    assert student_tail(value, freedom) == pytest.approx(stats.t.sf(value, freedom), abs=1e-5)


def test_p_is_that_of_the_interval_and_1_without_a_deviation():
    for freedom in (1, 2.5, 9, 250):
        edge = student_quantile(0.975, freedom) * 0.3
        assert compute_p(1.001 * edge, 0.3, freedom) < 0.05 < compute_p(-0.999 * edge, 0.3, freedom)
        assert compute_p(-0.7, 0.3, freedom) == pytest.approx(2 * stats.t.sf(0.7 / 0.3, freedom), rel=1e-3)
    assert compute_p(0.0, 0.3, 5) == pytest.approx(1.0) and compute_p(0.0, 0.0, 5) == compute_p(2.0, 0.0, 5) == 1.0
