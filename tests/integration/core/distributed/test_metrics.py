"""Average precision and intervals do not depend on which process evaluates which sample."""

import numpy as np
import paddle
import pytest
from support.processes import run_together
from support.samples import counted_samples
from support.samples.instance_scenes import NAMES, scene

from paddlevit_dist.core.distributed import rank, reduce_dict, world_size
from paddlevit_dist.points.instances.matching import InstancePrediction
from paddlevit_dist.points.instances.metrics import InstanceMetrics


def evaluate_share(scenes: int) -> dict:
    """Values of all scenes, of which this rank has seen its share."""
    metrics = InstanceMetrics(NAMES, [1, 2, 3])
    metrics.indices = range(rank(), scenes, world_size())
    for number in metrics.indices:
        true_class, true_instance, predictions = scene(number)
        metrics.update_instances(true_class, true_instance, predictions)
        labels = paddle.to_tensor(true_class)
        losses = np.random.default_rng(number).random(len(true_class))
        metrics.update((labels + 1) % 3, labels, paddle.to_tensor(losses))
        metrics.update_panoptic(true_class, true_instance, np.roll(true_class, 40), predictions, 30)
    return metrics.compute(reduce_dict(metrics.state, average=False))


@pytest.fixture(scope="module")
def of_two() -> dict[str, list]:
    """What each rank of two processes gets; of three at night."""
    return evaluate_with(2)


def evaluate_with(processes: int) -> dict[str, list]:
    of_scenes, of_samples = (
        "integration.core.distributed.test_metrics:evaluate_share",
        "support.samples.counted_samples:evaluate_share",
    )
    calls = {"5 scenes": (of_scenes, (5,)), "1 scene": (of_scenes, (1,)), "intervals": (of_samples, ())}
    return run_together(calls, processes)


def test_all_ranks_get_the_values_of_one_process(of_two):
    require_values_of_one_process(of_two, 2)


def require_values_of_one_process(group: dict[str, list], processes: int) -> None:
    expected = evaluate_share(5)
    assert 0.0 < expected["AP"] < expected["AP25"] < 1.0
    assert 0.0 < expected["PQ"] < 1.0 and "loss" in expected
    assert "AP chair" in expected and "AP lamp" not in expected and "AP wall" not in expected
    assert group["5 scenes"] == [expected] * processes


def test_all_ranks_get_values_and_intervals_of_one_process_to_the_last_bit(of_two):
    require_intervals_of_one_process(of_two, 2)


def require_intervals_of_one_process(group: dict[str, list], processes: int) -> None:
    assert group["intervals"] == [counted_samples.evaluate_share()] * processes


def test_a_rank_without_scenes_and_an_evaluation_without_instances(of_two):
    assert of_two["1 scene"] == 2 * [evaluate_share(1)]
    metrics, classes = InstanceMetrics(NAMES, [1, 2, 3]), np.zeros(10, int)
    metrics.update_instances(classes, np.full(10, -100), [])
    metrics.update(paddle.to_tensor(classes), paddle.to_tensor(classes), None)
    values = metrics.compute(metrics.state)
    assert not {"AP", "AP50", "AP25"} & values.keys() and np.isfinite(list(values.values())).all()
    assert metrics.summary(values).startswith("AP not defined (no instance is large enough) mIoU")


def test_an_instance_counts_for_the_class_of_its_first_point():
    metrics = InstanceMetrics(NAMES, [1, 2])
    true_class = np.r_[np.full(120, 1), np.full(80, 2)]
    metrics.update_instances(true_class, np.zeros(200, int), [InstancePrediction(1, 0.5, np.arange(200))])
    metrics.update(paddle.to_tensor(true_class), paddle.to_tensor(true_class), None)
    values = metrics.compute(metrics.state)
    assert values["AP chair"] == 1.0 and "AP table" not in values
