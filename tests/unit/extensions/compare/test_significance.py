"""A p is what enumeration gives, and below 0.05 in one of twenty comparisons of what is alike."""

from math import comb

import numpy as np
import pytest

from paddlevit_dist.extensions.compare.significance import (
    holm_correction,
    is_behind,
    mcnemar_test,
)

DRAWS = 500  # of data; of 500 tests at 0.05, 15 to 35 reject in 97 % of such trials


@pytest.mark.parametrize("fixed, broken", [(0, 0), (1, 0), (5, 5), (3, 9), (21, 8), (0, 40), (400, 460)])
def test_mcnemar_counts_half_of_the_throws_that_deviate_as_much(fixed, broken):
    thrown, observed = fixed + broken, abs(fixed - broken)
    throws = {k: comb(thrown, k) for k in range(thrown + 1)}
    more = sum(ways for k, ways in throws.items() if abs(thrown - 2 * k) > observed)
    as_much = sum(ways for k, ways in throws.items() if abs(thrown - 2 * k) == observed)
    expected = 1.0 if fixed == broken else (more + as_much / 2) / 2**thrown
    assert mcnemar_test(fixed, broken) == pytest.approx(expected, rel=1e-9)
    assert mcnemar_test(fixed, broken) == mcnemar_test(broken, fixed)


def test_mcnemar_knows_fifty_thousand_images_that_changed():
    assert mcnemar_test(25_000, 25_000) == pytest.approx(1.0)
    assert 0.025 < mcnemar_test(24_770, 25_230) < 0.045  # 2.06 deviations from half


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


def test_holm_corrects_the_example_by_hand():
    # sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1, which is raised to the one before it
    assert holm_correction([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_correction([0.6, 0.5]) == [1.0, 1.0] and holm_correction([0.3]) == [0.3] and holm_correction([]) == []


def test_models_that_are_alike_and_seldom_differ_do_so_in_one_of_twenty_tests():
    """Each number of changed samples, with all throws of the coin; the exact test finds too few differences."""
    found, exact = [], []
    for changed in range(6, 41):
        ways = [comb(changed, k) / 2**changed for k in range(changed + 1)]
        found.append(sum(way for k, way in enumerate(ways) if mcnemar_test(k, changed - k) < 0.05))
        exact.append(sum(way for k, way in enumerate(ways) if 2 * sum(ways[: min(k, changed - k) + 1]) < 0.05))
    assert np.mean(exact) < 0.03 and 0.04 < np.mean(found) < 0.05 and max(found) < 0.077


def test_models_that_are_alike_differ_in_one_of_twenty_mcnemar_tests():
    generator, below = np.random.default_rng(3), 0
    for _ in range(DRAWS):
        share = generator.beta(2, 1, 4000)  # of each image, how often it is right
        first, second = generator.random((2, 4000)) < share
        below += mcnemar_test(int((second & ~first).sum()), int((first & ~second).sum())) < 0.05
    assert 0.03 <= below / DRAWS <= 0.07
