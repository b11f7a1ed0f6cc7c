"""The interval of a rate's difference where samples are in groups is that of the groups' differences."""

import math

import numpy as np
import pytest

from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.extensions.compare import tables
from paddlevit_dist.extensions.compare.pairs import TablePair


def test_a_rate_of_few_groups_has_the_interval_of_groups_up_to_a_hundred_percent():
    """Of four groups of ten images, one model has 2, 8, 9 and 10 right, and the other as many wrong."""
    labels, groups = np.eye(2, dtype=np.int8)[np.arange(40) % 2], np.repeat(np.arange(4), 10).astype(str)
    about = {
        "task": "t",
        "kind": "labels",
        "score": "mAP",
        "more_is_better": True,
        "classes": ["a", "b"],
        "digest": "d",
    }

    def table(name, right):
        chosen = (labels == 1) == right[:, None]
        arrays = {"labels": labels, "logits": np.where(chosen, 1.0, -1.0), "chosen": chosen}
        of_groups = SampleGroups("g", groups, "x")
        return tables.EvaluationTable(name, about, list(map(str, range(40))), arrays, None, of_groups)

    counts = (2, 8, 9, 10)
    first, second = (
        table(name, np.concatenate([np.arange(10) < number for number in numbers]))
        for name, numbers in (("a", counts), ("b", [10 - count for count in counts]))
    )
    found = TablePair.match(first, second).compute_intervals().difference["exact match"]
    changes = 10.0 * (10 - 2 * np.array(counts))
    reach = 3.182446 * changes.std(ddof=1) / 2  # Student's quantile with 3 degrees of freedom
    assert found == pytest.approx((changes.mean(), -100.0, changes.mean() + reach), rel=1e-4)


def make_grouped(name, right):
    """A table of binary answers, bool (groups, samples of each)."""
    number = right.size
    about = {"task": "classification", "kind": "classes", "score": "top-1", "more_is_better": True, "digest": "d"}
    arrays = {"labels": np.arange(number) % 2, "places": 1 - right.ravel().astype(np.int64), "top": np.array([1])}
    members = SampleGroups("g", np.repeat(np.arange(len(right)), right.shape[1]).astype(str), "x")
    arrays["losses"] = np.ones(number)
    return tables.EvaluationTable(
        name, {**about, "classes": ["a", "b"]}, list(map(str, range(number))), arrays, None, members
    )


def test_the_difference_of_a_rate_in_groups_has_student_s_interval_of_their_differences():
    generator = np.random.default_rng(2)
    ease = 2 * generator.normal(size=(30, 1)) + generator.normal(size=(30, 20))  # both models fail in the same groups
    first, second = (ease + 0.5 * generator.normal(size=ease.shape) > limit for limit in (0.0, -0.45))
    found = TablePair.match(make_grouped("a", first), make_grouped("b", second)).compute_intervals().difference["top-1"]
    changes = 100 * (second.mean(axis=1) - first.mean(axis=1))
    reach = 2.045230 * changes.std(ddof=1) / math.sqrt(30)  # Student's quantile with 29 degrees of freedom
    assert found.value == pytest.approx(changes.mean())
    assert (found.low, found.high) == pytest.approx((changes.mean() - reach, changes.mean() + reach), abs=1e-4 * reach)
    alike = make_grouped("a", first)
    assert TablePair.match(alike, alike).compute_intervals().difference["top-1"].has_width()  # no answer differs
