"""Scores where nothing defines one: no voxel of any class, no distance, a class of no volume."""

import numpy as np
import pytest

from paddlevit_dist.core.tasks.score_kind import find_score_kind
from paddlevit_dist.volumes.segmentation.dataset import IGNORED
from paddlevit_dist.volumes.segmentation.metrics import VolumeMetrics

NAMES = ["background", "a", "b", "c"]


def of_volumes(*pairs: tuple[list[int], list[int]], has_distances: bool = True) -> VolumeMetrics:
    """Metrics of volumes of one line: true labels, and predicted ones."""
    metrics = VolumeMetrics(NAMES, has_distances)
    for true, predicted in pairs:
        lines = (np.array(line, np.uint8)[None, None] for line in (predicted, true))
        metrics.update(*lines, np.array([3.0, 2.0, 0.5]))
    return metrics


def test_an_evaluation_where_every_voxel_is_background_has_no_dice():
    metrics = of_volumes(([0, 0, IGNORED], [0, 0, 1]))
    values = metrics.compute({})
    assert values == {"missed": 0, "missed a": 0, "missed b": 0, "missed c": 0}
    assert metrics.summary(values) == "Dice nan pooled Dice nan; neither labeled nor predicted: a, b, c"
    drawn = metrics.bootstrap_values(metrics.per_sample(), np.ones((2, 1)))
    assert np.isnan(list(drawn.values())).all() and drawn["Dice"].shape == (2,)  # nor has it an interval


@pytest.mark.parametrize("has_distances", [True, False])
def test_distances_are_values_and_columns_only_where_they_are_measured(has_distances):
    metrics = of_volumes(([1, 1, 0, 0], [0, 1, 0, 0]), ([0, 2, 0, 0], [0, 0, 0, 2]), has_distances=has_distances)
    values, table = metrics.compute({}), metrics.per_sample()
    columns = metrics.columns(table)
    distances = [f"{what}{name}" for name in ("", " a", " b") for what in ("assd_mm", "hd95_mm")]
    found = {name: value for name, value in values.items() if "mm" in name}
    assert list(found) == (distances if has_distances else [])
    assert list(columns) == [
        f"{what}{name}"
        for name in ("", " a", " b", " c")
        for what in ("Dice", *(("assd_mm", "hd95_mm") if has_distances else ()))
    ]
    assert columns["Dice a"] == pytest.approx([2 / 3, np.nan], nan_ok=True) and columns["Dice"][1] == 0
    if has_distances:
        assert values["assd_mm a"] == pytest.approx(0.5 / 3) and values["hd95_mm b"] == values["assd_mm b"] == 1.0
        assert columns["hd95_mm b"] == pytest.approx([np.nan, 1.0], nan_ok=True)
        assert "assd 0.583 mm" in metrics.summary(values)
    kept = metrics.to_sample_table(table)
    again = find_score_kind(kept.kind).recompute([kept.arrays], kept.classes)
    draws = np.array([[1.0, 1], [2, 0], [0, 2]])
    expected = metrics.bootstrap_values(table, draws)
    assert list(again(draws)) == list(expected) and ("hd95_mm" in expected) == has_distances
    for name, column in again(draws).items():
        np.testing.assert_array_equal(column, expected[name], err_msg=name, strict=True)


def test_missed_volumes_are_counted_by_class():
    metrics = of_volumes(([1, 2, 0], [0, 2, 3]), ([1, 0, 0], [1, 3, 0]), ([1, 0, 0], [0, 0, 0]))
    values = metrics.compute({})
    assert [values[f"missed{name}"] for name in ("", " a", " b", " c")] == [4, 2, 0, 2]
    assert all(isinstance(value, int) == name.startswith("missed") for name, value in values.items())
    assert metrics.summary(values).endswith("; volumes where a class is only labeled or only predicted: a 2, c 2")
