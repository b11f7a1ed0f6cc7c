"""Intervals of every metric of samples, and the score without some of them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from support.samples.counted_samples import CONFIDENCE, KINDS, SAMPLES, evaluate_share
from support.thread_ranks import ThreadRanks

from paddlevit_dist.core.intervals import ConfidenceInterval
from paddlevit_dist.core.metrics.confidence import (
    IntervalConfig,
    PerSampleResults,
    compute_intervals,
    to_event,
    to_json,
)
from paddlevit_dist.core.tasks.metrics import PerSampleMetrics
from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.volumes.landmarks.metrics import LandmarkMetrics


@pytest.fixture(scope="module")
def of_one_process() -> dict:
    return evaluate_share()


def test_intervals_are_of_the_main_numbers_and_their_parts(of_one_process):
    main = {"pictures": "top-1", "boxes": "AP", "scenes": "AP", "label maps": "mIoU", "volumes": "mre_mm"}
    main |= {"organs": "Dice", "points": "mIoU"}
    for kind, name in main.items():
        interval = of_one_process[kind][name]
        assert interval.low < interval.value < interval.high, kind
        assert of_one_process[f"{kind} in groups"] != of_one_process[kind]
    assert {"top-5", "loss", "balanced accuracy", "recall a", "recall 6"} <= set(of_one_process["pictures"])
    assert {"AP50", "AR_100", "AP a"} <= set(of_one_process["boxes"])
    assert {"AP25", "mIoU", "IoU chair", "AP chair"} <= set(of_one_process["scenes"])
    assert {"mIoU", "mean Dice", "boundary IoU", "IoU a"} <= set(of_one_process["label maps"])
    assert {"sdr_2mm", "sd_mm", "c mre_mm"} <= set(of_one_process["volumes"])
    assert {"pooled Dice", "hd95_mm", "assd_mm a", "labeled Dice c"} <= set(of_one_process["organs"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_score_without_some_samples_is_that_of_an_evaluation_of_the_others(kind):
    """Values, line and intervals: what ``evaluate -exclude_leaked`` prints."""
    make, add = KINDS[kind]
    left_out, tables = [0, 3, 4, 11], []
    others = np.setdiff1d(range(SAMPLES), left_out)
    for chosen in (range(SAMPLES), others):
        metrics = make()
        if kind == "boxes":
            metrics.images = None
        add(metrics, list(chosen))
        values = metrics.compute(metrics.state)
        compute_intervals(metrics, chosen, CONFIDENCE, tables.append)
    table = tables[0].without(left_out)
    assert table.indices.tolist() == others.tolist()
    found = table.values()
    assert set(values) - set(found) <= {
        "top-1 count", "top-5 count", "samples", "images", "detections", "not finite", "points", "landmarks",
        "pixels", "missed", "known labels",
        *(f"{name} landmarks" for name in "abcde"),
        *(f"missed {name}" for name in "abc"),
    }  # fmt: skip
    shared = set(found) & set(values)
    assert {name: found[name] for name in shared} == pytest.approx({name: values[name] for name in shared}, rel=1e-6)
    assert table.intervals(CONFIDENCE) == tables[1].intervals(CONFIDENCE) and table.intervals(None) == {}
    assert table.metrics.summary(found) == metrics.summary(values)


class Miscounted(PerSampleMetrics):
    """Its rows are not one for each sample."""

    def per_sample(self):
        return [np.zeros(3)]

    def bootstrap_values(self, table, weights):
        raise AssertionError("there is nothing to compute")


def test_metrics_without_a_row_for_each_sample_have_no_intervals():
    assert compute_intervals(Miscounted(), [0, 1], CONFIDENCE) == {}
    twice = LandmarkMetrics(["a"])
    for _ in range(3):
        twice.update(np.ones(1))
    assert compute_intervals(twice, [0, 1], CONFIDENCE) == {}  # more rows than samples
    assert (
        IntervalConfig.from_config(SimpleNamespace(EVALUATION=SimpleNamespace(INTERVAL=False, RESAMPLES=100))) is None
    )


class Means(PerSampleMetrics):
    """The mean of numbers, and one that is not defined."""

    def __init__(self, numbers=()):
        super().__init__()
        self.numbers = np.array(numbers, float)

    def per_sample(self):
        return [self.numbers]

    def bootstrap_values(self, table, weights):
        mean = (weights * table[0]).sum(axis=1) / weights.sum(axis=1)
        return {"mean": mean, "unknown": np.full(len(weights), np.nan), "diverged": np.full(len(weights), np.inf)}


def test_values_that_are_not_defined_are_left_out():
    results = PerSampleResults(Means(), np.array([3, 5, 8]), [np.array([1.0, 2.0, 6.0])])
    assert results.values() == {"mean": 3.0} and results.group_names is None
    rest = results.without([5, 7])
    assert (rest.indices.tolist(), rest.columns[0].tolist(), rest.values()) == ([3, 8], [1.0, 6.0], {"mean": 3.5})


def test_the_main_process_computes_with_the_rows_of_all_ranks_by_index():
    groups, kept = SampleGroups("video", np.array(list("abcde")), "videos.csv"), [[], []]

    def compute(rank):
        parts = (Means([8.0, 6.0]), [4, 1]), (Means([7.0, 9.0]), [0, 3])
        found = compute_intervals(*parts[rank], CONFIDENCE, kept[rank].append, groups)
        unknown = compute_intervals(*((Means([8.0]), [4]), (Means(), None))[rank], CONFIDENCE, kept[rank].append)
        return found, unknown, compute_intervals(Means(), [], CONFIDENCE, kept[rank].append)

    first, second = ThreadRanks(2).run(compute)
    assert first == second
    (found, unknown, none) = first
    ((table,), others) = kept
    assert others == [] and unknown == none == {}
    assert (table.indices.tolist(), table.columns[0].tolist()) == ([0, 1, 3, 4], [7.0, 6.0, 9.0, 8.0])
    assert table.group_names.tolist() == list("abde")
    assert found["mean"].value == 7.5 and 4.0 < found["mean"].low < 7.5 < found["mean"].high < 11.0


def test_intervals_are_stored_with_their_ends_if_these_differ():
    intervals = {"b": ConfidenceInterval(2.0, 1.0, 3.0), "a": ConfidenceInterval(1.0, 1.0, 1.0)}
    confidence_of = IntervalConfig(90, 50)
    event = to_event(intervals, ["a", "other", "b"], confidence_of)
    assert event == {"interval": {"percent": 90, "a": None, "b": [1.0, 3.0]}} and list(event["interval"])[1] == "a"
    assert to_event({}, ["a"], confidence_of) == to_event(intervals, ["a"], None) == {}
    lines = to_json(intervals, confidence_of, {"epoch": 3}).splitlines()
    assert (
        lines[:5] == ["{", ' "epoch": 3,', ' "percent": 90,', ' "resamples": 50,', ' "values": {'] and lines[-1] == "}"
    )
    assert json.loads("".join(lines))["values"] == {name: interval.plain() for name, interval in intervals.items()}
    assert "percent" not in to_json(intervals, None, {}) and to_json(intervals, None, {}).endswith("}\n")
