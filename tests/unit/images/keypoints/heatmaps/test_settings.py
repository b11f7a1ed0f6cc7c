"""Keys of heatmaps that others replace."""

from support.processes import ROOT

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
