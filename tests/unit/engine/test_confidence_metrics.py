"""Intervals of every metric of samples, and the score without some of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.samples.counted_samples import CONFIDENCE, KINDS, SAMPLES, evaluate_share

from paddlevit_dist.engine.confidence import IntervalConfig, compute_intervals
from paddlevit_dist.tasks.metrics import PerSampleMetrics
from paddlevit_dist.volumes.landmarks.metrics import LandmarkMetrics


@pytest.fixture(scope="module")
def of_one_process() -> dict:
    return evaluate_share()


def test_intervals_are_of_the_main_numbers_and_their_parts(of_one_process):
    main = {"pictures": "top-1", "boxes": "AP", "scenes": "AP", "label maps": "mIoU", "volumes": "mre_mm"}
    for kind, name in main.items():
        interval = of_one_process[kind][name]
        assert interval.low < interval.value < interval.high, kind
        assert of_one_process[f"{kind} in groups"] != of_one_process[kind]
    assert {"top-5", "loss", "balanced accuracy", "recall a", "recall 6"} <= set(of_one_process["pictures"])
    assert {"AP50", "AR_100", "AP a"} <= set(of_one_process["boxes"])
    assert {"AP25", "mIoU", "IoU chair", "AP chair"} <= set(of_one_process["scenes"])
    assert {"mIoU", "mean Dice", "boundary IoU", "IoU a"} <= set(of_one_process["label maps"])
    assert {"sdr_2mm", "sd_mm", "c mre_mm"} <= set(of_one_process["volumes"])


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
        "pixels",
        *(f"{name} landmarks" for name in "abcde"),
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
