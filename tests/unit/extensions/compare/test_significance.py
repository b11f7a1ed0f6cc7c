"""The level of several intervals, what is called a difference, and which curve is behind."""

import numpy as np
import pytest

from paddlevit_dist.core.intervals.quantiles import compute_p, student_quantile
from paddlevit_dist.extensions.compare.significance import add_finding, find_level, is_behind


@pytest.mark.parametrize("more_is_better", [True, False])
@pytest.mark.parametrize("comparisons", [1, 3])
def test_what_is_better_is_what_the_interval_of_all_comparisons_says(more_is_better, comparisons):
    better, worse = ("better", "worse") if more_is_better else ("worse", "better")
    for value, expected in (
        (0.0, "no difference"),
        (2.6, None),
        (2.2, None),
        (-2.6, None),
        (9.0, better),
        (-9.0, worse),
    ):
        row = {"difference": {"value": value}, "p": compute_p(value, 1.0, 12), "more_is_better": more_is_better}
        found = add_finding(row, comparisons)
        reach = student_quantile(0.5 + find_level(comparisons) / 200, 12)
        beside = better if value > reach else worse if value < -reach else "may be chance"
        assert found["finding"] == (expected or beside) and found["p_corrected"] == pytest.approx(
            min(1.0, comparisons * row["p"]), rel=1e-5
        )


def test_the_level_of_what_is_listed_is_between_that_of_one_and_of_all():
    assert (find_level(1), find_level(2), find_level(60, 10), find_level(60, 60)) == (95, 97.5, 100 - 5 / 6, 95)


def test_intervals_of_listed_differences_fail_as_often_as_others():
    """Of 60 differences without an effect, the ten largest are listed."""
    values = np.random.default_rng(0).normal(size=(400, 60))
    listed = -np.sort(-np.abs(values), axis=1)[:, :10]
    failing = [(listed > student_quantile(0.5 + level / 200, 1e6)).mean() for level in (95, find_level(60, 10))]
    assert failing[0] > 0.25 and failing[1] < 0.06


def test_a_curve_is_behind_if_its_gap_exceeds_noise_now_and_at_the_end():
    def judge(gaps, last=10, reach=0.5):
        return is_behind({5 + n: gap + n for n, gap in enumerate(gaps)}, {5 + n: n for n in range(6)}, last, reach)

    assert judge([-1, -1, -1]) and not judge([-1, -1]) and not judge([1, 1, 1]) and not judge([-1, -1, -1], reach=1.01)
    assert not judge([-4, -3, -2]) and judge([-4, -3, -2], last=8) and judge([-2, -3, -4])  # it catches up in epoch 9
    # The line ends at -1, and 90 % of lines with this reach at most 1.2816 / 1.96 of it away.
    assert judge([-6, -5, -4], reach=1.52) and not judge([-6, -5, -4], reach=1.54)
    assert not judge([-1, -3, 1]) and not judge([-2, -4, 0])  # noise between epochs


def test_a_curve_that_varies_between_epochs_is_seldom_behind_an_equal_one():
    generator, behind = np.random.default_rng(6), {0.0: 0, 4.0: 0}
    for gap in behind:
        for _ in range(200):
            own, best = generator.normal(size=(2, 11))
            curves = [dict(zip(range(10, 21), curve)) for curve in (own - gap, best)]
            parts = ({epoch: curves[0][epoch] for epoch in range(10, now + 1)} for now in range(12, 20))
            behind[gap] += any(is_behind(part, curves[1], 20, 0.0) for part in parts)
    assert behind[0.0] < 0.06 * 200 and behind[4.0] > 0.9 * 200
