"""Intervals of AP cover the mean score of such sets of images."""

import numpy as np
from unit.images.detection.evaluation.test_curves import make_tables

from paddlevit_dist.core.intervals import bootstrap
from paddlevit_dist.images.detection.evaluation.curves import DetectionCurves
from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable


def test_an_interval_covers_the_mean_score_of_such_sets():
    """AP of few images is larger than that of many, and an interval is about sets of its size."""
    values, intervals = [], []
    for seed in range(100):
        curves = DetectionCurves.from_table(MatchTable.joined(make_tables(40, seed)))
        found = bootstrap(lambda weights, c=curves: {"AP": c.scores(weights)[0][:, 0]}, 40, resamples=100)["AP"]
        values.append(found.value)
        intervals.append(found)
    share = np.mean([interval.low <= np.mean(values) <= interval.high for interval in intervals])
    assert 0.88 <= share <= 1.0  # three deviations of 100 draws
