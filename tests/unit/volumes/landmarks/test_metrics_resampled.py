"""Errors of drawn volumes are those of the volumes as often as they are drawn."""

import numpy as np
import pytest

from paddlevit_dist.volumes.landmarks.metrics import LandmarkMetrics


def test_errors_of_a_draw_are_those_of_repeated_volumes():
    generator = np.random.default_rng(0)
    errors = np.where(generator.random((8, 3)) < 0.2, np.nan, generator.gamma(2.0, 1.2, (8, 3)))
    errors[:, 2] = np.nan
    metrics = LandmarkMetrics(["a", "b", "c"])
    for row in errors:
        metrics.update(row)
    weights = generator.integers(0, 3, (10, 8))
    found = metrics.bootstrap_values(metrics.per_sample(), weights.astype(float))
    for draw, counts in enumerate(weights):
        again = LandmarkMetrics(["a", "b", "c"])
        for row in np.repeat(errors, counts, axis=0):
            again.update(row)
        expected = {name: v for name, v in again.compute(again.state).items() if not name.endswith("landmarks")}
        names = {name for name, column in found.items() if not np.isnan(column[draw])}
        assert names == set(expected)
        assert {name: found[name][draw] for name in names} == pytest.approx(expected)
