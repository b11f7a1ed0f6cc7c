"""Scores of label maps and sliding windows, against counts and logits of other implementations."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.networks.golden import arrays, description, recipe, weights

from paddlevit_dist.core.metrics.counts import reduce_confusions
from paddlevit_dist.core.metrics.tables import class_tables
from paddlevit_dist.images.segmentation.metrics import SegmentationMetrics
from paddlevit_dist.images.segmentation.protocols import (
    EvaluationProtocol,
    class_map,
    count_windows,
    slide_windows,
    starts,
)

ABOUT = description("segmentation_metrics")
NAMES = [f"class {number}" for number in range(ABOUT["num_classes"])]
SCORED = [case for case, facts in ABOUT["cases"].items() if "pictures" in facts]
SLID = [case for case, facts in ABOUT["cases"].items() if "crop" in facts]


def test_every_golden_case_is_looked_at():
    assert sorted([*SCORED, *SLID]) == sorted(ABOUT["cases"])


@pytest.mark.parametrize("case", SCORED)
def test_golden_images_are_scored_equally(case):
    golden, facts = arrays("segmentation_metrics"), ABOUT["cases"][case]
    metrics, confusion = SegmentationMetrics(NAMES), 0
    for number in range(facts["pictures"]):
        label, predicted = (golden[f"{case}/{number:02d}_{what}"] for what in ("label", "prediction"))
        if case == "reduce_zero_label":
            raw = golden[f"{case}/{number:02d}_raw"]
            np.testing.assert_array_equal(
                np.where(raw % 255 == 0, 255, raw - 1), label, strict=True
            )  # the rule, which the data part applies
        confusion = confusion + metrics.update(predicted, label)[0]
    values = metrics.compute({})
    np.testing.assert_array_equal(confusion, golden[f"{case}/confusion"], strict=True)
    for ours, theirs in {
        "mIoU": "miou",
        "accuracy": "pixel_accuracy",
        "mean class accuracy": "mean_class_accuracy",
        "mean Dice": "mean_dice",
        "pixels": "counted_pixels",
    }.items():
        assert values[ours] == pytest.approx(facts[theirs], rel=1e-12)
    ious = [values.get(f"IoU {name}", np.nan) for name in NAMES]
    np.testing.assert_allclose(ious, golden[f"{case}/iou"], rtol=1e-12)
    rows = {row[0]: row for row in class_tables(confusion, NAMES, "pixels", np.ones((3, len(NAMES))))[0].rows}
    for column, name in ((2, "class_accuracy"), (4, "dice")):
        shown = [rows[one][column] if one in rows and rows[one][column] is not None else np.nan for one in NAMES]
        np.testing.assert_allclose(shown, golden[f"{case}/{name}"], atol=0.000051)
    assert sorted(set(NAMES) - set(rows)) == sorted(f"class {number}" for number in facts["in_neither"])
    right, true, taken = reduce_confusions(confusion)
    assert np.flatnonzero((true == 0) & (taken > 0)).tolist() == facts["only_predicted"]
    assert np.flatnonzero((true > 0) & (taken == 0)).tolist() == facts["only_labelled"]
    absent = len(facts["in_neither"])
    assert (f"({absent} of {len(NAMES)} classes neither labeled nor predicted" in metrics.summary(values)) == (
        absent > 0
    )


def crops_with_places():
    """The golden network: a convolution, and what depends on the place within a crop."""
    kernel = paddle.to_tensor(weights(ABOUT["seed"], {"slide.weight": (3, 3, 3, 3)})["slide.weight"].astype("float32"))

    def network(crops):
        height, width = crops.shape[2:]
        rows, columns = np.mgrid[:height, :width]
        places = np.arange(3)[:, None, None] * (rows - columns) / 32
        return F.conv2d(crops, kernel, padding=1) + paddle.to_tensor(places[None].astype("float32"))

    return network


@pytest.mark.parametrize("case", SLID)
def test_golden_windows_slide_equally(case):
    golden, facts = arrays("segmentation_metrics"), ABOUT["cases"][case]
    (height, width), crop, stride = facts["image"], facts["crop"], facts["stride"]
    tops, lefts = (starts(*axis) for axis in zip((height, width), crop, stride))
    ends = min(crop[0], height), min(crop[1], width)
    placed = [[top, top + ends[0], left, left + ends[1]] for top in tops for left in lefts]
    assert placed == facts["windows_y1_y2_x1_x2"]
    counts = np.outer(*(count_windows(*axis) for axis in zip((height, width), crop, stride)))
    assert np.array_equal(counts, golden[f"{case}/count"])
    image = recipe().golden_image(ABOUT["seed"], 1, max(height, width))[:, :, :height, :width]
    image = paddle.to_tensor(np.ascontiguousarray(image, np.float32))
    merged = paddle.concat(list(slide_windows(crops_with_places(), image, crop, stride)), axis=2)[0].numpy()
    if f"{case}/logits" in golden:
        np.testing.assert_allclose(merged, golden[f"{case}/logits"], atol=1e-5)
    found = class_map(crops_with_places(), image, (height, width), EvaluationProtocol(tuple(crop), tuple(stride)))
    assert found.dtype == paddle.uint8 and np.array_equal(found.numpy(), golden[f"{case}/prediction"])
