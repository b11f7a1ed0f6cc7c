"""Swapped results have the deviation that the differences of their units have."""

import math

import numpy as np
import pytest

from paddlevit_dist.core.intervals.swaps import measure_swaps, subtract_swapped


def of_sums(first: np.ndarray, second: np.ndarray):
    """The difference of means, with answers exchanged."""
    return lambda swaps: {"": np.where(swaps, first - second, second - first).mean(axis=1)}


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
    assert found.estimate_deviation(8) == 0.0


def test_a_class_in_few_samples_has_the_deviation_of_these():
    changes = np.where(np.arange(11) < 5, np.random.default_rng(8).normal(3.0, 1.0, 11), 0.0)  # five have the class

    def differences(swaps):
        return {"": (np.where(swaps, -1, 1) * changes).sum(axis=1) / 5}

    found = measure_swaps(differences, 11, 1 << 11)[""]
    assert found.estimate_deviation(5, 1 / 5 - 1 / 11) == pytest.approx(changes[:5].std(ddof=1) / math.sqrt(5))


def test_swaps_with_an_infinite_difference_are_not_in_the_deviation():
    first, second = np.random.default_rng(9).normal(size=(2, 8))
    plain = of_sums(first, second)

    def differences(swaps):
        return {"": np.where(swaps.all(axis=1), np.inf, plain(swaps)[""])}

    found, whole = (measure_swaps(each, 8, 1000)[""] for each in (differences, plain))
    assert math.isfinite(found.estimate_deviation(8))
    assert found.square == pytest.approx(whole.square * 256 / 255)  # all swapped leave nothing beyond their share
