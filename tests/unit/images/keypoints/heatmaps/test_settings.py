"""Keys of heatmaps that others replace."""

import pytest
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.settings import load


def test_keys_of_boxes_are_ignored_where_others_find_them():
    recipe, scored = f"-cfg={ROOT / 'configs' / 'heatmap_figures.yaml'}", ["HEATMAPS.NMS_OKS", "0.5"]
    file, detector = ["HEATMAPS.BOX_FILE", "b.json"], ["HEATMAPS.DETECTOR", "run"]
    (told,) = load([recipe, "-eval", "-pretrained=x", *scored]).notices
    assert told.startswith("HEATMAPS.NMS_OKS 0.5 ") and "boxes have no scores without detections" in told
    (told,) = load([recipe, "-eval", "-pretrained=x", *file, *detector, *scored]).notices
    assert told.startswith("HEATMAPS.BOX_FILE b.json ") and "the detector finds the boxes" in told
    for given in (file, detector):
        assert load([recipe, "-eval", "-pretrained=x", *given, *scored]).notices == []


@pytest.mark.parametrize("size", ["[15, 64]", "[64, 15]"])
def test_a_crop_has_two_cells_along_each_side(size):
    recipe = [f"-cfg={ROOT / 'configs' / 'heatmap_figures.yaml'}", "HEATMAPS.STRIDE", "8"]
    with pytest.raises(UserError, match="HEATMAPS.CROP_SIZE .*expected at least two cells of HEATMAPS.STRIDE 8"):
        load([*recipe, "HEATMAPS.CROP_SIZE", size])
    load([*recipe, "HEATMAPS.CROP_SIZE", size.replace("15", "16")])
