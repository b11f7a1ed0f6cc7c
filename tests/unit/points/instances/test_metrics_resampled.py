"""Scores of drawn scenes are those of the scenes as often as they are drawn."""

import numpy as np
import paddle
import pytest
from support.samples.instance_scenes import NAMES, scene

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
    assert (together.per_sample()[0][[0, 2, 3]] == apart.per_sample()[0]).all()
    assert not together.per_sample()[0][1].any()
    for number, (first, end) in enumerate(zip(offsets[:-1], offsets[1:])):
        of, at = labels[first:end], taken[first:end]
        expected = [
            [np.sum((of == k) & (at == k)) for k in range(4)],
            [np.sum(of == k) for k in range(4)],
            [np.sum((of >= 0) & (at == k)) for k in range(4)],
        ]
        assert together.per_sample()[0][number].tolist() == np.array(expected).tolist()
