"""Average precision does not depend on which process evaluates which scene."""

import numpy as np
import paddle
import pytest
from support.instance_scenes import NAMES, scene
from support.processes import run_together, run_workers, succeeded

from paddlevit_dist.distributed import rank, reduce_dict, world_size
from paddlevit_dist.points.instances.metrics import InstanceMetrics, Prediction


def evaluate_share(scenes: int) -> dict:
    """Values of all scenes, of which this rank has seen its share."""
    metrics = InstanceMetrics(NAMES, [1, 2, 3])
    for number in range(rank(), scenes, world_size()):
        true_class, true_instance, predictions = scene(number)
        metrics.update_instances(true_class, true_instance, predictions)
        labels = paddle.to_tensor(true_class)
        metrics.update_semantic((labels + 1) % 3, labels, paddle.to_tensor(1.0))
    return metrics.compute(reduce_dict(metrics.state, average=False))


@pytest.fixture(scope="module")
def by_two() -> dict:
    target = "integration.distributed.test_instance_metrics:evaluate_share"
    return run_together({str(scenes): (target, (scenes,)) for scenes in (5, 1)})


def test_all_ranks_get_the_values_of_one_process(by_two):
    expected = evaluate_share(5)
    assert 0.0 < expected["AP"] < expected["AP25"] < 1.0
    assert "AP chair" in expected and "AP lamp" not in expected and "AP wall" not in expected
    assert by_two["5"] == [expected] * 2
    target = "integration.distributed.test_instance_metrics:evaluate_share"
    assert succeeded(run_workers(target, 5, processes=3)).results == [expected] * 3


def test_a_rank_without_scenes_and_an_evaluation_without_instances(by_two):
    assert by_two["1"] == 2 * [evaluate_share(1)]
    metrics = InstanceMetrics(NAMES, [1, 2, 3])
    metrics.update_instances(np.zeros(10, int), np.full(10, -100), [])
    values = metrics.compute(metrics.state)
    assert values["AP"] == 0.0 and np.isfinite(list(values.values())).all()
    assert metrics.summary(values).startswith("AP 0.0000 AP50 0.0000 AP25 0.0000 mIoU")


def test_an_instance_counts_for_the_class_of_its_first_point():
    metrics = InstanceMetrics(NAMES, [1, 2])
    true_class = np.r_[np.full(120, 1), np.full(80, 2)]
    metrics.update_instances(true_class, np.zeros(200, int), [Prediction(1, 0.5, np.arange(200))])
    values = metrics.compute(metrics.state)
    assert values["AP chair"] == 1.0 and "AP table" not in values
