"""Average precision of instances as ScanNet's benchmark and PointGroup compute it."""

import numpy as np
import pytest
from support.networks.golden import arrays, description

from paddlevit_dist.core.intervals import nanmean
from paddlevit_dist.points.instances.matching import IOU_THRESHOLDS, InstancePrediction, flatten_tables, match_scene
from paddlevit_dist.points.instances.score_kind import average_precisions, class_precisions

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
    matches, ones = flatten_tables([make_table(golden, scene) for scene in scenes]), np.ones((1, len(scenes)))
    np.testing.assert_array_equal(IOU_THRESHOLDS, golden["overlaps"], strict=True)
    # NaN at the same places
    np.testing.assert_allclose(average_precisions(matches, ones)[0], golden["ap_table"], rtol=0, atol=1e-12)
    means = []
    for name, per_class in class_precisions(matches, ones).items():
        np.testing.assert_allclose(per_class[0], golden[name.lower()], rtol=0, atol=1e-12)
        means.append(nanmean(per_class)[0])
    np.testing.assert_allclose(means, [golden[f"mean_{name}"] for name in ("ap", "ap50", "ap25")], rtol=0, atol=1e-12)
    np.testing.assert_allclose(means, ABOUT["expected_means"], atol=1e-9)
