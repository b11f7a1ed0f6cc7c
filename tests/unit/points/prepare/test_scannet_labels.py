"""ScanNet's own labels above 40."""

import numpy as np

from paddlevit_dist.points.prepare import scannet


def test_labels_that_are_not_nyu40s_are_no_class_and_told(monkeypatch):
    numbers, remarks = np.array([1, 50, 0, 39, 149, 13, 40]), []
    monkeypatch.setattr(scannet, "read_vertices", lambda path: {"label": numbers})
    found = scannet._read_classes("scene0270_00.labels.ply", 7, remarks)
    assert found.tolist() == [0, -100, -100, 19, -100, -100, -100]
    assert remarks == ["scene0270_00.labels.ply: 2 points have labels above 40 (50, 149): no class"]
