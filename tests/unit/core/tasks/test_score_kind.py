"""Kinds of scores by name, and the samples in which each class occurs."""

import math

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.intervals import bootstrap
from paddlevit_dist.core.registry.register import register_score_kind
from paddlevit_dist.core.tasks.score_kind import ScoreKind, are_below, find_score_kind, join_arrays
from paddlevit_dist.core.tasks.table_checks import require_draws


class Marked(ScoreKind):
    """Scores of classes; the ground truth is an array called "true"."""

    class_score, other_class_scores = "score of {}", ("{} error",)

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
        (ONE_CLASS_EACH, None, [2, 0, 3, 1]),
        (ONE_CLASS_EACH, GROUPS, [2, 0, 2, 1]),
        (PRESENT, None, [2, 0, 2, 0]),
        (PRESENT, np.array(list("xyxx")), [1, 0, 2, 0]),
        (np.stack([PRESENT, PRESENT[::-1]], 2), None, [2, 0, 4, 0]),
        (ONE_CLASS_EACH[:0], None, [0, 0, 0, 0]),
        (ONE_CLASS_EACH.astype(np.int8).repeat(60), None, [120, 0, 180, 60]),
    ],
)
def test_a_class_counts_the_samples_or_groups_that_it_occurs_in(true, groups, counts):
    numbers = None if groups is None else np.unique(groups, return_inverse=True)[1]
    found = find_score_kind("marked").count_units({"true": true}, list("wxyz"), numbers)
    names = [f"score of {name}" for name in "wxyz"] + [f"{name} error" for name in "wxyz"]
    assert found == dict(zip(names, counts * 2))
    assert find_score_kind("marked").count_of_classes({"true": true}, 4, numbers) == counts


def test_without_scores_of_classes_nothing_is_counted():
    arrays = {"true": ONE_CLASS_EACH}
    assert find_score_kind("total").count_units(arrays, list("wxyz"), None) == {}
    assert find_score_kind("marked").count_units({}, list("wxyz"), None) == {}


class Kappa(ScoreKind):
    """A score with a range that a test sets."""

    bounds: object = (-1.0, 1.0)

    def compute(self, arrays, weights):
        return {"kappa": weights @ arrays["kappas"] / weights.sum(axis=1)}

    def find_ranges(self, arrays, classes):
        return {"kappa": self.bounds}


def kappa_interval(bounds):
    kind = Kappa()
    kind.bounds = bounds
    return bootstrap(kind.recompute([{"kappas": np.array([-0.9, -0.2, -0.5, -0.6])}], []), 4)["kappa"]


@pytest.mark.parametrize("bounds", [(1, -1), (0.0, None), 1.0], ids=["reversed", "open", "number"])
def test_what_is_no_range_is_refused_in_a_line(bounds):
    assert refusal_of(kappa_interval, bounds) == (
        f"find_ranges: score 'kappa' has the range {bounds}: expected its lowest and its highest value, such as "
        "(0.0, 1.0), with -math.inf or math.inf where there is no bound; or None for no interval"
    )


def test_a_range_may_be_a_list_and_what_compute_returns_is_checked():
    kind = Kappa()
    kind.bounds = [-1.0, 1.0]
    assert kappa_interval([-1.0, 1.0]) == kappa_interval((-1.0, 1.0))
    score = kind.describe(["kappa"], {"kappas": np.zeros(2)}, [])["kappa"]
    assert score.range == (-1.0, 1.0) and hash(score)
    with pytest.raises(UserError, match="compute of Kappa returns None, expected values of the draws by name"):
        require_draws(kind, None, 2)


def test_a_value_outside_of_its_range_is_refused_and_one_at_its_end_is_not():
    assert refusal_of(kappa_interval, (0, 1)).startswith(
        "score 'kappa' is -0.55, outside of its range (0, 1): correct "
    )
    assert kappa_interval((-0.55, 1)).low == -0.55 and kappa_interval(None).has_width() is False
    for bounds in ((-1, 1), (-math.inf, 0.0), (-math.inf, math.inf)):
        assert bounds[0] < kappa_interval(bounds).low < -0.55 < kappa_interval(bounds).high < bounds[1]


def test_a_kind_with_the_method_of_former_versions_is_refused():
    with pytest.raises(UserError, match=r"^Old needs find_ranges\(self, arrays, classes\) instead of find_range"):
        register_score_kind("old", type("Old", (Kappa,), {"find_range": lambda self, name: (0, 1)}))


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
        ([0, 1, 2], True),
        ([0, 3], False),
        ([-1, 2], False),
        ([0.0, 1.0], False),
        ([False, True], False),
        (np.array([2, 0], np.uint8), True),
        (np.zeros(0, int), True),
    ],
)
def test_only_whole_numbers_below_the_limit_are_classes(numbers, fits):
    assert are_below(np.array(numbers), 3) is fits


class Errors(ScoreKind):
    def recompute(self, parts, classes):
        arrays = self.join(parts)
        return self.declare(lambda weights: {"error": weights @ arrays["wrong"]}, arrays, classes)


class AddsByCompute(Errors):
    def compute(self, arrays, weights):
        return {**super().compute(arrays, weights), "samples": weights.sum(axis=1)}


class AddsByRecompute(AddsByCompute):
    def recompute(self, parts, classes):
        values = super().recompute(parts, classes)
        return lambda weights: {**values(weights), "classes": np.full(len(weights), len(classes))}


class Doubles:
    def compute(self, arrays, weights):
        return {name: 2 * value for name, value in super().compute(arrays, weights).items()}


class AddsByMixin(Doubles, Errors):
    pass


@pytest.mark.parametrize(
    "kind, expected",
    [
        (Errors, {"error": 3}),
        (AddsByCompute, {"error": 3, "samples": 4}),
        (type("Grandchild", (AddsByCompute,), {}), {"error": 3, "samples": 4}),
        (AddsByMixin, {"error": 6}),
    ],
)
def test_either_override_is_used(kind, expected):
    arrays, weights = {"wrong": np.array([1, 0, 1])}, np.array([[1, 1, 2]])
    by_compute = kind("ab").compute_scores(arrays, weights)
    by_recompute = kind().recompute_scores([arrays], ["a", "b"])(weights)
    assert {name: value.item() for name, value in by_compute.items()} == expected
    assert {name: value.item() for name, value in by_recompute.items()} == expected


def test_a_method_that_would_skip_what_its_parent_adds_is_refused():
    with pytest.raises(UserError, match="^AddsByRecompute has recompute, but AddsByCompute has compute: use"):
        AddsByRecompute.check_methods()
