"""Of swapped results, p is what enumeration gives, and the interval of a mean's difference is Student's."""

import itertools
import math

import numpy as np
import pytest

from paddlevit_dist.core.intervals.swaps import measure_swaps, subtract_swapped

DRAWS = 500  # of data; of 500 tests at 0.05, 15 to 35 reject in 97 % of such trials


def of_sums(first: np.ndarray, second: np.ndarray):
    """The difference of means, with answers exchanged."""
    return lambda swaps: {"": np.where(swaps, first - second, second - first).mean(axis=1)}


def measure_p(differences, *arguments) -> float:
    return measure_swaps(differences, *arguments)[""].p


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
        assert measure_p(of_sums(one, other), 9, 1000) == slow_p(first, second)


def test_answers_of_a_group_are_exchanged_together():
    first, second = np.random.default_rng(2).integers(0, 4, (2, 27)).astype(float)
    numbers = np.repeat(np.arange(9), 3)[np.random.default_rng(3).permutation(27)]
    sums = [np.bincount(numbers, answers) for answers in (first, second)]
    assert measure_p(of_sums(first, second), 27, 1000, numbers) == slow_p(*sums)


def test_of_more_samples_drawn_swaps_come_near_to_all():
    generator = np.random.default_rng(1)
    first = generator.normal(size=13)
    second = first + generator.normal(1.0, 1.0, 13)
    expected, found = slow_p(first, second), measure_p(of_sums(first, second), 13, 5000)
    assert 0.02 < expected < 0.5
    assert found == pytest.approx(expected, abs=4 * np.sqrt(expected / 5000))
    assert measure_p(of_sums(first, second), 13, 5000) == found


def test_parts_of_means_differ_like_swapped_answers_and_a_part_without_a_score_does_not_count():
    first, second = np.random.default_rng(4).normal(size=(2, 20))
    swaps = np.random.default_rng(5).random((30, 20)) < 0.5
    swaps[:2] = [[False], [True]]

    def difference(weights):
        return weights @ (second - first) / weights.sum(axis=1)

    def subtract(difference, *arguments):
        return subtract_swapped(lambda weights: {"": difference(weights)}, *arguments)[""]

    assert subtract(difference, swaps) == pytest.approx(of_sums(first, second)(swaps)[""], abs=1e-12)

    sizes = np.random.default_rng(6).integers(0, 9, 20)  # objects of each sample, and sums of their scores

    def difference_of_objects(weights):
        return weights @ (sizes * (second - first)) / (weights @ sizes)

    expected = of_sums(sizes * first, sizes * second)(swaps)[""] * 20 / sizes.sum()
    assert subtract(difference_of_objects, swaps, sizes) == pytest.approx(expected, abs=1e-12)

    def difference_with_first(weights):  # such as a class that only the first sample has
        return np.where(weights[:, 0] > 0, difference(weights), np.nan)

    swaps = swaps[2:]
    kept, swapped = difference(~swaps + 0.0), difference(swaps + 0.0)
    expected = np.where(swaps[:, 0], -swapped, kept)
    assert subtract(difference_with_first, swaps) == pytest.approx(expected)


def test_swaps_without_a_difference_count_as_larger():
    assert measure_p(lambda swaps: {"": np.where(swaps.any(axis=1), np.nan, 1.0)}, 9, 1000) == 1.0


@pytest.mark.parametrize("num_samples", [13, 1 << 16])  # all swaps at once, and 64 at a time
def test_every_swap_of_equal_answers_counts(num_samples):
    assert measure_p(lambda swaps: {"": swaps.sum(axis=1) * 0.0}, num_samples, 150) == 1.0


def test_models_that_are_alike_differ_in_one_of_twenty_permutation_tests():
    generator, below = np.random.default_rng(2), 0
    for _ in range(DRAWS):
        hard = generator.gamma(2.0, 1.0, 40)  # of each sample, for both
        first, second = hard + generator.gamma(1.0, 1.0, (2, 40))
        below += measure_p(of_sums(first, second), 40, 400) < 0.05
    assert 0.03 <= below / DRAWS <= 0.07


@pytest.mark.parametrize("sizes", [[1] * 11, [1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 9]])
def test_the_deviation_of_a_mean_is_that_of_its_units_without_their_common_difference(sizes):
    """All swaps are enumerated, so that both are equal; the units of the second case are groups of unequal sizes."""
    changes = np.random.default_rng(7).normal(5.0, 1.0, 11)  # all of them far above 0
    numbers = np.repeat(np.arange(11), sizes)
    found = measure_swaps(of_sums(np.zeros(len(numbers)), changes[numbers]), len(numbers), 1 << 11, numbers)[""]
    shares = np.array(sizes) / sum(sizes)
    units = 1 / (shares**2).sum()
    spread = math.sqrt((shares**2 * (changes - shares @ changes) ** 2).sum())
    assert found.value == pytest.approx(shares @ changes)
    assert found.estimate_deviation(units) == pytest.approx(spread * math.sqrt(units / (units - 1)))
    if len(set(sizes)) == 1:
        assert found.estimate_deviation(11) == pytest.approx(changes.std(ddof=1) / math.sqrt(11))


def test_equal_differences_have_no_deviation():
    found = measure_swaps(of_sums(np.zeros(8), np.full(8, 0.1)), 8, 1000)[""]
    assert found.estimate_deviation(8) == 0.0 and found.p == 2 / 2**8


def test_a_class_in_few_samples_has_the_deviation_of_these():
    changes = np.where(np.arange(11) < 5, np.random.default_rng(8).normal(3.0, 1.0, 11), 0.0)  # five have the class

    def differences(swaps):
        return {"": (np.where(swaps, -1, 1) * changes).sum(axis=1) / 5}

    found = measure_swaps(differences, 11, 1 << 11)[""]
    assert found.estimate_deviation(5, 1 / 5 - 1 / 11) == pytest.approx(changes[:5].std(ddof=1) / math.sqrt(5))


def test_swaps_with_an_infinite_difference_count_as_larger_but_not_in_the_deviation():
    first, second = np.random.default_rng(9).normal(size=(2, 8))
    plain = of_sums(first, second)

    def differences(swaps):
        return {"": np.where(swaps.all(axis=1), np.inf, plain(swaps)[""])}

    found, whole = (measure_swaps(each, 8, 1000)[""] for each in (differences, plain))
    assert math.isfinite(found.estimate_deviation(8)) and found.p >= whole.p
    assert found.square == pytest.approx(whole.square * 256 / 255)  # all swapped leave nothing beyond their share
