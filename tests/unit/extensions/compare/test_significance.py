"""A p is what enumeration gives, and below 0.05 in one of twenty comparisons of what is alike."""

import itertools
from math import comb

import numpy as np
import pytest

from paddlevit_dist.extensions.compare.significance import (
    holm_correction,
    is_behind,
    mcnemar_test,
    permutation_test,
    subtract_swapped,
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


def of_sums(first: np.ndarray, second: np.ndarray):
    """The difference of means, with answers exchanged."""
    return lambda swaps: np.where(swaps, first - second, second - first).mean(axis=1)


def slow_p(first: np.ndarray, second: np.ndarray) -> float:
    found, larger = abs(np.mean(second) - np.mean(first)), 0
    for swaps in itertools.product([False, True], repeat=len(first)):
        ours = [b if swap else a for swap, a, b in zip(swaps, first, second)]
        theirs = [a if swap else b for swap, a, b in zip(swaps, first, second)]
        larger += abs(np.mean(theirs) - np.mean(ours)) >= found - 1e-12
    return larger / 2 ** len(first)


def test_of_few_samples_all_swaps_are_enumerated():
    first, second = np.random.default_rng(0).integers(0, 4, (2, 9)).astype(float)  # with ties
    for one, other in ((first, second), (second, first)):
        assert permutation_test(of_sums(one, other), 9, 1000) == (slow_p(first, second), 512)


def test_answers_of_a_group_are_exchanged_together():
    first, second = np.random.default_rng(2).integers(0, 4, (2, 27)).astype(float)
    numbers = np.repeat(np.arange(9), 3)[np.random.default_rng(3).permutation(27)]
    sums = [np.bincount(numbers, answers) for answers in (first, second)]
    assert permutation_test(of_sums(first, second), 27, 1000, numbers) == (slow_p(*sums), 512)


def test_of_more_samples_drawn_swaps_come_near_to_all():
    generator = np.random.default_rng(1)
    first = generator.normal(size=13)
    second = first + generator.normal(1.0, 1.0, 13)
    expected, (found, swaps) = slow_p(first, second), permutation_test(of_sums(first, second), 13, 5000)
    assert swaps == 5000 and 0.02 < expected < 0.5
    assert found == pytest.approx(expected, abs=4 * np.sqrt(expected / 5000))
    assert permutation_test(of_sums(first, second), 13, 5000) == (found, swaps)


def test_parts_of_means_differ_like_swapped_answers_and_a_part_without_a_score_does_not_count():
    first, second = np.random.default_rng(4).normal(size=(2, 20))
    swaps = np.random.default_rng(5).random((30, 20)) < 0.5
    swaps[:2] = [[False], [True]]

    def difference(weights):
        return weights @ (second - first) / weights.sum(axis=1)

    assert subtract_swapped(difference, swaps) == pytest.approx(of_sums(first, second)(swaps), abs=1e-12)

    sizes = np.random.default_rng(6).integers(0, 9, 20)  # objects of each sample, and sums of their scores

    def difference_of_objects(weights):
        return weights @ (sizes * (second - first)) / (weights @ sizes)

    expected = of_sums(sizes * first, sizes * second)(swaps) * 20 / sizes.sum()
    assert subtract_swapped(difference_of_objects, swaps, sizes) == pytest.approx(expected, abs=1e-12)

    def difference_with_first(weights):  # such as a class that only the first sample has
        return np.where(weights[:, 0] > 0, difference(weights), np.nan)

    swaps = swaps[2:]
    kept, swapped = difference(~swaps + 0.0), difference(swaps + 0.0)
    expected = np.where(swaps[:, 0], -swapped, kept)
    assert subtract_swapped(difference_with_first, swaps) == pytest.approx(expected)


def test_swaps_without_a_difference_count_as_larger():
    assert permutation_test(lambda swaps: np.where(swaps.any(axis=1), np.nan, 1.0), 9, 1000) == (1.0, 512)


@pytest.mark.parametrize("num_samples", [13, 1 << 16])  # all swaps at once, and 64 at a time
def test_every_swap_of_equal_answers_counts(num_samples):
    assert permutation_test(lambda swaps: swaps.sum(axis=1) * 0.0, num_samples, 150) == (1.0, 150)


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


def test_models_that_are_alike_differ_in_one_of_twenty_permutation_tests():
    generator, below = np.random.default_rng(2), 0
    for _ in range(DRAWS):
        hard = generator.gamma(2.0, 1.0, 40)  # of each sample, for both
        first, second = hard + generator.gamma(1.0, 1.0, (2, 40))
        below += permutation_test(of_sums(first, second), 40, 400)[0] < 0.05
    assert 0.03 <= below / DRAWS <= 0.07


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
