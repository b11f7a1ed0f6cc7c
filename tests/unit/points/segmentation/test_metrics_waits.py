"""Metrics of scenes make the host wait for their counts alone."""

import paddle
import pytest
from support.waits import counted_waits

from paddlevit_dist.points.segmentation.metrics import SemanticMetrics


@pytest.mark.parametrize("ends", [[7], [3, 3, 7]])
def test_metrics_of_scenes_wait_for_nothing_but_their_counts(ends):
    labels, losses = paddle.to_tensor([0, 1, 1, -100, 0, 1, 0]), paddle.arange(7, dtype="float32")
    offsets = paddle.to_tensor([0, *ends])
    metrics = SemanticMetrics(["a", "b"])
    with counted_waits() as waits:
        metrics.update(labels.clip(min=0), labels, losses, offsets)
    assert {wait.kind for wait in waits.list} == {"bincount"}, str(waits)
    assert metrics.per_sample()[1].tolist() == [sum(range(first, end)) for first, end in zip([0, *ends], ends)]
