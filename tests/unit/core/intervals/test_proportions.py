"""McNemar's p is what enumeration gives, and below 0.05 in one of twenty comparisons of what is alike."""

from math import comb

import numpy as np
import pytest

from paddlevit_dist.core.intervals.proportions import mcnemar_test

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
