"""Average precision of instances as ScanNet's benchmark and PointGroup compute it."""

import numpy as np
import pytest
from support.networks.golden import arrays, description

from paddlevit_dist.points.instances.metrics import (
    IOU_THRESHOLDS,
    InstanceMatchTable,
    InstancePrediction,
    ap,
    ap25,
    ap50,
    average_precisions,
    match_scene,
    mean_over_classes,
)

ABOUT = description("scannet_instance_ap")


def make_table(golden, scene):
    """The match table of a stored scene, with the classes numbered as in ``class_ids``."""
    class_ids = golden["class_ids"].tolist()
    true_ids = golden[f"scene{scene}_gt_ids"]
    numbers = {label: number for number, label in enumerate(class_ids)}
    true_class = np.array([numbers.get(label, -1) for label in (true_ids // 1000).tolist()])
    masks = np.unpackbits(golden[f"scene{scene}_pred_masks"], axis=1, count=len(true_ids))
    labels, confidences = golden[f"scene{scene}_pred_label_id"], golden[f"scene{scene}_pred_conf"]
    predictions = [
        InstancePrediction(numbers.get(int(label), -1), float(confidence), np.flatnonzero(mask))
        for label, confidence, mask in zip(labels, confidences, masks)
    ]
    assert (len(true_ids), len(predictions)) == tuple(ABOUT["per_scene"][scene][k] for k in ("points", "predictions"))
    return match_scene(true_class, true_ids, predictions, len(class_ids))


@pytest.mark.parametrize("order", ["as stored", "reversed"])
def test_golden_average_precisions(order):
    golden = arrays("scannet_instance_ap")
    scenes = list(range(int(golden["num_scenes"])))
    assert len(scenes) == ABOUT["scenes"]
    scenes = scenes[::-1] if order == "reversed" else scenes  # of scenes; within one the order counts
    precisions = average_precisions(InstanceMatchTable.concat([make_table(golden, scene) for scene in scenes]))
    assert np.array_equal(IOU_THRESHOLDS, golden["overlaps"])
    np.testing.assert_allclose(precisions, golden["ap_table"], atol=1e-9)  # NaN at the same places
    for function, name in ((ap, "ap"), (ap50, "ap50"), (ap25, "ap25")):
        np.testing.assert_allclose(function(precisions), golden[name], atol=1e-9)
    means = [mean_over_classes(function(precisions)) for function in (ap, ap50, ap25)]
    np.testing.assert_allclose(means, [golden[f"mean_{name}"] for name in ("ap", "ap50", "ap25")], atol=1e-9)
    np.testing.assert_allclose(means, ABOUT["expected_means"], atol=1e-9)
