"""Kinds of scores by name, and the samples in which each class occurs."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.register import register_score_kind
from paddlevit_dist.core.tasks.score_kind import ScoreKind, are_below, find_score_kind, join_arrays


class Marked(ScoreKind):
    """Scores of classes; the ground truth is an array called "true"."""

    class_score = "score of {}"

    def recompute(self, parts, classes):
        return lambda weights: {}

    def truth(self, arrays):
        return arrays.get("true")


class Total(Marked):
    """Has no scores of classes."""

    class_score = ""


@pytest.fixture(autouse=True)
def kinds():
    register_score_kind("marked", Marked)
    register_score_kind("total", Total)


ONE_CLASS_EACH = np.array([2, 0, -1, 2, 3, 0, 2])  # the third sample is unlabeled
GROUPS = np.array(list("bbaabab"))
PRESENT = np.array([[1, 0, 1], [0, 0, 2], [0, 0, 0], [1, 0, -1]])


@pytest.mark.parametrize(
    "true, groups, counts",
    [
        (ONE_CLASS_EACH, GROUPS, [2, 0, 2, 1]),
        (PRESENT, np.array(list("xyxx")), [1, 0, 2, 0]),
        (np.stack([PRESENT, PRESENT[::-1]], 2), None, [2, 0, 4, 0]),
        (ONE_CLASS_EACH.astype(np.int8).repeat(60), None, [120, 0, 180, 60]),
    ],
)
def test_a_class_counts_the_samples_or_groups_that_it_occurs_in(true, groups, counts):
    numbers = None if groups is None else np.unique(groups, return_inverse=True)[1]
    found = find_score_kind("marked").count_units({"true": true}, list("wxyz"), numbers)
    assert found == {f"{Marked.class_score.format(name)}": count for name, count in zip("wxyz", counts)}


def test_without_scores_of_classes_nothing_is_counted():
    arrays = {"true": ONE_CLASS_EACH}
    assert find_score_kind("total").count_units(arrays, list("wxyz"), None) == {}
    assert find_score_kind("marked").count_units({}, list("wxyz"), None) == {}


def test_a_kind_is_found_by_its_name():
    assert type(find_score_kind("marked")) is Marked and find_score_kind("unknown") is None
    kind = find_score_kind("total")
    assert (kind.decimals, kind.swaps, kind.is_ranking, kind.right_rate) == (4, 10_000, True, "")
    assert kind.is_valid({}, 3, 2) is True and kind.hits({}, []) == {} and kind.predictions({}) is None
    assert ScoreKind.truth(kind, {}) is None
    register_score_kind("strange", dict)
    with pytest.raises(UserError, match="ScoreKind"):
        find_score_kind("strange")


def test_tables_are_joined_in_their_order():
    assert join_arrays([{"a": np.array([1, 2])}, {"a": np.array([5]), "b": np.array([0])}], "a").tolist() == [1, 2, 5]


@pytest.mark.parametrize(
    "numbers, fits",
    [
        ([0, 3], False),
        ([-1, 2], False),
        ([0.0, 1.0], False),
        (np.array([2, 0], np.uint8), True),
        (np.zeros(0, int), True),
    ],
)
def test_only_whole_numbers_below_the_limit_are_classes(numbers, fits):
    assert are_below(np.array(numbers), 3) is fits
