"""Intersection over union from the predictions of three ranks, against counts from other implementations."""

import numpy as np
import paddle
import pytest
from support.networks.golden import arrays, description

from paddlevit_dist.core.metrics.counts import reduce_confusions
from paddlevit_dist.points.segmentation.metrics import SemanticMetrics

ABOUT = description("semantic_miou")
NAMES = [f"class {number}" for number in range(ABOUT["num_classes"])]


def count_rank(golden, case, rank) -> SemanticMetrics:
    """One rank's counts, from several batches."""
    metrics = SemanticMetrics(NAMES)
    predictions, labels = (golden[f"{case}_rank{rank}_{kind}"].astype(np.int64) for kind in ("pred", "label"))
    for part in np.array_split(np.arange(len(labels)), 3):
        metrics.update(paddle.to_tensor(predictions[part]), paddle.to_tensor(labels[part]), paddle.zeros([len(part)]))
    return metrics


@pytest.mark.parametrize("case", list(ABOUT["cases"]))
def test_golden_case_is_counted_equally(case):
    golden = arrays("semantic_miou")
    metrics, *others = [count_rank(golden, case, rank) for rank in range(len(ABOUT["cases"][case]["rank_sizes"]))]
    for other in others:
        metrics.merge(other)
    values = metrics.compute({})
    expected = reduce_confusions(golden[f"{case}_confusion"])
    np.testing.assert_array_equal(metrics.per_sample()[0].sum(axis=0), expected, strict=True)
    for ours, theirs in (("mIoU", "miou"), ("accuracy", "accuracy"), ("mean class accuracy", "mean_class_accuracy")):
        assert values[ours] == pytest.approx(float(golden[f"{case}_{theirs}"]), rel=1e-12)
    ious = [values.get(f"IoU {name}", np.nan) for name in NAMES]
    np.testing.assert_allclose(ious, golden[f"{case}_iou"], rtol=1e-12)
    assert values["points"] == ABOUT["cases"][case]["points_counted"]


def test_nothing_counted_is_no_division_by_zero():
    metrics = SemanticMetrics(NAMES)
    metrics.update(paddle.to_tensor([3, 4]), paddle.to_tensor([-100, -100]))
    values = metrics.compute({})
    assert "mIoU" not in values and values["points"] == 0 and metrics.summary(values).startswith("mIoU nan")
