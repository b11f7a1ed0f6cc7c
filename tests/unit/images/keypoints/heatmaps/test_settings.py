"""Keys of heatmaps that others replace."""

import pytest
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load


def test_keys_of_boxes_are_ignored_where_others_find_them():
    recipe, scored = f"-cfg={ROOT / 'configs' / 'heatmap_figures.yaml'}", ["HEATMAPS.NMS_OKS", "0.5"]
    file, detector = ["HEATMAPS.BOX_FILE", "b.json"], ["HEATMAPS.DETECTOR", "run"]
    beginning = "(command line): no effect:"
    (told,) = load([recipe, "-eval", "-pretrained=x", *scored]).notices
    assert told == (
        f"HEATMAPS.NMS_OKS 0.5 {beginning} boxes have no scores without detections: HEATMAPS.DETECTOR None (default)"
    )
    (told,) = load([recipe, "-eval", "-pretrained=x", *file, *detector, *scored]).notices
    assert told == (
        f"HEATMAPS.BOX_FILE b.json {beginning} the detector finds the boxes: HEATMAPS.DETECTOR run (command line)"
    )
    for key in ("DATA.LONGEST_SIDE 500", "DETECTION.WINDOW [64, 64]"):
        (told,) = load([recipe, *key.split(" ", 1)]).notices
        assert told.startswith(f"{key} {beginning} objects are cropped to HEATMAPS.CROP_SIZE: TASK keypoint_heatmaps (")
    for given in (file, detector):
        assert load([recipe, "-eval", "-pretrained=x", *given, *scored]).notices == []


@pytest.mark.parametrize("size", ["[15, 64]", "[64, 15]"])
def test_a_crop_has_two_cells_along_each_side(size):
    recipe = [f"-cfg={ROOT / 'configs' / 'heatmap_figures.yaml'}", "HEATMAPS.STRIDE", "8"]
    with pytest.raises(UserError, match="HEATMAPS.CROP_SIZE .*expected at least two cells of HEATMAPS.STRIDE 8"):
        load([*recipe, "HEATMAPS.CROP_SIZE", size])
    load([*recipe, "HEATMAPS.CROP_SIZE", size.replace("15", "16")])
