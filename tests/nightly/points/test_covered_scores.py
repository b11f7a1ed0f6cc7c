"""Intervals of scores of scenes cover the score of such sets as often as they say."""

import numpy as np
from support.samples.instance_scenes import NAMES, scene

from paddlevit_dist.core.intervals import bootstrap, nanmean
from paddlevit_dist.points.instances.matching import flatten_tables
from paddlevit_dist.points.instances.metrics import InstanceMetrics
from paddlevit_dist.points.instances.score_kind import class_precisions


def test_the_interval_of_ap_covers_the_mean_score_of_such_sets():
    """500 sets of 40 scenes."""
    metrics = InstanceMetrics(NAMES, [1, 2, 3])
    for number in range(400):
        metrics.update_instances(*scene(number))
    generator, intervals = np.random.default_rng(1), []
    for _ in range(500):
        matches = flatten_tables([metrics.tables[number] for number in generator.integers(0, 400, 40)])
        intervals.append(bootstrap(lambda weights, m=matches: make_ap(m, weights), 40, resamples=200)["AP"])
    truth = np.mean([interval.value for interval in intervals])
    # Bias-corrected quantiles cover somewhat less than ends shifted by the bias, which left what a score can be.
    assert 0.90 <= np.mean([interval.low <= truth <= interval.high for interval in intervals]) <= 0.98


def make_ap(matches, weights):
    return {"AP": nanmean(class_precisions(matches, weights)["AP"])}
