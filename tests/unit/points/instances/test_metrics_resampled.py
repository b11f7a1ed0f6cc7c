"""Scores of drawn scenes are those of the scenes as often as they are drawn."""

import numpy as np
import paddle
import pytest
from support.samples.instance_scenes import NAMES, scene

from paddlevit_dist.core.tasks.score_kind import require_score_kind
from paddlevit_dist.points.instances.metrics import InstanceMetrics
from paddlevit_dist.points.segmentation.metrics import SemanticMetrics


def scored(numbers) -> InstanceMetrics:
    metrics = InstanceMetrics(NAMES, [1, 2, 3])
    for number in numbers:
        true_class, true_instance, predictions = scene(number)
        metrics.update_instances(true_class, true_instance, predictions)
        labels = paddle.to_tensor(np.where(np.arange(2000) < 300 * number, true_class, -100))
        metrics.update((labels.abs() + number) % 3, labels, paddle.to_tensor(1.0))
    return metrics


def test_scores_of_a_draw_are_those_of_repeated_scenes():
    metrics = scored(range(6))
    weights = np.random.default_rng(0).integers(0, 3, (12, 6))
    weights[0] = 1
    found = metrics.bootstrap_values(metrics.per_sample(), weights.astype(float))
    for draw, counts in enumerate(weights):
        again = scored(np.repeat(np.arange(6), counts))
        expected = again.compute(again.state)
        names = {name for name, column in found.items() if not np.isnan(column[draw])}
        assert names == {name for name in expected if name != "points"}
        assert {name: found[name][draw] for name in names} == pytest.approx({name: expected[name] for name in names})


def test_arrays_of_a_file_that_do_not_fit_are_refused():
    metrics = scored(range(3))
    for number in range(3):
        true_class, true_instance, predictions = scene(number)
        metrics.update_panoptic(true_class, true_instance, true_class, predictions, 10)
    metrics.compute(metrics.state)
    saved = metrics.to_sample_table(list(metrics.gathered[1].values()))
    kind, arrays = require_score_kind(saved.kind, saved.classes), saved.arrays
    assert kind.is_valid(arrays, 3, 4) and not kind.is_valid(arrays, 3, 3) and not kind.is_valid(arrays, 2, 4)
    for name in arrays:
        assert not kind.is_valid({**arrays, name: arrays[name][:-1]}, 3, 4), name
        if name in ("segment_counts", "segment_ious", "statistics", "missed", "num_true"):
            assert not kind.is_valid({**arrays, name: arrays[name][:, :-1]}, 3, 4), name
    for name, most in (("rows", 2**31), ("instance_classes", 4), ("class_numbers", 3), ("thresholds", 10)):
        for wrong in (most, -1, 0.5):
            changed = arrays[name].astype(np.result_type(arrays[name].dtype, np.min_scalar_type(wrong)))
            changed[0] = wrong
            assert not kind.is_valid({**arrays, name: changed}, 3, 4), (name, wrong)
    rows = arrays["rows"]
    moved = rows + (rows[0] + 1) * np.array([-1, 0, 1])  # the first is -1
    for wrong in (rows.astype(float), rows[:, None], np.append(rows, 0), moved):
        assert not kind.is_valid({**arrays, "rows": wrong}, 3, 4)
    assert kind.is_valid({name: arrays[name] for name in arrays if not name.startswith("segment_")}, 3, 4)


def test_scenes_of_a_batch_are_told_apart_by_their_offsets():
    generator = np.random.default_rng(0)
    sizes = [50, 0, 700, 1]
    labels = np.where(generator.random(sum(sizes)) < 0.1, -100, generator.integers(0, 4, sum(sizes)))
    taken = generator.integers(0, 4, len(labels))
    offsets = np.cumsum([0, *sizes]).astype(np.int32)
    together, apart = SemanticMetrics(NAMES), SemanticMetrics(NAMES)
    losses = np.where(labels >= 0, generator.random(len(labels)), 0).astype(np.float32)
    of_points = [paddle.to_tensor(column) for column in (taken, labels, losses)]
    together.update(*of_points, paddle.to_tensor(offsets))
    expected_losses = [losses[first:end].sum(dtype=float) for first, end in zip(offsets[:-1], offsets[1:])]
    assert together.per_sample()[1] == pytest.approx(np.array(expected_losses))
    for first, end in zip(offsets[:-1], offsets[1:]):
        if end > first:
            apart.update(paddle.to_tensor(taken[first:end]), paddle.to_tensor(labels[first:end]))
    assert (together.per_sample()[0][[0, 2, 3]] == apart.per_sample()[0]).all() and not apart.per_sample()[1].any()
    broken = SemanticMetrics(NAMES)
    broken.update(
        *of_points[:2],
        paddle.to_tensor(np.where(np.arange(len(losses)) == 60, np.nan, losses)),
        paddle.to_tensor(offsets),
    )
    assert np.isinf(broken.per_sample()[1]).tolist() == [False, False, True, False]  # NaN means unknown
    nothing = SemanticMetrics(NAMES)
    nothing.update(*(column[:0] for column in of_points), paddle.zeros([3], "int32"))
    assert [part.shape for part in nothing.per_sample()] == [(2, 3, 4), (2,)]
    assert not any(part.any() for part in nothing.per_sample())
    assert not together.per_sample()[0][1].any()
    for number, (first, end) in enumerate(zip(offsets[:-1], offsets[1:])):
        of, at = labels[first:end], taken[first:end]
        expected = [
            [np.sum((of == k) & (at == k)) for k in range(4)],
            [np.sum(of == k) for k in range(4)],
            [np.sum((of >= 0) & (at == k)) for k in range(4)],
        ]
        assert together.per_sample()[0][number].tolist() == np.array(expected).tolist()
